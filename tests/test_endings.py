"""Processes that die of an exception: whose doing it was, and which runs ended well nevertheless."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detectors.verdict import canonical_bytes
from firstfault.last_words import ending
from ingest.decode import Decoder
from service.pipeline import Pipeline
from service.sentence import headline

from .run_builders import SyntheticRun, judged
from .test_stall import beat, only, outcome, timed, without

LOST = "[gloo/transport/tcp/pair.cc] Connection closed by peer [10.0.0.3]:4711"


def died(
    run: SyntheticRun,
    rank: int,
    error: BaseException,
    *,
    at: int = 120,
    phase: str = "forward",
    where: str = "",
) -> SyntheticRun:
    """What the probe of a rank says as an exception ends it."""
    return run.tell("hardware", at, rank, **ending("exception", error, where, phase, rank))


def run_of(iterations: int = 120) -> SyntheticRun:
    return timed(SyntheticRun(iterations=iterations))


def test_the_rank_that_an_exception_ended_is_named_with_it_and_not_those_that_lost_it() -> None:
    run = died(run_of(), 3, ValueError("bad batch: 7"))
    for rank in (0, 1, 2, 4, 5, 6, 7):
        died(run, rank, RuntimeError(LOST), phase="reduce_in")
    verdict = judged(run)
    incident = only(verdict)
    assert outcome(verdict) == ("stall", "confirmed")
    first = incident["first"]
    assert (first["ranks"], first["iteration"], first["phase"]) == ([3], 120, "forward")
    assert headline(verdict).endswith(
        "stall. Rank 3 (host n0) dies of ValueError in forward (bad batch: 7) at iteration 120."
    )
    assert incident["causes"][0]["kind"] == "software"
    assert "ValueError: bad batch: 7" in incident["causes"][0]["because"][0]
    assert incident["advice"][0]["action"] == "read_traceback"


def test_a_death_that_others_wait_for_is_one_incident() -> None:
    run = died(run_of(), 3, ValueError("bad batch"))
    beat(run, 120, dict.fromkeys((0, 1, 2, 4, 5, 6, 7), "reduce_in"), 400)
    beat(run, 120, {3: "forward"}, 0)
    incident = only(judged(run))
    assert incident["first"]["ranks"] == [3]
    assert {one["metric"] for one in incident["evidence"]} == {"heartbeat", "last_words"}
    assert "ValueError: bad batch" in incident["causes"][0]["because"][0]


def test_of_a_process_that_was_killed_the_others_tell_by_losing_it() -> None:
    run = run_of()
    for rank in (0, 1, 2, 3, 4, 6, 7):
        died(run, rank, RuntimeError(LOST), phase="reduce_in")
    verdict = judged(run)
    assert only(verdict)["first"]["ranks"] == [5]
    assert "Rank 5 (host n0) ends without a word, of which the others die, at iteration 120." in headline(
        verdict
    )


def test_one_exception_on_all_ranks_is_the_programs_and_nobodys() -> None:
    run = run_of()
    for rank in range(8):
        died(run, rank, TypeError("forward() takes 2 arguments"))
    incident = only(judged(run))
    assert (incident["first"]["ranks"], incident["first"]["scope"]) == ([], "all")
    assert incident["causes"][0]["kind"] == "software"


def test_an_exception_that_speaks_of_the_device_accuses_it() -> None:
    run = died(run_of(), 3, RuntimeError("CUDA error: uncorrectable ECC error encountered"))
    assert only(judged(run))["causes"][0]["kind"] == "hardware"


@pytest.mark.parametrize(
    "run",
    [
        died(run_of(), 3, ValueError("late")).tell("run_end", 119),
        died(run_of(), 3, KeyboardInterrupt()),
        died(run_of(), 3, ValueError("prefetch"), where="loader"),
        died(run_of(), 3, ValueError("caught"), at=60),
        died(without(run_of(), 60, [7]), 7, ValueError("left"), at=60).tell("membership", 61, world_size=7),
        run_of().tell("hardware", 120, 3, **ending("signal", None, "SIGTERM", "forward", 3)),
    ],
    ids=["whole", "by hand", "thread", "went on", "left", "preempted"],
)
def test_who_ended_on_purpose_or_went_on_is_no_stall(run: SyntheticRun) -> None:
    assert judged(run)["incidents"] == []


def test_a_restart_after_a_death_shows_no_fault_and_the_first_attempt_keeps_its_own() -> None:
    again = timed(SyntheticRun(start=101, attempt=1, iterations=100))
    verdict = judged(died(run_of(), 3, ValueError("bad batch")), again)
    assert [one["label"] for one in verdict["attempts"]] == ["stall", "healthy"]
    assert headline(verdict).endswith("Attempt 1 shows no fault up to iteration 200.")


def test_a_nan_that_ends_the_run_by_an_exception_is_the_nan() -> None:
    run = timed(SyntheticRun(iterations=121).turn_nan(120, [5]))
    incident = only(judged(died(run, 5, FloatingPointError("loss is nan"), phase="state")))
    assert [link["label"] for link in incident["chain"]] == ["nan", "stall"]


@pytest.mark.parametrize(
    "fields",
    [
        {"code": "X" * 5000, "text": "a: {dies} \x1b[31m" * 99},
        {"code": 7, "phase": []},
        {"ended": "yes", "code": "E"},
    ],
    ids=["long", "of other types", "another flag"],
)
def test_last_words_of_any_form_are_told_in_one_line(fields: dict[str, Any]) -> None:
    told = {**ending("exception", ValueError("x"), "", "forward", 3), **fields}
    sentence = headline(judged(run_of().tell("hardware", 120, 3, **told)))
    assert len(sentence) < 400
    assert sentence.isprintable()
    assert "{" not in sentence


def verdict_of(pieces: list[list[bytes]]) -> bytes:
    pipeline, decoder = Pipeline(), Decoder()
    for at, piece in enumerate(pieces):
        pipeline.feed(decoder.decode_lines(b"\n".join(piece) + b"\n", "test", at))
        restored = Pipeline()
        restored.restore(pipeline.snapshot())
        pipeline = restored
    (verdict,) = pipeline.verdicts()
    return canonical_bytes(verdict)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 10**6), pieces=st.integers(1, 5))
def test_order_doubling_cutting_and_restarts_do_not_matter(seed: int, pieces: int) -> None:
    run = without(run_of(140), 125, [3])
    died(run, 3, ValueError("bad batch"), at=125)
    died(run, 3, ValueError("and in its handler"), at=125)
    for rank in (0, 1, 2):
        died(run, rank, RuntimeError(LOST), at=139, phase="reduce_in")
    lines = run.lines()
    rng = random.Random(seed)
    keyed = [(json.loads(line)["iteration"] + rng.uniform(0, 60), rng.random(), line) for line in lines]
    keyed += [(place + rng.uniform(0, 3), rng.random(), line) for place, _, line in rng.sample(keyed, 300)]
    mixed = [line for *_, line in sorted(keyed)]
    edges = sorted(rng.randrange(len(mixed)) for _ in range(pieces - 1))
    parts = [mixed[a:b] for a, b in zip([0, *edges], [*edges, len(mixed)], strict=True)]
    assert verdict_of(parts) == verdict_of([lines])
