"""Repeated computations: a rank against itself. Axes: T checks, R ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from detectors.evidence import Certainty, Check, CheckState, Evidence, Pattern
from detectors.facts import InputFacts
from detectors.fuse import fuse
from detectors.judge import AttemptJudge
from detectors.repeat import Repeat
from firstfault.telemetry import Event, EventKind
from ingest.blocks import IterationBlock

from .block_builders import (
    Findings,
    annotations_in,
    block,
    canonical,
    evidence_in,
    masked,
    mesh,
    one_at_a_time,
    run,
)

T, R = 60, 8
REPEAT = "repeat_checksum/canary"


def sums(ranks: int = R) -> Any:
    return np.random.default_rng(0).integers(1, 1 << 60, (T, 1)).repeat(ranks, axis=1)


def job(*faults: tuple[int, int, int], ranks: int = R) -> IterationBlock:
    """A job whose repeated canary differs at (rank, start, stop)."""
    again = sums(ranks)
    for rank, start, stop in faults:
        again[start:stop, rank] += 1
    return block({"canary_checksum": sums(ranks), REPEAT: again})


def findings_of(whole: IterationBlock) -> Findings:
    found = run(Repeat(), [whole])
    assert canonical(run(Repeat(), one_at_a_time(whole))) == canonical(found)
    return found


def only(whole: IterationBlock) -> Evidence:
    (evidence,) = evidence_in(findings_of(whole))
    return evidence


def check_of(whole: IterationBlock) -> Check:
    detector = Repeat()
    detector.update(whole)
    return detector.check()


def test_a_rank_that_disagrees_with_itself_is_named() -> None:
    evidence = only(job((5, 40, 41)))
    assert (evidence.ranks, evidence.last_clean, evidence.first_bad) == ((5,), 39, 40)
    assert (evidence.pattern, evidence.certainty) == (Pattern.COMPUTE_MISMATCH, Certainty.CONFIRMED)
    assert list(evidence.sights[0].ranks_R[evidence.sights[0].bad_R]) == [5]


def test_one_of_eight_at_the_first_repetition_is_confirmed() -> None:
    assert only(job((5, 0, T))).certainty is Certainty.CONFIRMED


def test_ranks_that_differ_from_each_other_agree_with_themselves() -> None:
    values = np.arange(T * R).reshape(T, R) + 1
    assert findings_of(block({"canary_checksum": values, REPEAT: values})) == {}


def test_two_ranks_are_two_pieces_of_evidence() -> None:
    first, second = evidence_in(findings_of(job((5, 40, T), (2, 50, T))))
    assert (first.ranks, second.ranks) == ((5,), (2,))


def test_a_job_in_which_most_ranks_disagree_is_not_deterministic() -> None:
    whole = job(*((rank, 10, T) for rank in range(6)))
    assert evidence_in(findings_of(whole)) == []
    (annotation,) = annotations_in(findings_of(whole))
    assert (annotation.kind, annotation.iteration) == ("nondeterministic_job", 10)
    assert check_of(whole).state is CheckState.NOT_RUN
    assert "not deterministic" in check_of(whole).why


def test_what_was_said_before_is_only_suspected_then() -> None:
    whole = job((0, 10, T), *((rank, 20, T) for rank in range(1, 6)))
    assert only(whole).certainty is Certainty.SUSPECTED


def test_a_rank_alone_must_have_agreed_for_long() -> None:
    assert evidence_in(findings_of(job((0, 30, 31), ranks=1))) == []
    assert only(job((0, 55, 56), ranks=1)).certainty is Certainty.CONFIRMED


def test_without_the_first_result_the_check_says_what_is_missing() -> None:
    whole = block({REPEAT: sums()})
    assert findings_of(whole) == {}
    assert "canary_checksum" in check_of(whole).why


def test_only_the_same_position_is_compared() -> None:
    odd = (np.arange(T) % 2 == 1)[:, None] * np.ones(R)
    whole = block({"canary_checksum": masked(sums(), odd), REPEAT: masked(sums() + 1, 1 - odd)})
    assert findings_of(whole) == {}


def test_a_canary_of_a_replica_accuses_all_that_compute_it_and_a_recomputation_one() -> None:
    pair = mesh([("dp", 2), ("tp", 2)])
    first_TR = np.repeat(np.arange(60)[:, None], 4, axis=1)
    second_TR = first_TR.copy()
    second_TR[50, 2] += 7
    for site, ranks in (("canary", (2, 3)), ("act", (2,))):
        whole = block({f"{site}_checksum": first_TR, f"repeat_checksum/{site}": second_TR}, layout=pair)
        (evidence,) = evidence_in(run(Repeat(), [whole]))
        assert (evidence.ranks, evidence.is_tie) == (ranks, len(ranks) > 1)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.6, 1.0])
def test_ranks_of_a_job_that_is_not_deterministic_are_not_accused_of_differing(share: float) -> None:
    rng = np.random.default_rng(7)
    sums = rng.integers(1, 1 << 60, (T, 1)) + rng.integers(1, 1000, (2, T, R)) * (
        rng.random((2, T, R)) < share
    )
    whole = block(
        {"canary_checksum": sums[0], REPEAT: sums[1], "canary_loss": 3.0 + (sums[0] % 997) * 1e-6},
        layout=mesh([("dp", R)]),
    )
    judge = AttemptJudge(0, 64)
    judge.update(whole)
    verdict = fuse("job", [judge.findings([], {})], InputFacts())
    assert [one for one in verdict.incidents if one.certainty is Certainty.CONFIRMED] == []
    assert any("the job is not deterministic" in line for line in verdict.coverage.blind_to)


def test_a_job_that_says_it_is_deterministic_is_believed_of_one_rank() -> None:
    start = Event(kind=EventKind.RUN_START, run="r", rank=0, iteration=0, fields={"deterministic": True})
    whole = job((0, 20, 21), ranks=1)
    assert evidence_in(run(Repeat(), [whole])) == []
    (evidence,) = evidence_in(run(Repeat(), [replace(whole, events=(start,))]))
    assert (evidence.first_bad, evidence.certainty) == (20, Certainty.CONFIRMED)
