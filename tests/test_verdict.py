"""The verdict's one JSON form, its schema and its coverage."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.evidence import Annotation, Certainty, Check, CheckState, Evidence, Pattern
from detectors.facts import InputFacts
from detectors.fuse import fuse
from detectors.roles import Role
from detectors.verdict import Verdict, canonical_bytes, incident_id, plain, schema, to_json
from firstfault.telemetry import EventKind

from .evidence_builders import (
    EIGHT,
    but,
    divergence,
    drift,
    event,
    evidence,
    explosion,
    findings,
    labels,
    mesh,
    nonfinite,
    sight,
    verdict,
)

VALIDATOR = jsonschema.Draft202012Validator(schema())

FOUND: list[list[Evidence]] = [
    [],
    [nonfinite(sight("loss", [5], but(5)), sight("grad_norm", EIGHT))],
    [nonfinite(sight("grad_norm", EIGHT))],
    [divergence([3], 1200, 1190), explosion(1711), nonfinite(sight("loss", EIGHT, iteration=1720))],
    [divergence([0, 1], 10, None, is_tie=True)],
    [explosion(50, statistic=math.inf, detail={"peak": math.inf, "curve": [1.0, math.nan], "at": None})],
    [drift(1000, 950, 1100), divergence([2], 1500, 1490, certainty=Certainty.SUSPECTED)],
    [explosion(300, certainty=Certainty.RECOVERED)],
]


def _check(judged: Verdict) -> dict[str, Any]:
    VALIDATOR.validate(to_json(judged))
    VALIDATOR.validate(to_json(judged, revision=3, states={}))
    line = canonical_bytes(judged)
    assert line.isascii() and b"\n" not in line
    decoded: dict[str, Any] = json.loads(line, parse_constant=lambda text: pytest.fail(f"bare {text}"))
    VALIDATOR.validate(decoded)
    return decoded


def test_the_schema_itself_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


@pytest.mark.parametrize("found", FOUND)
def test_every_verdict_fits_the_published_schema(found: list[Evidence]) -> None:
    saved = (event(EventKind.CHECKPOINT, 5, path="/c/5"),)
    _check(verdict(*found, checkpoints=saved, labels=labels({3: "node"}), iteration_time_s=0.5))


@pytest.mark.parametrize("pattern", list(Pattern))
def test_every_pattern_fits_the_schema(pattern: Pattern) -> None:
    decoded = _check(verdict(evidence(pattern, "loss", 900, ranks=(2,))))
    assert decoded["incidents"][0]["pattern"] == pattern.value


def test_an_undetermined_verdict_fits_the_schema() -> None:
    assert _check(fuse("r", [], InputFacts()))["label"] == "undetermined"


def test_the_schema_refuses_what_is_not_a_verdict() -> None:
    node = to_json(verdict(divergence([3], 1200, 1190)))
    for change in ({"label": "fine"}, {"schema": 2}, {"extra": 1}, {"judged_to_iteration": 1.5}):
        with pytest.raises(jsonschema.ValidationError):
            VALIDATOR.validate({**node, **change})


def test_keys_come_in_the_order_that_is_documented() -> None:
    node = to_json(verdict(divergence([3], 1200, 1190)), revision=2, states={})
    assert list(node) == [
        "schema", "run", "label", "judged_to_iteration", "attempts", "revision", "incidents", "annotations",
        "coverage",
    ]  # fmt: skip
    incidents: Any = node["incidents"]
    assert list(incidents[0]) == [
        "id", "label", "pattern", "state", "certainty", "severity", "first", "detected_at_iteration", "chain",
        "causes", "last_good", "cost", "evidence", "evidence_count", "advice",
    ]  # fmt: skip


def test_the_envelope_is_not_in_the_canonical_bytes() -> None:
    judged = verdict(divergence([3], 1200, 1190))
    states = {judged.incidents[0].id: "acknowledged"}
    enveloped: Any = to_json(judged, revision=7, states=states)
    assert (enveloped["revision"], enveloped["incidents"][0]["state"]) == (7, "acknowledged")
    assert b"revision" not in canonical_bytes(judged) and b'"state":"open"' not in canonical_bytes(judged)


def test_an_incident_nobody_touched_is_open() -> None:
    node: Any = to_json(verdict(divergence([3], 1200, 1190)), states={"other": "muted"})
    assert node["incidents"][0]["state"] == "open"


def test_numbers_that_are_not_numbers_are_text_and_statistics_are_rounded() -> None:
    found = explosion(50, statistic=math.nan, threshold=1 / 3, detail={"peak": -math.inf, "at": [1e300, 2.0]})
    item = _check(verdict(found))["incidents"][0]["evidence"][0]
    assert (item["statistic"], item["threshold"]) == ("NaN", 0.333333)
    assert item["detail"] == {"at": [1e300, 2], "peak": "-Infinity"}


def test_a_difference_in_the_last_bits_does_not_change_the_bytes() -> None:
    one, other = explosion(50, statistic=0.1 + 0.2), explosion(50, statistic=0.3)
    assert canonical_bytes(verdict(one)) == canonical_bytes(verdict(other))


@settings(max_examples=200, deadline=None)
@given(value=st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda leaf: st.lists(leaf) | st.dictionaries(st.text(), leaf),
    max_leaves=12,
))  # fmt: skip
def test_any_detail_becomes_json_and_stays_as_it_is_the_second_time(value: object) -> None:
    once = plain(value)
    assert plain(once) == once
    json.dumps(once, allow_nan=False)


@pytest.mark.parametrize(
    "run",
    [
        "llama-7b",
        "naïve/ünï\u202e",
        '"}],"label":"healthy',
        "<script>alert(1)</script>",
        "\ud83d\ude00",
        "x" * 256,
    ],
)
def test_a_run_may_have_any_name(run: str) -> None:
    found = divergence([3], 1200, 1190)
    decoded = _check(verdict(found, run=run, labels=labels({3: run})))
    assert decoded["run"].encode("utf-16", "surrogatepass") == run.encode("utf-16", "surrogatepass")
    assert decoded["incidents"][0]["first"]["suspects"][0]["host"] == decoded["run"]


def test_an_id_is_that_of_run_attempt_and_ordinal() -> None:
    ids = {
        incident_id(run, attempt, at) for run in ("a", "a/1", "b") for attempt in (0, 1) for at in (0, 1, 11)
    }
    assert len(ids) == 18
    assert verdict(divergence([3], 1200, 1190), run="a").incidents[0].id == incident_id("a", 0, 0)


def test_annotations_are_told_in_order_with_their_numbers() -> None:
    notes = [
        Annotation(kind="spike_recovered", key="b", attempt=0, iteration=90, detail={"peak": 4.5}),
        Annotation(kind="loss_scale_skip", key="a", attempt=0, iteration=14, detail={"count": 3}),
    ]
    told = _check(verdict(annotations=notes))["annotations"]
    assert [one["kind"] for one in told] == ["loss_scale_skip", "spike_recovered"]
    assert told[0]["detail"] == {"count": 3}


def test_a_check_ran_if_it_ran_in_any_attempt_and_else_says_why_not() -> None:
    def check(name: str, state: CheckState, why: str = "") -> Check:
        return Check(name=name, state=state, why=why)

    first = (check("vote", CheckState.RAN), check("repeat", CheckState.NOT_RUN, "old reason"))
    second = (check("vote", CheckState.NOT_RUN, "too short"), check("repeat", CheckState.NOT_RUN, "none"))
    attempts = [findings(checks=first), findings(attempt=1, checks=second)]
    told = _check(fuse("r", attempts, InputFacts()))["coverage"]["checks"]
    assert [(one["name"], one["state"], one["why"]) for one in told] == [
        ("vote", "ran", ""), ("repeat", "not_run", "none"),
    ]  # fmt: skip


def test_what_was_rejected_is_counted_with_reasons() -> None:
    inputs = InputFacts(
        records=9, rejected=3, rejected_by={"rank: >= 0": 2, "line: json": 1}, late=4, duplicates=5
    )
    judged = fuse("r", [findings()], inputs)
    node: Any = to_json(judged)
    assert (node["coverage"]["records"], node["coverage"]["late"], node["coverage"]["duplicates"]) == (
        9,
        4,
        5,
    )
    told = _check(judged)["coverage"]
    assert told["rejected"] == 3
    assert list(told["rejected_by"]) == ["line: json", "rank: >= 0"]


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({}, "compute faults before the reduction: no canary"),
        (
            {"metrics": ("canary_checksum", "loss"), "unrepeated_since": 32},
            "compute faults before the reduction after iteration 32: no canary since",
        ),
        ({"metrics": ("loss",)}, "replicas that differ: no checksums"),
        (
            {"metrics": ("grad_norm", "param_checksum")},
            "which rank was first: no metric is taken before the reduction",
        ),
        (
            {"metrics": ("grad_sketch_in", "loss")},
            "a reduction that goes wrong alike on all ranks: no grad_sketch_in and grad_sketch_out",
        ),
        ({"ranks": (0,)}, "which rank was first, and replicas that differ: one rank reports"),
        ({"metrics": ("param_checksum",)}, "explosion and drift of the curves: no loss and no gradient norm"),
        ({"layout": mesh(("dp", 8), sharding="zero1")}, "a corrupted optimizer shard: under zero1"),
        ({"layout": mesh(("dp", 8), sharding="zero3")}, "replicas that differ: under zero3"),
        ({"layout": mesh(("tp", 8))}, "replicas that differ: the layout has one data-parallel rank"),
    ],
)
def test_coverage_says_what_the_telemetry_cannot_show(facts: dict[str, Any], sentence: str) -> None:
    assert any(line.startswith(sentence) for line in verdict(**facts).coverage.blind_to)


def test_full_telemetry_of_plain_replicas_is_blind_to_nothing_listed() -> None:
    sketches = ("grad_sketch_in", "grad_sketch_out")
    metrics = ("canary_checksum", "grad_norm", *sketches, "local_grad_norm", "loss", "param_checksum")
    assert verdict(metrics=metrics).coverage.blind_to == ()


def test_coverage_says_how_names_were_read() -> None:
    roles = {"grad_norm": Role.LOCAL, "loss": Role.GLOBAL, "lr": Role.AS_NAMED}
    notes = verdict(roles=roles).coverage.notes
    assert "grad_norm differs between ranks from the start: read as a local norm" in notes
    assert "loss is bit-equal on all ranks from the start: read as the reduced value" in notes
    assert not any(note.startswith("lr") for note in notes)


def test_coverage_counts_silent_ranks_and_missing_reporters() -> None:
    told = verdict(ranks=(0, 1, 2, 3), silent_ranks=(2,)).coverage
    assert (told.ranks, told.silent_ranks, told.silent_rank_count) == (4, (2,), 1)
    assert "4 of 8 ranks report" in told.notes


def test_attempts_keep_their_own_iterations() -> None:
    attempts = [findings(judged_to=1903), findings(attempt=1, first_iteration=1000, judged_to=1500)]
    told = _check(fuse("r", attempts, InputFacts()))
    assert told["attempts"] == [
        {"attempt": 0, "label": "healthy", "from": 0, "to": 1903},
        {"attempt": 1, "label": "healthy", "from": 1000, "to": 1500},
    ]
    assert told["judged_to_iteration"] == 1500


def test_how_the_records_came_is_not_in_the_canonical_bytes() -> None:
    once = InputFacts(records=9, rejected=1)
    twice = InputFacts(records=18, rejected=1, late=2, duplicates=9, conflicts=1, padding=1)
    assert canonical_bytes(fuse("r", [findings()], once)) == canonical_bytes(fuse("r", [findings()], twice))


def test_verdicts_are_values() -> None:
    one, other = verdict(divergence([3], 1200, 1190)), verdict(divergence([3], 1200, 1190))
    assert canonical_bytes(one) == canonical_bytes(other)
    assert canonical_bytes(replace(one, run="x")) != canonical_bytes(one)
