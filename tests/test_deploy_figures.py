"""The alert rules and the Grafana dashboard load, and name only figures that `/metrics` has."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML
from sqlalchemy import insert

from service.intake import IntakeCounts
from service.intake_metrics import IntakeCollector
from service.latency import Latency
from service.tables import alert_results, rejected

from .api_builders import Json, seeded
from .service_builders import an_incident

ROOT = Path(__file__).parent.parent
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "firstfault.json"
RUNBOOK = ROOT / "docs" / "operations.md"
_ENDINGS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
_COUNTS = ("records", "events", "verdicts", "store_failures", "parts_lost")


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Every series that a service at work shows, with its labels."""
    with seeded(tmp_path_factory.mktemp("store")) as api:
        counts = IntakeCounts()
        counts.add_rejected({"line: must be JSON": 1})
        api.app.state.metrics.registry.register(IntakeCollector(counts, lambda: (1, 2)))
        api.put("run", an_incident())
        api.say_healthy(
            counts=dict.fromkeys(_COUNTS, 1),
            lag_by_part={"t:0": 1},
            detection=Latency().body(),
            dropped_verdicts=1,
            starved=["t:0"],
            history={"used_bytes": 1},
            checkpoint_bytes=1,
            verdict_seconds={"median": 0.1, "longest": 0.2},
            **dict.fromkeys(("lag_messages", "late_records", "polled_at", "newest_record_at"), 1),
        )
        with api.store.database.write() as db:
            told = {"channel": "pager", "result": "sent", "messages": 1, "at": 1.0, "detail": ""}
            db.execute(insert(alert_results).values(**told))
            db.execute(insert(rejected).values(reason="line: must be JSON", records=1, example=b""))
        api.client().get("/v1/runs")
        text = api.client().get("/metrics").text
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for ending in _ENDINGS.get(family.type, ("",)):
            found[family.name + ending] = set()
        for one in family.samples:
            found.setdefault(one.name, set()).update(one.labels)
    return found


def rules() -> list[Json]:
    loaded: Any = YAML(typ="safe").load(RULES.read_text(encoding="utf-8"))
    return [rule for group in loaded["groups"] for rule in group["rules"]]


def panels() -> list[Json]:
    found: list[Json] = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    return found


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    for panel in panels():
        for target in panel.get("targets", ()):
            yield target["expr"].replace("$__rate_interval", "5m").replace("$instance", ".*")


def selectors(node: Any) -> Iterator[Any]:
    """Every selection of series in a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        if (inner := getattr(node, name, None)) is not None:
            yield from selectors(inner)
    for inner in getattr(node, "args", None) or ():
        yield from selectors(inner)


def test_every_expression_parses_and_names_figures_and_labels_that_exist(
    figures: dict[str, set[str]],
) -> None:
    named: set[str] = set()
    for expression in expressions():
        found = list(selectors(promql_parser.parse(expression)))
        assert {one.name for one in found} == set(re.findall(r"\b(?:firstfault_\w+|up)\b", expression))
        for one in found:
            if one.name == "up":  # Prometheus' own
                continue
            named.add(one.name)
            assert one.name in figures, expression
            wanted = {matcher.name for matcher in one.matchers.matchers} - {"instance", "job", "__name__"}
            assert wanted <= figures[one.name], expression
    assert len(named) > 25


def test_labels_that_are_summed_by_are_those_of_the_figures(figures: dict[str, set[str]]) -> None:
    for expression in expressions():
        for labels in re.findall(r"by \(([^)]*)\)", expression):
            known = set().union(
                *(figures.get(one, set()) for one in re.findall(r"firstfault_\w+", expression))
            )
            assert {one.strip() for one in labels.split(",")} <= known | {"instance"}, expression


def test_each_alert_has_a_severity_and_a_line_in_the_runbook() -> None:
    runbook = RUNBOOK.read_text(encoding="utf-8")
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) >= 15
    for rule in rules():
        name = rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{name.lower()}"
        assert f"#### {name}\n" in runbook


def test_reasons_in_the_rules_are_those_that_readyz_tells() -> None:
    sources = "".join(path.read_text("utf-8") for path in sorted((ROOT / "service").rglob("*.py")))
    codes = set(re.findall(r'Reason\(\s*"([a-z-]+)"', sources))
    for expression in expressions():
        for named in re.findall(r'firstfault_degraded\{reason=~?"([^"]+)"', expression):
            assert set(named.split("|")) <= codes


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    document = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    assert {one["name"] for one in document["templating"]["list"]} == {"datasource", "instance"}
    assert len({panel["id"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
        assert all(target["datasource"]["uid"] == "${datasource}" for target in panel.get("targets", ()))


def test_prometheus_itself_takes_the_rules_where_it_is_installed() -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")
    done = subprocess.run(
        [program, "check", "rules", str(RULES)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
