"""A client that openapi-python-client makes of the OpenAPI document works against the real service."""

from __future__ import annotations

import copy
import importlib
import io
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ingest.spool import Spool, SpoolConfig
from service.access import create_token
from service.api.app import make_app
from service.api.openapi import examples
from service.intake import make_intake_router
from service.intake_config import IntakeConfig
from service.intake_sinks import SpoolSink

from .api_builders import seeded, served
from .history_builders import noise, write
from .service_builders import log_lines

CONFIG = Path(__file__).parent.parent / "docs" / "openapi-client.yaml"
PACKAGE = "generated_firstfault_client"


@dataclass
class Made:
    """The generated package, a client of it that holds a token, and what the store holds."""

    client: Any  # generated code has no types that are known here
    run_id: str
    data_dir: Path

    def call(self, name: str, *args: Any, **asked: Any) -> Any:
        """The parsed answer of an operation, by ``tag.name``."""
        module = importlib.import_module(f"{PACKAGE}.api.{name}")
        answer = module.sync_detailed(*args, client=self.client, **asked)
        assert answer.status_code < 300, answer.content
        return answer.parsed

    def model(self, name: str) -> Any:
        """A generated model."""
        return getattr(importlib.import_module(f"{PACKAGE}.models"), name)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("client")
    history = folder / "history"
    with seeded(folder, history_folder=history) as api:
        verdict = copy.deepcopy(examples())["GET /v1/runs/{run_id}/verdict"]["200"]["verdict"] | {
            "run": "run"
        }
        (incident,) = verdict["incidents"]
        incident |= {"id": "a1"}
        incident["evidence"][0] |= {"statistic": "NaN"}
        run_id = api.put_verdict(verdict)
        write(history, noise(50))
        sink = SpoolSink(folder, SpoolConfig())
        app = make_app(
            api.store.database,
            routers=[make_intake_router(sink, IntakeConfig())],
            history_folder=history,
        )
        document = folder / "openapi.json"
        document.write_text(json.dumps(app.openapi()), encoding="utf-8")
        generate(document, folder / PACKAGE)
        with api.store.database.write() as db:
            token = create_token(db, "generated", ("read", "write", "ingest"), time.time())
        sys.path.insert(0, str(folder))
        try:
            with served(app) as (port, _):
                package = importlib.import_module(PACKAGE)
                base_url = f"http://127.0.0.1:{port}"
                with package.AuthenticatedClient(base_url=base_url, token=token) as client:
                    yield Made(client, run_id, folder)
        finally:
            sys.path.remove(str(folder))
            sink.close()


def generate(document: Path, out: Path) -> None:
    program = Path(sys.executable).with_name("openapi-python-client")
    paths = ["--path", str(document), "--output-path", str(out), "--config", str(CONFIG)]
    done = subprocess.run(
        [program, "generate", *paths, "--meta", "none"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower(), done.stdout


def test_it_lists_runs_and_reads_one(made: Made) -> None:
    page = made.call("runs.list_runs")
    assert [one.run for one in page.items] == ["run"]
    assert made.call("runs.get_run", made.run_id).run_id == made.run_id
    assert made.call("runs.get_verdict", made.run_id).verdict.run == "run"


def test_it_reads_incidents_and_sets_their_state(made: Made) -> None:
    found = made.call("incidents.list_incidents", limit=10)
    assert [one.id for one in found.items] == ["a1"]
    statistic = made.call("incidents.get_incident", "a1").incident.evidence[0].statistic
    assert str(getattr(statistic, "value", statistic)) == "NaN"
    change = made.model("StateChange")(state=made.model("State").ACKNOWLEDGED, note="seen")
    assert made.call("incidents.set_state", "a1", body=change).state.value == "acknowledged"


def test_it_reads_curves_and_matrices_with_numbers_that_are_none(made: Made) -> None:
    curve = made.call("curves.get_curve", made.run_id, metric="loss")
    assert len(curve.columns.median) == 50
    assert sum(curve.columns.nan) > 0
    matrix = made.call("curves.get_matrix", made.run_id, metric="loss")
    assert "NaN" in {cell for row in matrix.values for cell in row}


def test_it_sends_telemetry_as_a_record_and_as_lines(made: Made) -> None:
    record = made.model("TelemetryRecord")(run="sent", rank=0, iteration=0)
    record["loss"] = "NaN"
    assert made.call("telemetry.post_telemetry", body=record).accepted == 1
    file = importlib.import_module(f"{PACKAGE}.types").File
    lines = b"\n".join(log_lines("sent", ranks=2, iterations=3))
    assert made.call("telemetry.post_telemetry", body=file(payload=io.BytesIO(lines))).accepted == 6
    spool = Spool(made.data_dir)
    assert [json.loads(one.body.splitlines()[0])["run"] for one in spool.read(0, 9, 1 << 20)] == ["sent"] * 2
    spool.close()


def test_it_asks_how_the_service_is(made: Made) -> None:
    assert made.call("health.readyz").status.value in ("ready", "degraded")
    assert "firstfault_build_info" in made.call("health.metrics")


def test_every_operation_has_a_name_of_its_own(made: Made) -> None:
    document = json.loads((made.data_dir / "openapi.json").read_text(encoding="utf-8"))
    names = [one["operationId"] for item in document["paths"].values() for one in item.values()]
    assert len(names) == len(set(names))
    assert all(name.isidentifier() and len(name) < 40 for name in names)
    assert all("__" not in name for name in document["components"]["schemas"])
