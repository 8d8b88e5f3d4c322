"""The change point before an alarm: where it is, how sure, and that the interval says so honestly."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.onset import MAX_WINDOW, find_onset, from_first_high
from detectors.onset_ramp import find_ramp

from .curve_builders import ar1


def step(
    rng: np.random.Generator, *, at: int, points: int, rise: float, sigma: float, phi: float = 0.0
) -> np.ndarray:
    level = np.where(np.arange(points) < at, 2.0, 2.0 * (1 + rise))
    return np.asarray(level * np.exp(ar1(points, sigma, phi, rng)))


def test_a_clear_step_has_an_interval_of_one_iteration() -> None:
    found = find_onset(step(np.random.default_rng(1), at=70, points=120, rise=1.0, sigma=0.02), use_log=True)
    assert (found.at, found.last_clean, found.first_bad, found.is_confirmed) == (70, 69, 70, True)


def test_a_ramp_is_dated_at_its_foot_and_called_a_ramp() -> None:
    rng = np.random.default_rng(2)
    growth = 1.05 ** np.maximum(0, np.arange(100) - 59)
    found = find_onset(2.0 * growth * np.exp(rng.normal(0, 0.01, 100)), use_log=True)
    assert found.shape == "ramp"
    assert abs(found.at - 60) <= 2
    assert found.last_clean < 60 <= found.first_bad


@pytest.mark.parametrize("phi", [0.0, 0.5])
def test_the_interval_of_a_faint_step_contains_it_in_nearly_all_runs(phi: float) -> None:
    inside = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        at = int(rng.integers(40, 120))
        found = find_onset(
            step(rng, at=at, points=160, rise=0.04, sigma=0.02, phi=phi), use_log=True, refine=False
        )
        inside += found.last_clean < at <= found.first_bad
    assert inside >= 57  # 95 %: the interval aims at 99.9 % for independent noise


def test_ruptures_is_asked_about_a_faint_step_and_stays_inside_the_interval() -> None:
    found = find_onset(step(np.random.default_rng(3), at=60, points=120, rise=0.05, sigma=0.02), use_log=True)
    assert found.last_clean < found.at <= found.first_bad
    assert found.is_confirmed


def test_the_first_observation_may_be_the_only_clean_one() -> None:
    values = np.array([4.2, 9.0, 9.3, 9.1, 9.2, 9.0, 9.4, 9.1])
    from_start = find_onset(values, use_log=True, is_from_start=True)
    assert (from_start.at, from_start.last_clean, from_start.first_bad) == (1, 0, 1)
    assert find_onset(values, use_log=True).last_clean == -1


def test_a_window_too_short_to_say_anything_says_so() -> None:
    found = find_onset(np.array([1.0, 2.0]), use_log=False)
    assert (found.at, found.last_clean, found.first_bad, found.is_confirmed) == (1, -1, 1, False)


def test_only_the_newest_points_of_a_long_window_count() -> None:
    values = step(np.random.default_rng(4), at=350, points=400, rise=1.0, sigma=0.01)
    found = find_onset(values, use_log=True)
    assert found.at == 350
    assert find_onset(values[-MAX_WINDOW:], use_log=True).at == 350 - (400 - MAX_WINDOW)


def test_losses_that_are_not_positive_are_fitted_as_they_are() -> None:
    values = np.concatenate((np.full(40, -1.0), np.full(20, 3.0))) + np.random.default_rng(5).normal(
        0, 0.05, 60
    )
    assert find_onset(values, use_log=True).at == 40


def test_iterations_replace_indices() -> None:
    found = find_onset(step(np.random.default_rng(6), at=30, points=60, rise=1.0, sigma=0.01), use_log=True)
    named = found.in_iterations(np.arange(1000, 1600, 10))
    assert (named["last_clean"], named["first_bad"], named["iteration"]) == (1290, 1300, 1300)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_growth_of_one_point_is_not_placed_in_the_greater_decline_before_it(seed: int) -> None:
    at = np.arange(301)
    loss = (2.0 + 8.0 * np.exp(-at / 150)) * np.exp(np.random.default_rng(seed).normal(0, 0.02, len(at)))
    loss[300:] *= 6.0
    assert find_onset(loss, use_log=True).at == 300


def test_growth_that_speeds_up_begins_where_the_level_was_left() -> None:
    noise_K = np.random.default_rng(5).normal(0.0, 0.02, 90)
    values_K = 2.0 + noise_K + 0.02 * 1.2 ** (np.arange(90) - 60.0) * (np.arange(90) >= 60)
    ramp = find_onset(values_K, use_log=True)
    found = from_first_high(ramp, values_K, base=2.0, sigma=0.02)
    assert ramp.last_clean > 72, "11 sigma above the level is not clean"
    assert found.last_clean < found.at <= 70
    assert found.last_clean <= 66


def test_a_level_that_wanders_says_nothing_of_the_begin() -> None:
    wandering_K = 2.0 + np.where(np.arange(90) % 8 < 6, 0.2, 0.0)
    values_K = np.where(np.arange(90) < 80, wandering_K, 5.0)
    found = find_onset(values_K, use_log=True)
    assert from_first_high(found, values_K, base=2.0, sigma=0.02) == found


def test_a_rise_behind_a_decline_that_bends_is_not_dated_into_the_bend() -> None:
    t = np.arange(17.0, 147.0)
    level = 1.5 + 6.0 * np.exp(-t / 18.0)
    level[48:] *= 1.06
    off = {True: 0, False: 0}
    for seed in range(20):
        values = level * np.exp(np.random.default_rng(seed).normal(0, 0.003, len(t)))
        for is_told in off:
            found = find_ramp(values, elapsed=17, seen=48 if is_told else None)
            assert found is not None
            off[is_told] += abs(found.onset.at - 48) > 4
    # told where it was seen, a decline may bend; left to the shape alone, the bend is taken for the begin
    assert off == {True: 0, False: 20}
