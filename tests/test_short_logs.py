"""Curves as people post them: three records, losses around zero, of policies and of games."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.evidence import Certainty, Evidence
from detectors.explosion import Explosion
from detectors.objective import doubt_objectives

from .block_builders import block, canonical, evidence_in, one_at_a_time, run
from .curve_builders import Series
from .evidence_builders import drift, explosion, nonfinite, sight


def judged(start: int = 0, /, **columns: list[float] | Series) -> list[Evidence]:
    """The evidence of one unnamed rank's curves, after checking that cutting does not change it."""
    length = len(next(iter(columns.values())))
    whole = block(columns, iterations=start + np.arange(length), ranks=[-1])
    found = run(Explosion(), [whole])
    assert canonical(run(Explosion(), one_at_a_time(whole))) == canonical(found)
    return evidence_in(found)


def certainties(found: list[Evidence]) -> list[Certainty]:
    return [one.certainty for one in found]


def test_three_records_in_which_norm_and_loss_part_together_are_an_explosion() -> None:
    (found,) = judged(11446, loss=[3.06, 3.11, 7.71], grad_norm=[13e3, 262e3, 255e3])
    assert (found.certainty, found.metric, found.iteration) == (Certainty.CONFIRMED, "grad_norm", 11447)


@pytest.mark.parametrize(
    ("start", "loss", "norm"),
    [
        (0, [3.06, 3.11, 7.71], [13e3, 262e3, 255e3]),
        (9000, [3.06, 3.11, 3.20], [13e3, 262e3, 255e3]),
        (9000, [3.06, 3.11, 7.71], [13e3, 14e3, 262e3]),
        (9000, [3.06, 7.71, 3.11], [13e3, 262e3, 255e3]),
        (9000, [3.06, 7.71, 7.71], [13e3, 14e3, 262e3]),
    ],
    ids=["warm-up", "norm alone", "one bad batch", "loss back", "loss first"],
)
def test_less_than_that_is_none(start: int, loss: list[float], norm: list[float]) -> None:
    assert Certainty.CONFIRMED not in certainties(judged(start, loss=loss, grad_norm=norm))


def test_a_jump_after_three_points_is_suspected_and_after_two_never_more() -> None:
    jumped = judged(loss=[2.776, 2.773, 2.768, 7.34, 8.72, 7.65, 7.19, 6.85])
    assert certainties(jumped) == [Certainty.SUSPECTED] and jumped[0].iteration == 3
    assert Certainty.CONFIRMED not in certainties(judged(loss=[2.0, 2.01] + [9.0] * 200))


@pytest.mark.parametrize("seed", range(8))
def test_a_loss_that_begins_at_zero_may_grow_as_a_penalty_does(seed: int) -> None:
    rng = np.random.default_rng(seed)
    penalty = 0.04 * (1 - np.exp(-np.arange(400) / 120)) * np.exp(rng.normal(0, 0.3, 400))
    loss = np.concatenate(([0.0, 0.0], np.round(penalty, 4)))
    assert certainties(judged(loss=loss)) == []


@pytest.mark.parametrize("seed", range(12))
def test_noise_of_the_size_of_the_level_makes_no_explosion_of_a_low_start(seed: int) -> None:
    scattered = np.exp(np.random.default_rng(seed).normal(-1, 1.0, 400))
    assert Certainty.CONFIRMED not in certainties(judged(loss=scattered))


def test_one_low_norm_at_the_start_makes_no_explosion_of_the_usual_ones() -> None:
    norm = np.exp(np.random.default_rng(6).normal(2, 0.8, 200))
    norm[3] = 0.3
    assert Certainty.CONFIRMED not in certainties(judged(grad_norm=norm))


@pytest.mark.parametrize("metric", ["reward", "train/policy_loss", "rollout/ep_rew_mean", "D_loss", "loss_G"])
def test_what_only_the_height_of_a_policys_or_a_games_loss_tells_is_doubted(metric: str) -> None:
    grown, shifted = explosion(700, metric="loss"), drift(900, 800, 950)
    doubted = doubt_objectives([grown, shifted], ["loss", metric])
    assert certainties(doubted) == [Certainty.SUSPECTED, Certainty.SUSPECTED]
    assert "rises" in str(doubted[0].detail["why_not_confirmed"])


@pytest.mark.parametrize(
    "loud",
    [explosion(690, metric="grad_norm"), nonfinite(sight("loss", [0], iteration=720))],
    ids=["gradients", "non-finite"],
)
def test_beside_gradients_that_explode_or_a_nan_it_is_believed(loud: Evidence) -> None:
    assert (
        certainties(doubt_objectives([explosion(700, metric="loss"), loud], ["reward"]))[0]
        is Certainty.CONFIRMED
    )


def test_without_such_names_it_is_believed() -> None:
    assert certainties(doubt_objectives([explosion(700, metric="loss")], ["loss", "reader_cost"])) == [
        "confirmed"
    ]
