"""A rank that falls silent, a run that stands still: who, since when, and what is no stall."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.verdict import canonical_bytes, to_json
from firstfault.telemetry import Event, EventKind, Record
from ingest.columns import batch_from_records
from ingest.decode import Decoder
from service.pipeline import Pipeline
from service.sentence import headline

from .run_builders import Json, SyntheticRun, judged

PACE_S = 2.0
EVERYONE = range(8)


def timed(run: SyntheticRun, pace_s: float = PACE_S) -> SyntheticRun:
    """Give every record the time of its iteration."""
    return run.set("time", lambda _, t, rank: 1000.0 + pace_s * t + 0.01 * rank, 0)


def without(run: SyntheticRun, start: int, ranks: Iterable[int], stop: int | None = None) -> SyntheticRun:
    """Some ranks report nothing over ``[start, stop)``."""
    gone = set(ranks)
    run.records = {
        (t, rank): record
        for (t, rank), record in run.records.items()
        if not (rank in gone and t >= start and (stop is None or t < stop))
    }
    return run


def beat(
    run: SyntheticRun,
    iteration: int,
    phases: dict[int, str],
    seconds: float,
    *,
    begin_s: float | None = None,
    every_s: float = 10.0,
) -> SyntheticRun:
    """Ranks say again and again for so long that they are in a phase of ``iteration``."""
    begin_s = 1000.0 + PACE_S * iteration if begin_s is None else begin_s
    at = 0.0
    while at <= seconds:
        for rank, phase in phases.items():
            run.tell("heartbeat", iteration, rank, phase=phase, time=begin_s + at + 0.001 * rank)
        at += every_s
    return run


def hanging(seconds: float = 400.0, suspect: int = 5, phase: str = "backward") -> SyntheticRun:
    """All ranks report up to iteration 119; at 120 one does not come to the reduction."""
    phases = dict.fromkeys(EVERYONE, "reduce_in") | {suspect: phase}
    return beat(timed(SyntheticRun(iterations=120)), 120, phases, seconds)


def only(verdict: Json) -> Json:
    (incident,) = verdict["incidents"]
    return dict(incident)


def outcome(verdict: Json) -> tuple[str, str]:
    return verdict["label"], only(verdict)["certainty"] if verdict["incidents"] else "none"


# Silence


def test_a_rank_that_falls_silent_while_the_others_go_on_is_named_with_its_last_report() -> None:
    verdict = judged(without(timed(SyntheticRun(iterations=300)), 120, [3]))
    first = only(verdict)["first"]
    assert outcome(verdict) == ("stall", "confirmed")
    assert (first["ranks"], first["iteration"], first["interval"]) == ([3], 120, [119, 120])
    assert verdict["coverage"]["silent_ranks"] == [3]
    assert verdict["coverage"]["silent_since"] == [119]
    assert verdict["judged_to_iteration"] == 299
    assert "Rank 3 (host n0) stops reporting while others go on since iteration 120." in headline(verdict)


@pytest.mark.parametrize(("length", "expected"), [(184, "none"), (230, "suspected"), (260, "confirmed")])
def test_silence_is_suspected_past_the_lateness_bound_and_confirmed_at_twice_that(
    length: int, expected: str
) -> None:
    label, certainty = outcome(judged(without(SyntheticRun(iterations=length), 120, [3])))
    assert (label, certainty) == ("stall" if expected == "confirmed" else "healthy", expected)


def test_fast_iterations_without_a_report_are_no_silence_until_time_has_passed() -> None:
    assert outcome(judged(without(timed(SyntheticRun(iterations=300), 0.1), 120, [3]))) == ("healthy", "none")


def test_a_rank_that_comes_back_has_recovered() -> None:
    verdict = judged(without(timed(SyntheticRun(iterations=300)), 100, [3], 200))
    assert outcome(verdict) == ("healthy", "recovered")
    assert only(verdict)["first"]["ranks"] == [3]
    assert "came back" in headline(verdict)


def test_ranks_that_report_seldom_are_not_silent() -> None:
    run = timed(SyntheticRun(iterations=400))
    run.records = {(t, r): one for (t, r), one in run.records.items() if r == 0 or t % 50 == 0}
    verdict = judged(run)
    assert outcome(verdict) == ("healthy", "none")
    assert verdict["coverage"]["silent_ranks"] == []


def test_ranks_that_never_report_are_not_silent() -> None:
    run = timed(SyntheticRun(iterations=300, mesh=[("pp", 4), ("dp", 2)]))
    assert judged(without(run, 0, range(6)))["incidents"] == []


def test_unequal_tails_at_the_end_are_no_stall() -> None:
    run = timed(SyntheticRun(iterations=300))
    for rank in EVERYONE:
        without(run, 300 - 8 * rank, [rank])
    assert judged(run)["incidents"] == []


def test_the_tail_of_a_finished_run_is_no_stall() -> None:
    run = without(timed(SyntheticRun(iterations=300)), 220, [3])
    assert outcome(judged(run))[1] == "suspected"
    assert judged(run.tell("run_end", 299))["incidents"] == []


def test_most_ranks_silent_at_once_stay_suspected() -> None:
    assert outcome(judged(without(timed(SyntheticRun(iterations=300)), 100, range(1, 8)))) == (
        "healthy",
        "suspected",
    )


def test_who_left_an_elastic_job_is_not_silent() -> None:
    run = without(timed(SyntheticRun(iterations=300)), 120, [7])
    run.tell("membership", 120, world_size=7, mesh=[["dp", 7]])
    verdict = judged(run)
    assert (verdict["incidents"], verdict["coverage"]["silent_ranks"]) == ([], [])


def test_a_change_of_membership_without_a_mesh_ends_the_watch_over_who_left() -> None:
    run = without(timed(SyntheticRun(iterations=300)), 120, [2])
    assert judged(run.tell("membership", 121, world_size=7))["incidents"] == []


def test_a_crash_is_no_stall_and_a_restart_ends_what_was_open() -> None:
    crashed = without(timed(SyntheticRun(iterations=150)), 140, [1, 3])
    again = timed(SyntheticRun(start=101, attempt=1, iterations=200))
    assert judged(crashed, again)["incidents"] == []

    silent = without(timed(SyntheticRun(iterations=300)), 120, [3])
    verdict = judged(silent, timed(SyntheticRun(start=201, attempt=1, iterations=150)))
    assert [one["label"] for one in verdict["attempts"]] == ["stall", "healthy"]
    assert verdict["coverage"]["silent_ranks"] == []
    assert headline(verdict).endswith("Attempt 1 shows no fault up to iteration 350.")


def test_a_nan_and_then_silence_is_the_nan_and_what_followed() -> None:
    run = SyntheticRun(iterations=300).turn_nan(120, [5])
    incident = only(judged(without(run, 123, [5])))
    assert incident["label"] == "nan"
    assert [link["label"] for link in incident["chain"]] == ["nan", "stall"]


def test_ranks_that_fall_silent_apart_are_two_incidents() -> None:
    run = without(without(timed(SyntheticRun(iterations=400)), 100, [2]), 200, [6])
    assert [one["first"]["ranks"] for one in judged(run)["incidents"]] == [[2], [6]]


# Standing still


def test_the_rank_that_does_not_reach_the_collective_is_named_and_the_others_wait() -> None:
    verdict = judged(hanging())
    incident = only(verdict)
    first = incident["first"]
    assert outcome(verdict) == ("stall", "confirmed")
    assert (first["ranks"], first["phase"], first["tie"]) == ([5], "backward", False)
    assert (first["iteration"], first["interval"]) == (120, [119, 120])
    assert first["victims"] == [0, 1, 2, 3, 4, 6, 7]
    assert "Rank 5 (host n0) keeps the other ranks waiting since iteration 120." in headline(verdict)
    assert {"dump_stacks", "read_flight_recorder"} <= {step["action"] for step in incident["advice"]}
    assert incident["causes"][0]["kind"] == "hardware"
    assert incident["causes"][0]["confidence"] < 0.6


@pytest.mark.parametrize(("seconds", "expected"), [(50, "none"), (100, "suspected"), (400, "confirmed")])
def test_a_wait_is_suspected_first_and_confirmed_before_watchdogs_end_it(
    seconds: float, expected: str
) -> None:
    assert outcome(judged(hanging(seconds)))[1] == expected


def test_a_wait_that_ends_has_recovered() -> None:
    run = SyntheticRun(iterations=200).set(
        "time", lambda _, t, rank: 1000.0 + PACE_S * t + (500.0 if t >= 120 else 0.0), 0
    )
    beat(run, 120, dict.fromkeys(EVERYONE, "reduce_in") | {5: "data"}, 490)
    verdict = judged(run)
    assert outcome(verdict) == ("healthy", "recovered")
    assert only(verdict)["first"]["iteration"] == 120
    assert "stood still before iteration 120 and went on" in headline(verdict)


def test_a_rank_whose_heartbeats_ended_is_the_one_the_others_wait_for() -> None:
    run = timed(SyntheticRun(iterations=120))
    beat(run, 117, {5: "forward"}, 0)
    beat(run, 120, {rank: "reduce_in" for rank in EVERYONE if rank != 5}, 400)
    first = only(judged(run))["first"]
    assert first["ranks"] == [5]
    assert "heartbeats ended" in first["suspects"][0]["why"]


def test_all_ranks_inside_one_collective_are_nobodys_fault() -> None:
    verdict = judged(
        beat(timed(SyntheticRun(iterations=120)), 120, dict.fromkeys(EVERYONE, "reduce_in"), 400)
    )
    incident = only(verdict)
    assert (incident["certainty"], incident["first"]["scope"]) == ("confirmed", "all")
    assert incident["causes"][0]["kind"] == "collective"
    assert "All 8 ranks stand still since iteration 120." in headline(verdict)


def test_all_ranks_outside_a_collective_may_be_busy_for_half_an_hour() -> None:
    def run(seconds: float) -> SyntheticRun:
        return beat(
            timed(SyntheticRun(iterations=120)), 119, dict.fromkeys(EVERYONE, "state"), seconds, every_s=60
        )

    assert outcome(judged(run(1500)))[1] == "suspected"
    assert outcome(judged(run(2000)))[1] == "confirmed"


def test_a_job_may_take_its_time_to_start() -> None:
    run = SyntheticRun(iterations=1)
    run.records = {}
    beat(run, 0, dict.fromkeys(EVERYONE, "forward"), 1200, every_s=60)
    assert judged(run)["incidents"][0]["certainty"] == "suspected"


def test_inside_a_replica_all_wait_for_the_one_furthest_behind() -> None:
    run = timed(SyntheticRun(iterations=120, mesh=[("dp", 4), ("tp", 2)]))
    phases = dict.fromkeys(EVERYONE, "reduce_in") | {4: "backward", 5: "forward"}
    first = only(judged(beat(run, 120, phases, 400)))["first"]
    assert (first["ranks"], 4 in first["victims"]) == ([5], True)


def test_two_replicas_behind_are_two_suspects() -> None:
    phases = dict.fromkeys(EVERYONE, "reduce_in") | {1: "data", 6: "backward"}
    first = only(judged(beat(timed(SyntheticRun(iterations=120)), 120, phases, 400)))["first"]
    assert (first["ranks"], first["tie"]) == ([1, 6], False)


def test_heartbeats_of_a_run_that_goes_on_or_has_ended_are_no_stall() -> None:
    going = timed(SyntheticRun(iterations=300))
    for t in range(0, 300, 5):
        beat(going, t, dict.fromkeys(EVERYONE, "forward"), 0)
    assert judged(going)["incidents"] == []
    assert judged(hanging().tell("run_end", 119))["incidents"] == []


def test_silent_metrics_of_a_rank_that_beats_are_no_silence() -> None:
    run = without(timed(SyntheticRun(iterations=300)), 120, [3])
    for t in range(0, 300, 5):
        beat(run, t, dict.fromkeys(EVERYONE, "forward"), 0)
    assert judged(run)["incidents"] == []


# Heartbeats that cannot be


@pytest.mark.parametrize(
    "fields",
    [
        {"rank": 2, "iteration": 10**15},
        {"rank": 2, "iteration": 130, "phase": "nonsense"},
        {"rank": 2, "iteration": 120, "phase": ["reduce_in"]},
        {"rank": 900_000, "iteration": 3},
        {"rank": 2, "iteration": 120, "phase": "reduce_in", "time": 1e300},
        {"rank": 2, "iteration": 120, "phase": "reduce_in", "time": -1e300},
        {"rank": 2, "iteration": 120, "phase": "reduce_in", "time": "never"},
    ],
)
def test_one_impossible_heartbeat_accuses_nobody_and_hides_nothing(fields: dict[str, Any]) -> None:
    run = hanging()
    assert only(judged(run.tell("heartbeat", **fields)))["first"]["ranks"] == [5]
    going = timed(SyntheticRun(iterations=200))
    assert judged(going.tell("heartbeat", **fields))["label"] == "healthy"


def test_clocks_of_hosts_that_disagree_play_no_part() -> None:
    run = timed(SyntheticRun(iterations=120))
    phases = dict.fromkeys(EVERYONE, "reduce_in") | {5: "backward"}
    for rank, phase in phases.items():
        beat(run, 120, {rank: phase}, 400, begin_s=1240.0 + 86_400.0 * (rank % 3))
    assert only(judged(run))["first"]["ranks"] == [5]
    short = timed(SyntheticRun(iterations=120))
    for rank, phase in phases.items():
        beat(short, 120, {rank: phase}, 40, begin_s=1240.0 + 86_400.0 * (rank % 3))
    assert judged(short)["incidents"] == []


# The laws


def verdict_of(pieces: Sequence[Sequence[bytes]]) -> bytes:
    pipeline, decoder = Pipeline(), Decoder()
    for at, piece in enumerate(pieces):
        pipeline.feed(decoder.decode_lines(b"\n".join(piece) + b"\n", "test", at))
        restored = Pipeline()
        restored.restore(pipeline.snapshot())
        pipeline = restored
    (verdict,) = pipeline.verdicts()
    return canonical_bytes(verdict)


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**6), pieces=st.integers(1, 6))
def test_order_doubling_cutting_and_restarts_do_not_matter(seed: int, pieces: int) -> None:
    run = without(timed(SyntheticRun(iterations=160)), 60, [3], 150)
    beat(run, 160, dict.fromkeys(EVERYONE, "reduce_in") | {5: "data", 6: "unheard of"}, 400)
    lines = run.lines()
    rng = random.Random(seed)
    keyed = [(json.loads(line)["iteration"] + rng.uniform(0, 60), rng.random(), line) for line in lines]
    keyed += [(place + rng.uniform(0, 3), rng.random(), line) for place, _, line in rng.sample(keyed, 300)]
    mixed = [line for *_, line in sorted(keyed)]
    edges = sorted(rng.randrange(len(mixed)) for _ in range(pieces - 1))
    parts = [mixed[a:b] for a, b in zip([0, *edges], [*edges, len(mixed)], strict=True)]
    assert verdict_of(parts) == verdict_of([lines])


def test_a_live_verdict_tells_of_the_standstill_before_anything_settles() -> None:
    pipeline, decoder = Pipeline(), Decoder()
    pipeline.feed(decoder.decode_lines(b"\n".join(hanging().lines()) + b"\n", "test", 0))
    live = to_json(pipeline.verdict("job", ended=False))
    assert outcome(live) == ("stall", "confirmed")
    assert only(live)["first"]["ranks"] == [5]


def test_ten_thousand_ranks_that_beat_keep_a_state_of_one_place_each() -> None:
    ranks = 10_000
    pipeline = Pipeline()
    for t in (0, 40, 79):
        pipeline.feed(
            batch_from_records(
                [
                    Record(run="job", rank=rank, iteration=t, time=1000.0 + t, metrics={"loss": 2.0 + rank})
                    for rank in range(ranks)
                ]
            )
        )
    sizes = []
    for turn in range(6):
        pipeline.feed(
            batch_from_records(
                [
                    Event(
                        kind=EventKind.HEARTBEAT,
                        run="job",
                        rank=rank,
                        iteration=80,
                        time=1090.0 + 70.0 * turn,
                        fields={"phase": "backward" if rank == 4321 else "reduce_in"},
                    )
                    for rank in range(ranks)
                ]
            )
        )
        sizes.append(len(pipeline.snapshot()))
    first = only(to_json(pipeline.verdict("job")))["first"]
    assert (first["ranks"], first["victim_count"], len(first["victims"])) == ([4321], ranks - 1, 1000)
    assert sizes[-1] < 1.2 * sizes[0]


@pytest.mark.parametrize(("seconds", "expected"), [(900.0, "suspected"), (2000.0, "confirmed")])
def test_a_rank_that_saves_for_all_after_its_update_is_borne_as_long_as_a_checkpoint_takes(
    seconds: float, expected: str
) -> None:
    run = beat(timed(SyntheticRun(iterations=120)), 119, {0: "state"}, seconds)
    verdict = judged(beat(run, 120, dict.fromkeys(range(1, 8), "reduce_in"), seconds))
    assert outcome(verdict) == ("stall" if expected == "confirmed" else "healthy", expected)
    assert only(verdict)["first"]["ranks"] == [0]
