"""What is noted of a curve though it is no incident: jumps that recover, a short log whose steps got slower.

Axes: T iterations.
"""

from __future__ import annotations

import numpy as np
import pytest

from detectors.evidence import Annotation
from detectors.explosion import Explosion
from detectors.explosion_jump import MAX_TOLD
from detectors.slowdown import Slowdown
from ingest.blocks import Floats

from .block_builders import Findings, block, canonical, random_cuts, run

STEPS = 400


def falling_loss(seed: int = 0) -> Floats:
    """Ten down to two, so fast at first that the spread of 32 points is that of the fall."""
    rng = np.random.default_rng(seed)
    return 2.0 + 8.0 * np.exp(-np.arange(STEPS) / 25.0) + rng.normal(0.0, 0.08, STEPS)


def spikes(findings: Findings) -> list[Annotation]:
    return [one for one in findings.values() if isinstance(one, Annotation) and one.kind == "spike_recovered"]


def slower(step_time_s: list[float], **more: Floats) -> list[Annotation]:
    times = np.array(step_time_s)[:, np.newaxis]
    found = run(Slowdown(), [block({"step_time_s": times, **more})])
    return [one for one in found.values() if isinstance(one, Annotation) and one.kind == "slower_steps"]


@pytest.mark.parametrize("at", [60, 200])
def test_a_jump_of_two_points_is_noted_once_while_the_loss_falls_and_later(at: int) -> None:
    loss_T = falling_loss()
    loss_T[at : at + 2] *= (1.6, 1.2)

    found = spikes(run(Explosion(), [block({"loss": loss_T[:, np.newaxis]})]))

    assert [one.iteration for one in found] == [at]
    assert found[0].detail["duration_points"] in {1, 2}


def test_a_step_that_stays_is_no_jump_that_recovers() -> None:
    loss_T = falling_loss()
    loss_T[200:] += 1.0

    assert not spikes(run(Explosion(), [block({"loss": loss_T[:, np.newaxis]})]))


def test_no_healthy_decline_has_a_jump() -> None:
    losses = [falling_loss(seed)[:, np.newaxis] for seed in range(30)]

    assert not any(spikes(run(Explosion(), [block({"loss": loss_TR})])) for loss_TR in losses)


def test_jumps_are_the_same_however_the_log_is_cut() -> None:
    loss_T = falling_loss()
    loss_T[[100, 150, 151, 250]] *= 1.6
    whole = block({"loss": loss_T[:, np.newaxis]})

    uncut = canonical(run(Explosion(), [whole]))

    assert all(
        canonical(run(Explosion(), random_cuts(whole, np.random.default_rng(seed)))) == uncut
        for seed in range(10)
    )


def test_a_curve_that_goes_on_jumping_is_told_a_bounded_number_of_times() -> None:
    loss_T = np.full(2000, 2.0) + np.random.default_rng(0).normal(0.0, 0.02, 2000)
    loss_T[50::25] *= 1.32

    noted = spikes(run(Explosion(), [block({"loss": loss_T[:, np.newaxis]})]))

    assert len(noted) == MAX_TOLD


def test_an_excerpt_whose_last_steps_all_take_longer_says_from_where_on() -> None:
    (note,) = slower([80.1, 80.2, 80.1, 84.6, 84.9, 84.7])

    assert note.iteration == 3
    assert note.detail["relative_shift"] == pytest.approx(0.057, abs=0.001)


@pytest.mark.parametrize(
    "step_time_s",
    [
        pytest.param([80.1, 80.2, 80.1, 84.9], id="one slow step"),
        pytest.param([80.1, 80.2, 80.1, 82.0, 82.1, 82.0], id="two percent"),
        pytest.param([80.0, 83.0, 79.0, 86.0, 88.0, 85.0], id="as much within each side"),
        pytest.param([95.0, 84.0, 80.1, 80.2, 80.1, 80.2], id="the first ones warm up"),
        pytest.param([80.0, 80.1] * 40 + [90.0, 90.1], id="a log long enough to be judged"),
    ],
)
def test_other_excerpts_are_not_called_slower(step_time_s: list[float]) -> None:
    assert not slower(step_time_s)


def test_a_larger_batch_explains_slower_steps() -> None:
    batch_T = np.repeat([256.0, 512.0], [20, 6])[:, np.newaxis]

    assert not slower([80.1] * 20 + [84.6] * 6, global_batch_size=batch_T)
    assert slower([80.1] * 20 + [84.6] * 6)
