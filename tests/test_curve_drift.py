"""Whole-curve drift: lasting steps, slow rises and stuck values of the loss, and what explains them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from detectors.curve_drift import CurveDrift
from detectors.evidence import Certainty, CheckState, Evidence, Pattern
from firstfault.telemetry import Event, EventKind

from .curve_builders import (
    BENIGN,
    EXPLOSIONS,
    HEALTHY,
    Series,
    annotated,
    ar1,
    assert_cut_invariant,
    assert_restores,
    block_of,
    confirmed,
    judge,
    make_scenario,
)

SEEDS = range(6)


def stepped(
    rise: float, *, sigma: float = 0.015, phi: float = 0.3, at: int = 900, points: int = 1600, seed: int = 0
) -> Series:
    """A power-law decline with AR(1) noise whose level rises for good at ``at``."""
    t = np.arange(points, dtype=np.float64)
    level = 1.2 + 9.0 * (t + 10) ** -0.35
    return np.asarray(
        level * np.where(t < at, 1.0, 1 + rise) * np.exp(ar1(points, sigma, phi, np.random.default_rng(seed)))
    )


def confirmed_in(**columns: NDArray[np.floating[Any]]) -> list[Evidence]:
    return confirmed(
        judge(CurveDrift(), [block_of({n: np.asarray(v, np.float64) for n, v in columns.items()})])
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("rise", "sigma", "within"), [(0.032, 0.010, 60), (0.045, 0.014, 60), (0.05, 0.015, 60)]
)
def test_a_step_of_three_sigma_for_good_is_confirmed_within_sixty_points(
    rise: float, sigma: float, within: int, seed: int
) -> None:
    (found,) = confirmed_in(loss=stepped(rise, sigma=sigma, seed=seed))
    assert found.pattern in (Pattern.SHARP_SLOW_DEGRADE, Pattern.SLOW_DEGRADE)
    assert int(str(found.detail["judged_at"])) - 900 <= within
    assert found.last_clean is not None and found.last_clean < 900 <= found.first_bad
    assert confirmed_in(loss=stepped(0.0, sigma=sigma, seed=seed)) == []


def test_most_steps_of_2_5_to_4_percent_in_like_noise_are_confirmed_and_none_early() -> None:
    caught, inside, delays = 0, 0, []
    for seed in range(40):
        scenario = make_scenario("d_shift", seed)
        assert scenario.onset is not None
        found = confirmed_in(**scenario.columns)
        assert all(evidence.alarm_iteration >= scenario.onset for evidence in found)
        assert confirmed_in(**scenario.twin) == []
        if found:
            caught += 1
            inside += (found[0].last_clean or -1) < scenario.onset <= found[0].first_bad
            delays.append(int(str(found[0].detail["judged_at"])) - scenario.onset)
    # The rest are steps of about their noise: 22 of 40 here, half of them within 50 points.
    assert caught >= 22
    assert inside >= caught - 1
    assert np.median(delays) <= 60


def test_a_slow_rise_is_caught_with_an_interval_that_holds_its_start() -> None:
    t = np.arange(3000, dtype=np.float64)
    loss = (2.0 + 4.0 * np.exp(-t / 150)) * (1 + 0.12 * np.maximum(0.0, t - 1500) / 1500)
    found = confirmed_in(loss=loss * np.exp(ar1(3000, 0.015, 0.3, np.random.default_rng(1))))
    assert found
    assert found[0].last_clean is None or found[0].last_clean < 1700
    assert found[0].alarm_iteration > 1500


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [*HEALTHY, *BENIGN])
def test_nothing_drifts_where_nothing_drifts(name: str, seed: int) -> None:
    assert confirmed_in(**make_scenario(name, seed).columns) == []


@pytest.mark.parametrize("name", EXPLOSIONS)
def test_nothing_drifts_before_an_explosion(name: str) -> None:
    for seed in SEEDS:
        scenario = make_scenario(name, seed)
        assert scenario.onset is not None
        for evidence in confirmed_in(**scenario.columns):
            assert evidence.alarm_iteration >= scenario.onset


def test_a_fast_explosion_is_left_to_the_explosion_detector() -> None:
    scenario = make_scenario("e_fast", 1)
    findings = judge(CurveDrift(), [block_of(scenario.columns)])
    assert confirmed(findings) == []
    (handed,) = [f for f in findings if isinstance(f, Evidence)]
    assert handed.supporting and handed.detail["judged_by"] == "explosion"


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (EventKind.DATA_CHANGE, "data_change"),
        (EventKind.BATCH_SIZE, "batch_size"),
        (EventKind.RESUME, "resume"),
        (EventKind.LR_CHANGE, "lr_change"),
    ],
)
def test_an_event_explains_a_step_that_is_confirmed_without_it(kind: EventKind, why: str) -> None:
    loss = stepped(0.04)
    event = Event(kind=kind, run="curve", rank=0, iteration=900)
    findings = judge(CurveDrift(), [block_of({"loss": loss}, events=(event,))])
    assert confirmed(findings) == []
    (explained,) = annotated(findings, "level_shift_explained")
    assert explained.detail["why"] == why
    assert abs(explained.iteration - 900) <= 16
    assert confirmed_in(loss=loss)


def test_a_change_of_a_stage_column_explains_a_step_and_a_counter_does_not() -> None:
    loss = stepped(0.04)
    stage = (np.arange(len(loss)) >= 900) * 1.0
    assert confirmed_in(loss=loss, data_stage=stage) == []
    assert confirmed_in(loss=loss, epoch=np.arange(len(loss)) * 1.0)


def test_a_rise_of_the_learning_rate_explains_a_step() -> None:
    loss = stepped(0.04)
    lr = np.where(np.arange(len(loss)) < 900, 1e-4, 3e-4)
    assert confirmed_in(loss=loss, lr=lr) == []


def test_a_learning_rate_that_rises_step_by_step_explains_a_step_from_its_first_one_on() -> None:
    loss = stepped(0.04)
    lr = np.interp(np.arange(len(loss)), [880, 1080], [3e-5, 3e-4])
    assert confirmed_in(loss=loss, lr=lr) == []


def test_a_change_long_before_explains_nothing() -> None:
    event = Event(kind=EventKind.DATA_CHANGE, run="curve", rank=0, iteration=400)
    assert confirmed(judge(CurveDrift(), [block_of({"loss": stepped(0.04)}, events=(event,))]))


@pytest.mark.parametrize(("kind", "is_drift"), [(EventKind.BATCH_SIZE, True), (EventKind.LR_CHANGE, False)])
def test_a_step_a_hundred_points_after_other_batches_is_not_theirs_and_may_be_the_rates(
    kind: EventKind, is_drift: bool
) -> None:
    event = Event(kind=kind, run="curve", rank=0, iteration=800)
    found = confirmed(judge(CurveDrift(), [block_of({"loss": stepped(0.04)}, events=(event,))]))
    assert bool(found) is is_drift


def test_a_step_after_which_the_run_learns_on_is_nearly_never_confirmed_without_context() -> None:
    wrong = sum(
        bool(confirmed_in(loss=make_scenario("b_datamix", seed).columns["loss"])) for seed in range(40)
    )
    assert wrong <= 2  # in noise of 3 % a decay over 300 iterations can look like none
    findings = judge(CurveDrift(), [block_of({"loss": make_scenario("b_datamix", 3).columns["loss"]})])
    assert any(note.detail["why"] == "learned_on" for note in annotated(findings, "level_shift_explained"))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_value_that_repeats_bit_by_bit_is_stuck(seed: int) -> None:
    scenario = make_scenario("d_const", seed)
    assert scenario.onset is not None
    (found,) = confirmed_in(**scenario.columns)
    assert found.pattern is Pattern.STUCK
    assert (found.last_clean, found.iteration, found.first_bad) == (
        scenario.onset - 1,
        scenario.onset,
        scenario.onset + 1,
    )
    assert found.alarm_iteration - scenario.onset <= 30


def test_a_log_of_few_digits_repeats_values_and_is_not_stuck() -> None:
    rng = np.random.default_rng(2)
    assert confirmed_in(loss=np.round(2.0 * np.exp(rng.normal(0, 0.0004, 5000)), 3)) == []


def test_a_curve_whose_noise_gets_less_than_the_last_digit_of_its_log_is_not_stuck() -> None:
    at = np.arange(1500)
    for seed in range(4):
        noise = np.random.default_rng(seed).normal(0, 0.01, len(at))
        assert confirmed_in(loss=np.round(2.0 + 3.0 * np.exp(-at / 150) + noise, 1)) == []


def test_a_value_printed_again_until_the_next_one_is_not_stuck() -> None:
    fresh = 2.0 * np.exp(np.random.default_rng(3).normal(0, 0.02, 60))
    for every in (10, 50, 100):
        assert confirmed_in(loss=np.repeat(fresh, every)) == []


def test_a_curve_that_converges_to_its_last_bit_is_not_stuck() -> None:
    loss = np.float32(0.314) + np.exp(-np.arange(800) / 12).astype(np.float32)
    assert confirmed_in(loss=loss.astype(np.float64)) == []


def test_a_loss_of_zero_is_stuck_only_if_it_fell_there_at_once() -> None:
    assert confirmed_in(loss=np.zeros(500)) == []
    assert confirmed_in(loss=np.concatenate((4.2 * np.exp(-np.arange(100) / 10), np.zeros(100)))) == []
    sudden = np.concatenate((4.2 * np.exp(np.random.default_rng(4).normal(0, 0.03, 100)), np.zeros(100)))
    (found,) = confirmed_in(loss=sudden)
    assert found.pattern is Pattern.STUCK


def test_a_run_that_never_learns_is_at_most_suspected() -> None:
    loss = 4.2 * np.exp(np.random.default_rng(5).normal(0, 0.01, 2000))
    findings = [f for f in judge(CurveDrift(), [block_of({"loss": loss})]) if isinstance(f, Evidence)]
    assert [(f.pattern, f.certainty) for f in findings] == [(Pattern.PLATEAU, Certainty.SUSPECTED)]


@pytest.mark.parametrize("seed", range(6))
def test_a_step_out_of_a_decline_that_bends_is_found_though_the_decline_takes_it_back(seed: int) -> None:
    t = np.arange(1400.0)
    noise = np.random.default_rng(seed).normal(0, 0.004, 1400)
    loss = (2.0 + 5.0 * np.exp(-t / 280)) * np.exp(noise + np.where(t < 1003, 0.0, 0.0148))
    (found,) = confirmed_in(loss=loss)
    assert found.last_clean is not None
    assert found.last_clean < 1003 <= found.first_bad
    assert found.alarm_iteration <= 1075
    assert found.statistic > found.threshold


@pytest.mark.parametrize(("seed", "at"), [(4, 105_736), (24, 426_960), (31, 106_712), (38, 908_448)])
def test_what_one_in_a_million_points_of_noise_does_is_no_step_out_of_a_bend(seed: int, at: int) -> None:
    """Places at which noise alone stands as far above a parabola as a step must to be suspected."""
    t = np.arange(1_000_000)
    loss = 2.0 + 4.0 * np.exp(-5.0 * t / len(t)) + np.random.default_rng(seed).normal(0.0, 0.05, len(t))
    assert confirmed_in(loss=loss[at - 1200 : at + 8]) == []


def test_a_decline_that_slows_is_nothing() -> None:
    t = np.arange(4000, dtype=np.float64)
    loss = np.where(t < 1500, 6.0 - 0.002 * t, 3.0) * np.exp(np.random.default_rng(6).normal(0, 0.01, 4000))
    assert confirmed_in(loss=loss) == []


@pytest.mark.parametrize("level", [0.0, -2.0])
def test_a_loss_without_a_positive_level_has_no_level_to_shift(level: float) -> None:
    rng = np.random.default_rng(7)
    loss = level + rng.normal(0, 0.1, 3000) + np.where(np.arange(3000) < 1500, 0.0, 0.2)
    assert confirmed_in(loss=loss) == []


@pytest.mark.parametrize("phi", [0.0, 0.3, 0.6])
def test_a_million_points_of_noise_raise_no_alarm(phi: float) -> None:
    loss = 2.0 * np.exp(ar1(1_000_000, 0.03, phi, np.random.default_rng(8)))
    assert confirmed_in(loss=loss) == []


def test_the_findings_do_not_depend_on_how_blocks_are_cut() -> None:
    for name in ("d_shift", "d_const", "b_datamix", "b_lrrestart"):
        assert_cut_invariant(CurveDrift, block_of(make_scenario(name, 5).columns), np.random.default_rng(9))


def test_cutting_does_not_matter_for_events_either() -> None:
    event = Event(kind=EventKind.DATA_CHANGE, run="curve", rank=0, iteration=900)
    assert_cut_invariant(
        CurveDrift, block_of({"loss": stepped(0.04)}, events=(event,)), np.random.default_rng(10)
    )


@pytest.mark.parametrize("at", [300, 910, 940, 1200])
def test_a_restored_detector_continues_exactly(at: int) -> None:
    assert_restores(CurveDrift, block_of({"loss": stepped(0.04), "epoch": np.arange(1600.0) // 400}), at)


def test_missing_values_only_delay() -> None:
    loss = stepped(0.05, sigma=0.01)
    loss[np.random.default_rng(11).random(len(loss)) < 0.2] = np.nan
    (found,) = confirmed_in(loss=loss)
    assert found.last_clean is not None and found.last_clean < 900 <= found.first_bad


def test_a_second_step_is_a_second_finding() -> None:
    loss = stepped(0.05, sigma=0.01, points=4000)
    loss[2800:] *= 1.05
    assert [evidence.key for evidence in confirmed_in(loss=loss)] == ["loss/1", "loss/2"]


def test_coverage_says_whether_there_was_a_loss() -> None:
    blind = CurveDrift()
    blind.update(block_of({"grad_norm": np.ones(5)}))
    assert (blind.check().state, bool(blind.check().why)) == (CheckState.NOT_RUN, True)
    seeing = CurveDrift()
    seeing.update(block_of({"global_loss": np.ones(5)}))
    assert seeing.check().metrics == ("global_loss",)


@pytest.mark.parametrize(
    ("points", "state", "is_told"),
    [(2, "not_run", True), (39, "not_run", True), (40, "ran", True), (191, "ran", True), (192, "ran", False)],
)
def test_what_a_short_curve_was_not_judged_for_is_said(points: int, state: str, is_told: bool) -> None:
    detector = CurveDrift()
    detector.update(block_of({"loss": np.linspace(3.0, 2.9, points)}))
    check = detector.check()
    assert check.state == state
    assert check.why.startswith(f"{points} points") is is_told


def test_a_check_that_found_something_says_that_it_ran() -> None:
    noise = np.random.default_rng(0).normal(0, 0.01, 59)
    for moving in range(40, 60):
        detector = CurveDrift()
        curve = np.concatenate([3 - 0.01 * np.arange(moving) + noise[:moving], np.full(60, 2.5)])
        found = detector.update(block_of({"loss": curve}))
        assert any(isinstance(one, Evidence) for one in found)
        assert detector.check().state == "ran"


def swinging(*, at: int | None = None, rise: float = 0.0, period: int = 600, points: int = 2400) -> Series:
    """A loss that goes up at once with a rate that nobody logs, and down again by and by, cycle after cycle;
    with a step of its own at ``at``."""
    t = np.arange(points)
    wave = 0.5 + 0.5 * np.cos(np.pi * (t % period) / period)
    level = (
        (1.2 + 3.0 * (1 + t / 30) ** -0.6) * (1 + 0.08 * wave) * np.where(t < (at or points), 1.0, 1 + rise)
    )
    return np.asarray(level * np.exp(ar1(points, 0.008, 0.2, np.random.default_rng(1))))


def test_a_rise_that_came_before_and_went_away_is_confirmed_once_at_most() -> None:
    sure = confirmed(judge(CurveDrift(), [block_of({"loss": swinging()})]))
    assert [one for one in sure if one.alarm_iteration > 1200] == []


def test_a_rise_beyond_those_that_came_before_is_confirmed() -> None:
    (*_, last) = confirmed(judge(CurveDrift(), [block_of({"loss": swinging(at=2250, rise=0.15)})]))
    assert 2245 <= last.iteration <= 2255 and int(str(last.detail["judged_at"])) <= 2300


def test_a_spike_that_recovered_delays_no_step() -> None:
    loss = stepped(0.05)
    loss[500:525] *= 1.3
    (found,) = confirmed(judge(CurveDrift(), [block_of({"loss": loss})]))
    assert abs(found.iteration - 900) <= 5 and int(str(found.detail["judged_at"])) <= 950


def test_a_slow_rise_that_comes_all_the_way_back_is_withdrawn() -> None:
    t = np.arange(2000)
    wave = np.clip(1 - np.abs(t - 1200) / 250, 0, 1)
    loss = 2.0 * (1 + 0.08 * wave) * np.exp(ar1(2000, 0.01, 0.0, np.random.default_rng(0)))
    findings = judge(CurveDrift(), [block_of({"loss": loss})])
    assert any(isinstance(one, Evidence) for one in findings) and confirmed(findings) == []
