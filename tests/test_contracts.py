"""Metrics that a run declares are judged by what it says of them; all others never open an incident."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

import pytest

from detectors.verdict import canonical_bytes
from firstfault.contracts import MAX_DECLARED, ContractError, Contracts, contract_from, declared_by
from firstfault.telemetry import Event, EventKind, Kind, Phase, Relation
from ingest.event_queue import MAX_FAULTS
from service.pipeline import Pipeline

from .record_builders import Arrived, cut, event, record

ROUTER = {"kind": "checksum", "phase": "state", "relations": {"dp": "equal"}}
NAMES = {
    "router_checksum": ROUTER,
    "agreed_clip": {"kind": "agreed", "phase": "reduce_out", "relations": {"dp": "equal"}},
    "bad_router": {"kind": "nonfinite_count", "phase": "reduce_in"},
}


def start(metrics: object) -> Event:
    return event("run_start", 0, world_size=4, mesh=[["dp", 4]], metrics=metrics)


def job(fault: Mapping[str, float], *, rank: int, at: int, declares: object = NAMES) -> list[Arrived]:
    """Four ranks, 120 iterations; from ``at`` on one rank reports ``fault`` instead."""
    arrived: list[Arrived] = [] if declares is None else [start(declares)]
    for iteration in range(120):
        for one in range(4):
            usual = {"router_checksum": 7 + iteration, "agreed_clip": 1.0 + iteration, "bad_router": 0.0}
            values = {**usual, **(fault if one == rank and iteration >= at else {})}
            arrived.append(record(one, iteration, **values))  # type: ignore[arg-type]  # metrics by keyword
    return arrived


def verdict(arrived: list[Arrived], size: int = 10_000) -> dict[str, object]:
    pipeline = Pipeline()
    for batch in cut(arrived, [size]):
        pipeline.feed(batch)
        restored = Pipeline()
        restored.restore(pipeline.snapshot())
        pipeline = restored
    (found,) = pipeline.verdicts()
    parsed: dict[str, object] = json.loads(canonical_bytes(found))
    return parsed


@pytest.mark.parametrize(
    ("fault", "label", "phase"),
    [
        ({"router_checksum": 1}, "silent_drift", "state"),
        ({"agreed_clip": 0.5}, "silent_drift", "reduce_out"),
    ],
)
def test_a_declared_metric_names_rank_iteration_and_phase(
    fault: Mapping[str, float], label: str, phase: str
) -> None:
    found = verdict(job(fault, rank=2, at=80))
    (incident,) = found["incidents"]  # type: ignore[misc]  # JSON
    first = incident["first"]  # type: ignore[has-type]
    assert (found["label"], first["ranks"], first["iteration"], first["phase"]) == (label, [2], 80, phase)


@pytest.mark.parametrize(("declares", "ranks"), [(NAMES, [2]), ({}, [])])
def test_a_declared_count_tells_who_was_first(declares: object, ranks: list[int]) -> None:
    arrived = job({"bad_router": 3.0}, rank=2, at=80, declares=declares)
    norms = [record(rank, i, grad_norm=1.0 if i < 80 else math.nan) for i in range(120) for rank in range(4)]
    (incident,) = verdict([*arrived, *norms])["incidents"]  # type: ignore[misc]  # JSON
    first = incident["first"]  # type: ignore[has-type]
    assert (incident["label"], first["ranks"], first["iteration"]) == ("nan", ranks, 80)  # type: ignore[has-type]


def test_what_is_not_declared_opens_no_incident() -> None:
    found = verdict(job({"router_checksum": 1, "agreed_clip": math.nan}, rank=2, at=80, declares=None))
    assert found["label"] in ("healthy", "undetermined")


def test_cutting_and_checkpoints_leave_the_bytes_of_a_declared_run() -> None:
    arrived = job({"router_checksum": 1}, rank=2, at=80)
    assert verdict(arrived, 37) == verdict(arrived)


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("x", {"kind": "curvy"}, "metrics.x.kind must be one of curve, agreed, checksum"),
        ("x", {"kind": "agreed", "phase": "later"}, "metrics.x.phase must be one of gather"),
        ("x", {"kind": "agreed", "relations": {"zz": "equal"}}, "metrics.x.relations must be one of pp"),
        ("x", {"kind": "agreed", "relations": {"dp": "same"}}, "relations.dp must be one of equal"),
        ("x", {"kind": "checksum"}, "a checksum's name ends in _checksum"),
        ("x", {"kind": "agreed", "unit": "s"}, "has kind, phase and relations only, got 'unit'"),
        ("x" * 257, {"kind": "agreed"}, "names must be at most 256 bytes, got 'xxx"),
        ("x", 7, "must have kind, phase and relations, got '7'"),
    ],
)
def test_an_impossible_contract_names_the_rule_and_the_value(name: str, fields: object, words: str) -> None:
    with pytest.raises(ContractError) as caught:
        contract_from(name, fields)
    assert words in str(caught.value)


def test_one_impossible_contract_is_counted_once_and_the_others_hold() -> None:
    arrived = job({"router_checksum": 1}, rank=2, at=80, declares={**NAMES, "x": {"kind": "curvy"}})
    found = verdict(arrived, 37)
    coverage = found["coverage"]
    assert isinstance(coverage, dict)
    assert (found["label"], coverage["rejected"]) == ("silent_drift", 1)
    (reason,) = coverage["rejected_by"]
    assert reason.startswith("contract: metrics.x.kind must be one of")


def test_what_is_declared_counts_in_what_the_telemetry_is_blind_to() -> None:
    usual = verdict(job({}, rank=2, at=80, declares=None))["coverage"]
    compute = {**NAMES, "router_checksum": {**ROUTER, "phase": "backward"}}
    state, backward = (
        verdict(job({}, rank=2, at=80, declares=each))["coverage"] for each in (NAMES, compute)
    )
    lines = [[line.partition(":")[0] for line in found["blind_to"]] for found in (usual, state, backward)]  # type: ignore[index]  # JSON
    curves, faults = "explosion and drift of the curves", "compute faults before the reduction"
    for each in lines:
        each.remove("a reduction that goes wrong alike on all ranks")  # nothing declared can show it
    peers = "a rank whose losses or norms part from those of its peers"
    for each in lines:
        each.remove(peers)  # only curves can show that
    assert lines[0] == [faults, "replicas that differ", "which rank was first", curves]
    assert lines[1] == [faults, curves]
    assert lines[2] == ["replicas that differ", curves]


def test_impossible_contracts_without_end_are_named_up_to_a_bound_in_any_order() -> None:
    faulty: list[Arrived] = [start({"x": {"kind": f"kind {i}"}}) for i in range(2 * MAX_FAULTS)]
    found = verdict([*faulty, *job({}, rank=2, at=80)], 37)
    assert found == verdict([*reversed(faulty), *job({}, rank=2, at=80)])
    reasons = found["coverage"]["rejected_by"]  # type: ignore[index]  # JSON
    assert len(reasons) == MAX_FAULTS + 1
    assert reasons[f"run_start: more than {MAX_FAULTS} different faults"] == 1


def test_an_attempt_declares_no_more_than_a_bound() -> None:
    many = {f"m{i}": {"kind": "context"} for i in range(MAX_DECLARED)}
    found = verdict([start(many), *job({"router_checksum": 1}, rank=2, at=80)])
    (reason,) = found["coverage"]["rejected_by"]  # type: ignore[index]  # JSON
    assert (found["label"], reason) == ("silent_drift", f"contract: at most {MAX_DECLARED} metrics a run")


def test_contracts_come_back_from_plain_data_and_win_over_those_built_in() -> None:
    declared = start({"loss": {"kind": "curve", "phase": "backward", "relations": {"dp": "equal"}}})
    contracts = Contracts().joined({c.name: c for c in declared_by(declared) if not isinstance(c, Exception)})
    again = Contracts.from_plain(contracts.to_plain())
    assert again == contracts
    assert again.of("loss").phase is Phase.BACKWARD
    assert set(again.of("loss").axes(Relation.EQUAL)) == {"dp"}
    assert again.of("grad_norm").kind is Kind.AGREED
    assert again.of("anything").kind is Kind.SUPPORTING
    assert declared.kind is EventKind.RUN_START
