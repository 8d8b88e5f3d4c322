"""Replicas that train apart between outer steps are no fault; one that differs where they meet is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detectors.checksum_vote import ChecksumVote
from detectors.evidence import Certainty, Evidence
from ingest.blocks import IterationBlock

from .block_builders import block, canonical, data_parallel, evidence_in, one_at_a_time, random_cuts, run

OUTER_EVERY, ITERATIONS = 10, 120


def local_training(ranks: int, every: int = 1, start: int = 0) -> tuple[Any, Any]:
    """(iterations, checksums) of ranks that are equal behind every tenth iteration alone."""
    at_T = np.arange(start, ITERATIONS, every)
    is_outer_T1 = ((at_T + 1) % OUTER_EVERY == 0)[:, None]
    own_TR = 1000 * at_T[:, None] + np.arange(1, ranks + 1)
    return at_T, np.where(is_outer_T1, 1000 * at_T[:, None], own_TR)


def found(whole: IterationBlock) -> list[Evidence]:
    """What opens incidents, the same however the log is cut."""
    findings = run(ChecksumVote(), [whole])
    cuttings = [one_at_a_time(whole), random_cuts(whole, np.random.default_rng(1))]
    assert all(canonical(run(ChecksumVote(), pieces)) == canonical(findings) for pieces in cuttings)
    return [one for one in evidence_in(findings) if not one.supporting]


@pytest.mark.parametrize("ranks", [2, 8])
@pytest.mark.parametrize(("every", "start"), [(1, 0), (1, 9), (5, 4), (3, 2), (10, 9)])
def test_ranks_that_meet_at_outer_steps_alone_are_no_incident(ranks: int, every: int, start: int) -> None:
    at_T, sums_TR = local_training(ranks, every, start)
    assert found(block(param_checksum=sums_TR, iterations=at_T, layout=data_parallel(ranks))) == []


@pytest.mark.parametrize("every", [1, 5])
def test_a_rank_that_differs_where_all_meet_is_named_with_the_steps_between(every: int) -> None:
    at_T, sums_TR = local_training(8, every, every - 1)
    sums_TR[np.flatnonzero(at_T == 59), 3] = 7
    (evidence,) = found(block(param_checksum=sums_TR, iterations=at_T, layout=data_parallel(8)))
    assert (evidence.ranks, evidence.last_clean, evidence.first_bad) == ((3,), 49, 59)
    assert evidence.certainty is Certainty.CONFIRMED


def test_replicas_that_part_for_good_or_are_equal_mostly_are_a_fault() -> None:
    at_T = np.arange(ITERATIONS)
    equal_TR = np.repeat(at_T[:, None] + 1, 2, axis=1)
    for apart in (at_T >= 60, np.isin(at_T, (40, 80))):
        sums_TR = equal_TR.copy()
        sums_TR[apart, 1] += 5000
        (evidence,) = found(block(param_checksum=sums_TR, layout=data_parallel(2)))
        assert (evidence.ranks, evidence.is_tie) == ((0, 1), True)
        assert evidence.certainty is Certainty.CONFIRMED
