"""Ranks with data of their own part from their peers one after another: no rank is at fault for that."""

from __future__ import annotations

import numpy as np

from detectors.crowd import doubt_crowds
from detectors.difference import join_twins
from detectors.evidence import Certainty, Direction, Evidence, Pattern
from detectors.peer_outlier import PeerOutlier
from firstfault.telemetry import WHOLE_ITERATION
from ingest.blocks import Floats, IterationBlock, NumberBlock

from .evidence_builders import mesh


def test_the_shifts_of_three_ranks_are_suspicions() -> None:
    found = doubt_crowds([_shift(1, 100), _shift(4, 900), _shift(6, 2000)])

    assert {one.certainty for one in found} == {Certainty.SUSPECTED}
    assert "different kinds" in str(found[0].detail["why_not_confirmed"])


def test_the_level_of_a_run_whose_ranks_are_a_crowd_is_a_suspicion() -> None:
    level = _shift(0, 1500, pattern=Pattern.SHARP_SLOW_DEGRADE, ranks=())
    found = doubt_crowds([_shift(1, 100), _shift(4, 900), level, _shift(6, 2000)])

    assert {one.certainty for one in found} == {Certainty.SUSPECTED}
    assert doubt_crowds([_shift(1, 100), level])[1].certainty is Certainty.CONFIRMED


def test_ranks_of_one_host_among_many_are_one_cause() -> None:
    together = [_shift(1, 100), _shift(4, 120), _shift(6, 140)]
    eight_of_64 = {rank: f"node-{rank // 8}" for rank in range(64)}

    assert {one.certainty for one in doubt_crowds(together, eight_of_64)} == {Certainty.CONFIRMED}
    beside = [*together, _shift(20, 150)]
    assert {one.certainty for one in doubt_crowds(beside, eight_of_64)} == {Certainty.SUSPECTED}
    four_of_8 = {rank: "a" if rank in (1, 4, 6, 7) else "b" for rank in range(8)}
    assert {one.certainty for one in doubt_crowds(together, four_of_8)} == {Certainty.SUSPECTED}


def test_the_shifts_of_two_ranks_stand() -> None:
    found = doubt_crowds([_shift(1, 100), _shift(4, 900), _shift(4, 1500)])

    assert {one.certainty for one in found} == {Certainty.CONFIRMED}


def test_two_ranks_that_part_at_once_are_suspicions_unless_they_share_a_model() -> None:
    at_once = [_shift(1, 100), _shift(4, 103)]
    whole = mesh(("dp", 8))
    parts = mesh(("dp", 2), ("tp", 4))

    assert {one.certainty for one in doubt_crowds(at_once)} == {Certainty.SUSPECTED}
    assert {one.certainty for one in doubt_crowds(at_once, layout=whole)} == {Certainty.SUSPECTED}
    assert {one.certainty for one in doubt_crowds(at_once, layout=parts)} == {Certainty.CONFIRMED}


def test_ranks_that_an_explosion_scatters_cast_no_doubt_on_the_one_that_began() -> None:
    loud = _shift(0, 500, pattern=Pattern.RUNAWAY, ranks=())
    found = doubt_crowds([_shift(1, 100), loud, _shift(4, 600), _shift(6, 700)])

    assert all(one.certainty is Certainty.CONFIRMED for one in found)


def test_ranks_whose_levels_wander_are_not_confirmed() -> None:
    rng = np.random.default_rng(12)
    wander_TR = np.cumsum(rng.normal(0.0, 0.005, (3000, 8)), axis=0)
    norm_TR = np.exp(rng.normal(0.0, 0.1, (3000, 8)) + wander_TR)

    found = doubt_crowds(_found(norm_TR))

    assert found
    assert all(one.certainty is not Certainty.CONFIRMED for one in found)


def test_a_rank_is_confirmed_among_peers_whose_levels_wander_a_little() -> None:
    rng = np.random.default_rng(12)
    wander_TR = 0.02 * np.sin(np.arange(3000)[:, None] / 300.0 + np.arange(8))
    norm_TR = np.exp(rng.normal(0.0, 0.1, (3000, 8)) + wander_TR)
    norm_TR[2000:, 5] *= 1.2

    found = [one for one in doubt_crowds(_found(norm_TR)) if one.certainty is Certainty.CONFIRMED]

    assert [one.ranks for one in found] == [(5,)]


def test_ranks_that_part_inside_one_interval_are_named_together() -> None:
    root, beside, later = _shift(1, 100), _shift(4, 103), _shift(6, 900)

    assert join_twins(root, [root, beside, later]).ranks == (1, 4)


def test_the_interval_of_a_level_that_goes_away_by_and_by_mostly_holds_its_beginning() -> None:
    inside = 0
    for seed in range(4):
        rng = np.random.default_rng([seed, 4])
        norm_TR = np.exp(rng.normal(0.0, 0.1, (2000, 8)))
        norm_TR[1000:, 3] *= np.exp(np.linspace(0.0, 0.25, 1000))
        (one,) = (one for one in _found(norm_TR) if one.certainty is Certainty.CONFIRMED)
        assert one.ranks == (3,)
        assert one.last_clean is not None
        inside += one.last_clean < 1000 <= one.first_bad

    assert inside >= 3


def _found(norm_TR: Floats) -> list[Evidence]:
    iterations, ranks = norm_TR.shape
    block = IterationBlock(
        run="r",
        attempt=0,
        iteration_T=np.arange(iterations),
        microbatch_T=np.full(iterations, WHOLE_ITERATION, np.int32),
        ranks_R=np.arange(ranks, dtype=np.int32),
        numbers={"local_grad_norm": NumberBlock(norm_TR, np.ones(norm_TR.shape, np.bool_))},
    )
    found = {one.key: one for one in PeerOutlier().update(block)}
    return [one for one in found.values() if isinstance(one, Evidence)]


def _shift(
    rank: int, at: int, *, pattern: Pattern = Pattern.PEER_DRIFT, ranks: tuple[int, ...] | None = None
) -> Evidence:
    return Evidence(
        detector="peer_outlier",
        key=f"{rank}:{at}",
        pattern=pattern,
        certainty=Certainty.CONFIRMED,
        metric="loss",
        attempt=0,
        iteration=at,
        first_bad=at + 5,
        last_clean=at - 5,
        alarm_iteration=at + 20,
        ranks=(rank,) if ranks is None else ranks,
        statistic=20.0,
        threshold=12.0,
        direction=Direction.UP,
    )
