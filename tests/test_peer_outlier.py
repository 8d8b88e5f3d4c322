"""A rank that parts from its peers is named; what moves many of them, or comes back, is not held against one.

Axes: T iterations, R ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detectors import peer_fold
from detectors.crowd import doubt_crowds
from detectors.evidence import Certainty, CheckState, Evidence
from detectors.kernels import Fold
from detectors.peer_outlier import PeerOutlier, PeerOutlierConfig
from firstfault.telemetry import EventKind
from ingest.blocks import IterationBlock

from .block_builders import (
    annotations_in,
    block,
    canonical,
    data_parallel,
    event,
    evidence_in,
    mesh,
    random_cuts,
    run,
)

SIGMA = 0.1


def norms(iterations: int = 800, ranks: int = 8, seed: int = 0, correlation: float = 0.0) -> Any:
    """Local gradient norms with a common course and noise of each rank."""
    rng = np.random.default_rng([seed, 4])
    noise_TR = rng.normal(0.0, SIGMA, (iterations, ranks))
    for t in range(1, iterations if correlation else 0):
        noise_TR[t] = correlation * noise_TR[t - 1] + np.sqrt(1 - correlation**2) * noise_TR[t]
    level_T1 = (1.0 + 3.0 * np.exp(-np.arange(iterations) / 100))[:, None]
    return level_T1 * np.exp(rng.normal(0.0, 0.1, (iterations, 1)) + noise_TR)


def judged(value_TR: Any, metric: str = "local_grad_norm", **more: Any) -> list[Evidence]:
    found: list[Evidence] = evidence_in(run(PeerOutlier(), [block({metric: value_TR}, **more)]))
    return found


def lasting(found: list[Evidence]) -> list[Evidence]:
    """Without what recovered: healthy ranks show such suspicions at a stated rate."""
    return [one for one in found if one.certainty is not Certainty.RECOVERED]


def shifted(value_TR: Any, rank: int, start: int, factor: float, stop: int | None = None) -> Any:
    value_TR = value_TR.copy()
    value_TR[start:stop, rank] *= factor
    return value_TR


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("factor", "budget"), [(1.1, 320), (1.12, 120), (0.85, 80), (2.0, 40)])
def test_a_lasting_shift_is_confirmed_on_the_right_rank_with_the_onset_inside(
    factor: float, budget: int, seed: int
) -> None:
    (found,) = lasting(judged(shifted(norms(iterations=1000, seed=seed), 3, 500, factor)))

    assert (found.certainty, found.ranks, found.is_tie) == (Certainty.CONFIRMED, (3,), False)
    assert found.last_clean is not None
    assert found.last_clean < 500 <= found.first_bad
    assert found.alarm_iteration >= 500
    judged_at = found.detail["judged_at"]
    assert isinstance(judged_at, int)
    assert judged_at <= 500 + budget
    told = found.detail["relative_shift"]
    assert isinstance(told, float)
    assert np.sign(told) == np.sign(factor - 1)


def test_a_suspicion_that_has_not_lasted_yet_stays_one() -> None:
    (found,) = judged(shifted(norms(530), 3, 515, 1.6))
    assert found.certainty is Certainty.SUSPECTED


def test_one_wild_step_is_told_of_its_rank_and_recovers() -> None:
    (found,) = judged(shifted(norms(), 5, 400, 8.0, stop=401))
    assert (found.certainty, found.ranks, found.iteration) == (Certainty.RECOVERED, (5,), 400)
    assert (found.last_clean, found.first_bad) == (399, 400)


def test_a_rank_that_comes_back_is_told_so() -> None:
    (found,) = judged(shifted(norms(1200), 2, 400, 1.5, stop=700))
    assert found.certainty is Certainty.CONFIRMED
    back = found.detail["equal_again_at"]
    assert isinstance(back, int)
    assert 700 <= back < 1000


def test_two_ranks_cannot_be_told_apart() -> None:
    (found,) = judged(shifted(norms(ranks=2), 1, 400, 1.5))
    assert (found.certainty, found.ranks, found.is_tie) == (Certainty.CONFIRMED, (0, 1), True)


def test_of_three_ranks_the_odd_one_is_named() -> None:
    (found,) = judged(shifted(norms(ranks=3), 1, 400, 1.5))
    assert (found.ranks, found.is_tie) == ((1,), False)


def test_two_ranks_that_go_wrong_are_both_named() -> None:
    found = judged(shifted(shifted(norms(), 1, 400, 1.4), 6, 500, 1.4))
    assert {one.ranks for one in found if one.certainty is Certainty.CONFIRMED} == {(1,), (6,)}


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.6])
def test_healthy_ranks_are_confirmed_at_less_than_the_stated_rate(correlation: float) -> None:
    found = judged(norms(20_000, seed=2, correlation=correlation))
    assert [one for one in found if one.certainty is Certainty.CONFIRMED] == []
    assert len(found) <= 6  # two in 20 000 are expected at most


def test_ranks_that_were_never_equal_are_healthy() -> None:
    rng = np.random.default_rng(2)
    levels_R, noises_R = np.exp(rng.normal(0, 0.5, 8)), np.linspace(0.5, 2.0, 8)
    value_TR = norms(2000)
    middle_T1 = np.median(value_TR, axis=1, keepdims=True)
    assert lasting(judged(levels_R * middle_T1 * (value_TR / middle_T1) ** noises_R)) == []


def test_a_rank_that_is_off_from_the_beginning_is_suspected_where_its_peers_are_alike() -> None:
    (found,) = judged(shifted(norms(300), 3, 0, 1.15))

    assert (found.ranks, found.certainty, found.detail["kind"]) == ((3,), Certainty.SUSPECTED, "level")
    assert (found.first_bad, found.last_clean) == (0, None)


def test_of_three_ranks_or_of_ranks_that_differ_none_is_odd_from_the_beginning() -> None:
    assert judged(shifted(norms(300, ranks=3), 1, 0, 3.0)) == []

    own_R = np.exp(np.random.default_rng(3).normal(0.0, 0.3, 8))
    assert judged(shifted(norms(300) * own_R, 3, 0, 1.3)) == []


@pytest.mark.parametrize("sigmas", [8.0, -8.0])
def test_one_step_of_eight_sigmas_is_told_where_noise_is_gaussian(sigmas: float) -> None:
    value_TR = norms(700, seed=6)
    (found,) = judged(shifted(value_TR, 5, 600, np.exp(1.1 * SIGMA * sigmas), stop=601))
    assert (found.ranks, found.iteration, found.detail["kind"]) == ((5,), 600, "step")


def test_heavy_tails_raise_the_gate_of_a_step() -> None:
    noise_TR = np.random.default_rng(7).standard_t(4.0, (1200, 8)) / np.sqrt(2.0)
    assert lasting(judged(np.exp(SIGMA * noise_TR))) == []
    assert len(judged(np.exp(SIGMA * noise_TR))) <= 1  # at the gate of Gaussian noise there were 15 steps


def test_noise_that_grows_for_all_ranks_is_healthy() -> None:
    value_TR = norms(1500)
    middle_T1 = np.median(value_TR, axis=1, keepdims=True)
    value_TR[700:] = (middle_T1 * (value_TR / middle_T1) ** 2.5)[700:]
    assert [one for one in judged(value_TR) if one.certainty is Certainty.CONFIRMED] == []


def test_ranks_that_all_move_are_explained_and_not_accused() -> None:
    value_TR = norms(1500)
    value_TR[700:] *= np.exp(np.random.default_rng(3).normal(0, 0.2, 8))
    findings = run(PeerOutlier(), [block(local_grad_norm=value_TR)])
    assert [one for one in evidence_in(findings) if one.certainty is Certainty.CONFIRMED] == []
    assert [note.kind for note in annotations_in(findings)] == ["peers_moved_together"]


@pytest.mark.parametrize("seed", range(3))
def test_ranks_that_read_other_data_from_one_moment_on_are_not_accused(seed: int) -> None:
    value_TR = norms(900, seed=seed)
    for rank, factor in ((1, 1.25), (4, 1.15), (6, 1.1)):
        value_TR = shifted(value_TR, rank, 600, factor)
    sure = [one for one in doubt_crowds(judged(value_TR)) if one.certainty is Certainty.CONFIRMED]
    assert sure == []


@pytest.mark.parametrize("kind", [EventKind.DATA_CHANGE, EventKind.BATCH_SIZE, EventKind.MEMBERSHIP])
def test_a_rank_that_differs_from_a_change_of_data_on_is_not_accused(kind: EventKind) -> None:
    value_TR = shifted(norms(), 3, 400, 1.5)
    assert judged(value_TR, events=[event(kind, 400)]) == []
    assert judged(value_TR)


def test_peers_are_those_of_the_layout() -> None:
    value_TR = norms(ranks=8)
    value_TR[:, 1::2] *= np.linspace(1.0, 3.0, 800)[:, None]  # another part of the model: its own course
    layout = mesh([("dp", 4), ("tp", 2)])
    assert judged(value_TR, layout=layout) == []

    (found,) = judged(shifted(value_TR, 5, 400, 1.5), layout=layout)
    assert (found.ranks, found.detail["peers"]) == ((5,), 3)


def test_another_layout_begins_anew() -> None:
    first = block(local_grad_norm=norms(400), layout=data_parallel(8))
    later = block(
        local_grad_norm=shifted(norms(400, seed=4), 3, 0, 1.5),
        iterations=range(400, 800),
        layout=mesh([("dp", 8), ("tp", 1)]),
    )
    (found,) = evidence_in(run(PeerOutlier(), [first, later]))
    assert (found.detail["kind"], found.first_bad) == ("level", 400)  # off from its beginning, not shifted


def test_a_norm_called_global_that_every_rank_has_its_own_of_is_compared() -> None:
    (found,) = lasting(judged(shifted(norms(), 3, 400, 1.5), metric="grad_norm"))
    assert found.ranks == (3,)


def test_a_reduced_norm_is_left_to_agreement() -> None:
    value_TR = np.repeat(norms()[:, :1], 8, axis=1)
    assert judged(shifted(value_TR, 3, 400, 1.5), metric="grad_norm") == []


def test_what_explodes_scatters_without_a_rank_to_blame() -> None:
    value_TR = norms()
    rng = np.random.default_rng(5)
    value_TR[400:] *= np.exp(np.minimum(0.2 * np.arange(400), 20)[:, None] + rng.normal(0, 1.5, (400, 8)))
    assert [one for one in judged(value_TR) if one.certainty is Certainty.CONFIRMED] == []


def test_values_that_are_no_numbers_are_left_out() -> None:
    value_TR = norms()
    value_TR[300:304] = np.inf  # skipped steps
    value_TR[350, 2] = np.nan
    value_TR[360:370, 1] = 0.0
    assert lasting(judged(value_TR)) == []


def test_it_says_why_it_could_not_run() -> None:
    def why(value_TR: Any, metric: str = "loss") -> str:
        detector = PeerOutlier()
        detector.update(block({metric: value_TR}))
        assert detector.check().state is CheckState.NOT_RUN
        return detector.check().why

    assert why(norms(20)) == "no two peers reported the same metric at 48 positions"
    assert why(norms(200, ranks=1)) == "one rank reports: it has no peers"
    assert why(norms(200), "weather") == "no loss and no norm of single ranks was reported"


def test_the_compiled_fold_gives_the_bits_of_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    value_TR = shifted(shifted(norms(ranks=6), 1, 300, 1.3), 4, 500, 9.0, stop=501)
    whole: IterationBlock = block(local_grad_norm=value_TR)
    found = []
    for after in (0, 10**9, 1500):
        fold = Fold(peer_fold.FOLD.function, *peer_fold.FOLD.parts, compile_after_points=after)
        monkeypatch.setattr(peer_fold, "FOLD", fold)
        detector = PeerOutlier()
        findings = run(detector, random_cuts(whole, np.random.default_rng(1)), finish=False)
        found.append(canonical((findings, detector.snapshot())))
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    "setting", ["iterations_per_alarm", "least_shift", "iterations_per_step", "attempts_per_level"]
)
def test_settings_out_of_range_are_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        PeerOutlierConfig(**{setting: 0})


def test_a_shift_far_beyond_the_noise_is_found_however_small_the_noise() -> None:
    value_TR = norms()
    middle_T1 = np.median(value_TR, axis=1, keepdims=True)
    quiet_TR = middle_T1 * (value_TR / middle_T1) ** 0.01
    (found,) = judged(shifted(quiet_TR, 3, 400, 1.05))
    assert (found.certainty, found.ranks) == (Certainty.CONFIRMED, (3,))
    assert found.detail["relative_shift"] == pytest.approx(0.05, abs=0.002)
    assert judged(shifted(quiet_TR, 3, 400, 1.004)) == []
