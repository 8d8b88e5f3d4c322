"""Explosions of the loss or the gradient norm: seen soon, dated right, and only where there are any."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.evidence import Certainty, CheckState, Evidence, Pattern
from detectors.explosion import Explosion
from firstfault.telemetry import WHOLE_ITERATION, Event, EventKind
from ingest.blocks import IterationBlock, NumberBlock

from .curve_builders import (
    BENIGN,
    DRIFTS,
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


def noise(points: int, sigma: float = 0.03, seed: int = 0) -> Series:
    return np.asarray(np.exp(np.random.default_rng(seed).normal(0.0, sigma, points)))


def confirmed_in(**columns: Series) -> list[Evidence]:
    return confirmed(judge(Explosion(), [block_of(columns)]))


def after_growth(evidence: Evidence) -> bool:
    return evidence.certainty is Certainty.CONFIRMED and evidence.pattern in (
        Pattern.RUNAWAY,
        Pattern.SHARP_DEGRADE,
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "within", "off"), [("e_fast", 4, 1), ("e_slow", 60, 5), ("e_grad", 55, 5)])
def test_an_explosion_is_confirmed_soon_suspected_and_dated(
    name: str, within: int, off: int, seed: int
) -> None:
    scenario = make_scenario(name, seed)
    assert scenario.onset is not None
    found = confirmed_in(**scenario.columns)
    assert found and all(after_growth(evidence) for evidence in found)
    first = min(found, key=lambda evidence: evidence.alarm_iteration)
    assert 0 <= first.alarm_iteration - scenario.onset <= within
    assert abs(first.iteration - scenario.onset) <= off
    assert first.last_clean is not None and first.last_clean < scenario.onset <= first.first_bad
    assert confirmed_in(**scenario.twin) == []


@pytest.mark.parametrize("metric", ["loss", "grad_norm"])
def test_either_curve_alone_is_enough_for_a_fast_explosion(metric: str) -> None:
    scenario = make_scenario("e_fast", 1)
    assert confirmed_in(**{metric: scenario.columns[metric]})


def test_a_slow_explosion_is_confirmed_before_the_loss_has_doubled() -> None:
    for seed in SEEDS:
        scenario = make_scenario("e_slow", seed)
        assert scenario.onset is not None
        (found, *_) = confirmed_in(loss=scenario.columns["loss"])
        at = int(str(found.detail["judged_at"]))
        assert (
            scenario.columns["loss"][at - 4 : at + 4].mean()
            < 2.0 * scenario.columns["loss"][scenario.onset - 20 : scenario.onset].mean()
        )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", [*HEALTHY, *BENIGN, *DRIFTS])
def test_nothing_explodes_where_nothing_explodes(name: str, seed: int) -> None:
    assert confirmed_in(**make_scenario(name, seed).columns) == []


@pytest.mark.parametrize(
    ("growth", "top"),
    [(1.3, 12.0), (1.1, 5.0), (1.05, 2.0), (1.03, 1.6)],
)
def test_a_learning_rate_too_high_from_the_start_is_an_explosion_from_the_start(
    growth: float, top: float
) -> None:
    (found,) = confirmed_in(loss=4.2 * np.minimum(growth ** np.arange(200.0), top) * noise(200))
    assert found.iteration <= 4
    assert found.last_clean == 0


def test_a_loss_that_jumps_at_once_and_stays_is_a_sharp_degrade() -> None:
    (found,) = confirmed_in(loss=4.2 * np.where(np.arange(200) < 2, 1.0, 2.5) * noise(200))
    assert (found.pattern, found.iteration) == (Pattern.SHARP_DEGRADE, 2)


@pytest.mark.parametrize(
    ("factor", "pattern"),
    [(1.4, Pattern.SHARP_SLOW_DEGRADE), (1.7, Pattern.SHARP_SLOW_DEGRADE), (2.5, Pattern.SHARP_DEGRADE)],
)
def test_a_loss_that_steps_up_by_less_than_itself_and_stays_is_another_level_and_no_growth(
    factor: float, pattern: Pattern
) -> None:
    (found,) = confirmed_in(loss=3.0 * np.where(np.arange(300) < 150, 1.0, factor) * noise(300))
    assert (found.pattern, found.iteration) == (pattern, 150)


def test_a_point_of_common_size_at_the_start_is_no_growth_before_a_nan() -> None:
    lost = [np.nan] * 4
    jumped = {"loss": np.array([4.5, 4.35, 8.8, 4e14, *lost]), "grad_norm": [3.07, 3.19, 32.0, 2e23, *lost]}
    assert confirmed_in(**{name: np.asarray(column) for name, column in jumped.items()}) == []
    grown = {"loss": np.array([4.1, 4.0, 3.9, 4.4, 12.5, 70.0, *lost])}
    assert [one.detail["growing_points"] for one in confirmed_in(**grown)] == [3]


def test_a_level_early_in_a_run_needs_no_more_than_what_suspected_it() -> None:
    decline = 3.6 + np.exp(-np.arange(260) / 30)
    loss = np.where(np.arange(260) < 150, decline, decline * 1.31) * noise(260, 0.01)
    (found,) = confirmed_in(loss=loss)
    assert (found.pattern, abs(found.iteration - 150) <= 5) == (Pattern.SHARP_SLOW_DEGRADE, True)
    assert int(str(found.detail["judged_at"])) <= 210


def test_a_spike_that_is_on_its_way_back_after_fifty_points_is_no_level() -> None:
    back = 1.0 + 0.9 * np.exp(-np.maximum(np.arange(400) - 150, 0) / 60) * (np.arange(400) >= 150)
    assert confirmed_in(loss=3.0 * back * noise(400, 0.01)) == []


def test_noise_that_rises_before_a_jump_into_nan_is_not_counted_as_growth() -> None:
    quiet = 3.0 * noise(60)
    assert confirmed_in(loss=np.concatenate((quiet, [3.0, 3.02, 3.05, 14.0, np.nan, np.nan]))) == []


def test_growth_that_ends_in_nan_counts_its_growing_points() -> None:
    quiet = 4.2 * np.exp(-np.arange(30) / 60) * noise(30)
    (found,) = confirmed_in(loss=np.concatenate((quiet, [4.0, 6.0, 11.0, 30.0, np.nan, np.nan])))
    assert found.detail["confirmed_by"] == "non-finite"
    assert int(str(found.detail["growing_points"])) >= 4
    assert found.last_clean is not None and found.last_clean < 30 <= found.first_bad <= 32


def test_growth_that_ends_in_nan_needs_no_baseline() -> None:
    (found,) = confirmed_in(loss=np.array([4.2, 4.3, 5.5, 9.0, 33.0, np.nan, np.nan]))
    assert found.pattern is Pattern.RUNAWAY


@pytest.mark.parametrize("last", [[], [3.0, 3.05, 3.1, 3.15]])
def test_a_nan_out_of_a_clean_curve_is_no_explosion(last: list[float]) -> None:
    loss = np.concatenate((3.0 * noise(60), last, [np.nan] * 4))
    assert confirmed_in(loss=loss) == []


def test_overflow_skips_are_no_explosion() -> None:
    norm = noise(200, 0.18)
    norm[50:56] = np.inf
    norm[:8] = np.inf
    loss = 4.2 * np.exp(-np.arange(200) / 100) * noise(200)
    assert judge(Explosion(), [block_of({"loss": loss, "grad_norm": norm})]) == []
    assert (
        judge(Explosion(), [block_of({"loss": loss, "grad_norm": norm, "skipped": np.isinf(norm) * 1.0})])
        == []
    )


def test_a_spike_that_recovers_is_an_annotation_with_its_ratio_and_length() -> None:
    loss = 3.0 * noise(400, 0.01)
    loss[200:212] *= np.linspace(2.5, 1.6, 12)
    findings = judge(Explosion(), [block_of({"loss": loss})])
    (spike,) = annotated(findings, "spike_recovered")
    assert spike.iteration == 200
    assert 2.3 < float(str(spike.detail["peak_ratio"])) < 2.7
    assert 10 <= int(str(spike.detail["duration_points"])) <= 18
    assert [f.certainty for f in findings if isinstance(f, Evidence)] == [Certainty.RECOVERED]


def test_one_wild_point_is_a_spike_and_no_suspicion() -> None:
    loss = 3.0 * noise(300, 0.01)
    loss[100] *= 3
    findings = judge(Explosion(), [block_of({"loss": loss})])
    assert len(annotated(findings, "spike_recovered")) == 1
    assert not any(isinstance(finding, Evidence) for finding in findings)


def test_a_start_up_transient_that_falls_back_is_no_explosion() -> None:
    loss = np.concatenate(([14.1, 76.8, 31.7, 21.1, 17.0], 14.0 * np.exp(-np.arange(195) / 60))) * noise(
        200, 0.005
    )
    assert confirmed_in(loss=loss) == []


def test_large_gradient_norms_at_the_start_are_warm_up() -> None:
    assert confirmed_in(grad_norm=(1 + 200 * np.exp(-np.arange(200) / 3)) * noise(200, 0.18)) == []


def test_gradient_norms_of_any_scale_are_judged_by_their_own_spread() -> None:
    rng = np.random.default_rng(2)
    assert confirmed_in(grad_norm=np.exp(rng.normal(11.0, 1.2, 700))) == []


@pytest.mark.parametrize("level", [0.0, -1.0, 1e-7])
def test_losses_near_zero_or_below_are_judged_by_their_noise(level: float) -> None:
    rng = np.random.default_rng(3)
    assert confirmed_in(loss=level + rng.normal(0, 0.05, 3000)) == []
    grown = level + rng.normal(0, 0.05, 300)
    grown[200:] += 5.0
    assert confirmed_in(loss=grown)


@pytest.mark.parametrize("zeros", [5, 60])
def test_a_loss_that_is_logged_as_0_until_it_is_computed_does_not_explode(zeros: int) -> None:
    at = np.arange(400)
    loss = np.concatenate((np.zeros(zeros), (2 + 8 * np.exp(-at / 150)) * noise(len(at), 0.02)))
    assert confirmed_in(loss=loss) == []
    loss[zeros + 300 :] *= 6.0
    (one,) = confirmed_in(loss=loss)
    assert one.iteration == zeros + 300


@pytest.mark.parametrize("seed", SEEDS)
def test_a_loss_that_wanders_around_zero_does_not_explode(seed: int) -> None:
    assert confirmed_in(loss=wandering(6000, seed)) == []


def test_a_loss_around_zero_that_grows_without_end_explodes() -> None:
    loss = wandering(3000, seed=0)
    loss[2000:] += 0.01 * np.exp(np.arange(1000) / 100.0)
    (one,) = confirmed_in(loss=loss)
    assert 2000 <= one.iteration <= 2400


def wandering(points: int, seed: int) -> Series:
    """A loss of policy gradients: it goes up and down around zero for hundreds of iterations at a time."""
    rng = np.random.default_rng([seed, 77])
    return np.asarray(0.01 * ar1(points, 1.0, 0.99, rng) + rng.normal(0.0, 0.009, points))


def test_a_loss_that_fell_to_nothing_does_not_explode_by_its_ratio() -> None:
    rng = np.random.default_rng(4)
    loss = 4.2 * np.exp(-np.arange(600) / 15) + 0.001 * np.abs(rng.normal(size=600)) * rng.choice(
        [1, 10], 600
    )
    assert confirmed_in(loss=loss) == []


def test_a_change_of_data_explains_a_new_level() -> None:
    loss = np.where(np.arange(400) < 200, 2.0, 3.2) * noise(400, 0.02)
    event = Event(kind=EventKind.DATA_CHANGE, run="curve", rank=0, iteration=200)
    findings = judge(Explosion(), [block_of({"loss": loss}, events=(event,))])
    assert confirmed(findings) == []
    assert len(annotated(findings, "level_shift_explained")) == 1
    assert confirmed_in(loss=loss)


def test_a_second_change_of_data_leaves_what_the_first_explains() -> None:
    loss = np.where(np.arange(400) < 200, 2.0, 3.2) * noise(400, 0.02)
    events = tuple(Event(kind=EventKind.DATA_CHANGE, run="curve", rank=0, iteration=at) for at in (200, 230))
    assert confirmed(judge(Explosion(), [block_of({"loss": loss}, events=events)])) == []


def test_a_loss_that_stays_high_is_told_once_and_a_later_explosion_again() -> None:
    loss = np.concatenate((np.full(200, 2.0), np.full(900, 6.0), np.full(100, 60.0))) * noise(1200, 0.02)
    keys = [evidence.key for evidence in confirmed_in(loss=loss)]
    assert keys == ["loss/1", "loss/2"]


def test_the_curve_is_the_median_over_the_ranks_with_a_finite_value() -> None:
    rng = np.random.default_rng(6)
    loss_TR = 2.0 * np.exp(rng.normal(0, 0.02, (300, 5)))
    loss_TR[100:, 2] = np.nan
    loss_TR[100:, 4] = 500.0
    assert confirmed_in(loss=loss_TR) == []
    loss_TR[200:] *= 12.0
    (found,) = confirmed_in(loss=loss_TR)
    assert found.iteration == 200


def test_the_findings_do_not_depend_on_how_blocks_are_cut() -> None:
    for name in ("e_fast", "e_slow", "b_spike"):
        assert_cut_invariant(Explosion, block_of(make_scenario(name, 2).columns), np.random.default_rng(7))


@pytest.mark.parametrize("name", ["e_fast", "e_slow", "e_grad", "b_spike"])
def test_a_restored_detector_continues_exactly(name: str) -> None:
    scenario = make_scenario(name, 3)
    at = (scenario.onset or 800) + 2
    assert_restores(Explosion, block_of(scenario.columns), at)


def test_gaps_and_missing_ranks_do_not_disturb() -> None:
    scenario = make_scenario("e_fast", 4)
    loss_TR = np.array(scenario.columns["loss"]).reshape(-1, 1)
    present_TR = np.random.default_rng(8).random(loss_TR.shape) > 0.2
    block = IterationBlock(
        run="curve",
        attempt=0,
        iteration_T=np.arange(len(loss_TR)),
        microbatch_T=np.full(len(loss_TR), WHOLE_ITERATION, np.int32),
        ranks_R=np.zeros(1, np.int32),
        numbers={"loss": NumberBlock(loss_TR, present_TR)},
    )
    (found, *_) = confirmed(judge(Explosion(), [block]))
    assert scenario.onset is not None and abs(found.iteration - scenario.onset) <= 3
    assert_cut_invariant(Explosion, block, np.random.default_rng(9), each=False)


def test_a_million_points_of_noise_raise_no_alarm() -> None:
    loss = 2.0 + 0.05 * np.random.default_rng(10).normal(size=1_000_000)
    assert confirmed_in(loss=loss) == []


def test_the_block_is_left_as_it_was() -> None:
    block = block_of(make_scenario("e_fast", 5).columns)
    before = {name: column.values_TR.copy() for name, column in block.numbers.items()}
    judge(Explosion(), [block])
    assert all((before[name] == column.values_TR).all() for name, column in block.numbers.items())


def test_coverage_says_whether_there_was_a_curve() -> None:
    blind = Explosion()
    blind.update(block_of({"lr": np.ones(5)}))
    assert (blind.check().state, bool(blind.check().why)) == (CheckState.NOT_RUN, True)
    seeing = Explosion()
    seeing.update(block_of({"grad_norm": np.ones(5), "loss": np.ones(5)}))
    assert seeing.check().metrics == ("grad_norm", "loss")


@pytest.mark.parametrize(("points", "state"), [(2, "not_run"), (3, "not_run"), (4, "ran")])
def test_a_curve_too_short_to_judge_is_said_not_to_have_been_judged(points: int, state: str) -> None:
    detector = Explosion()
    detector.update(block_of({"loss": np.linspace(3.0, 2.9, points)}))
    check = detector.check()
    assert check.state == state
    assert (f"{points} points" in check.why) is (state == "not_run")


def test_a_norm_that_comes_back_from_a_plateau_does_not_explode() -> None:
    fall = np.geomspace(1.0, 0.02, 80)
    back = np.geomspace(0.02, 0.8, 30)
    norm = np.concatenate((fall, back, np.full(200, 0.8))) * noise(310, 0.2)
    loss = np.concatenate((np.full(80, 3.87), np.linspace(3.87, 3.2, 230)))
    assert confirmed_in(loss=loss, grad_norm=norm) == []


def test_a_nan_after_a_norm_came_back_from_a_plateau_is_not_its_end() -> None:
    fall = np.geomspace(1.0, 0.02, 80)
    back = np.geomspace(0.02, 0.3, 30)
    norm = np.concatenate((fall, back, np.full(200, 0.3))) * noise(310, 0.2)
    loss = np.concatenate((np.full(80, 3.87), np.linspace(3.87, 3.2, 230)))
    lost = np.full(20, np.nan)
    findings = judge(
        Explosion(),
        [block_of({"loss": np.append(loss, lost), "grad_norm": np.append(norm, lost)})],
    )
    assert any(isinstance(one, Evidence) for one in findings)
    assert confirmed(findings) == []


def test_a_nan_long_after_a_rise_that_did_not_last_as_an_explosion_is_not_its_end() -> None:
    loss = np.concatenate((np.full(200, 2.0), np.full(10, 3.0), np.full(150, 2.5))) * noise(360, 0.02)
    growth = 2.5 * np.array([1.5, 2.5, 4.0, 9.0])
    lost = np.full(20, np.nan)
    assert confirmed_in(loss=np.concatenate((loss, lost))) == []
    (found,) = confirmed_in(loss=np.concatenate((loss, growth, lost)))
    assert found.detail["growing_points"] == 4 and 358 <= found.iteration <= 361


def test_a_norm_that_leaves_all_it_has_been_explodes_though_the_loss_falls() -> None:
    norm = np.concatenate((np.geomspace(1.0, 0.05, 200), np.geomspace(0.05, 50.0, 60))) * noise(260, 0.2)
    found = confirmed_in(loss=np.linspace(3.9, 3.2, 260), grad_norm=norm)
    assert [one.metric for one in found] == ["grad_norm"] and abs(found[0].iteration - 200) <= 15


def cycles(swing: float, points: int = 1500, period: int = 300) -> tuple[Series, Series]:
    """A loss that follows a learning rate up and down by ``swing`` of itself, and that rate."""
    t = np.arange(points)
    wave = np.sin(2 * np.pi * t / period) * np.minimum(1.0, t / 100)
    level = 2.0 + 3.0 * (1 + t / 20) ** -0.5
    return level * (1 + swing * wave) * noise(points, 0.01), 1e-3 * (1.05 + np.sin(2 * np.pi * t / period))


def test_a_loss_that_goes_up_with_a_learning_rate_that_comes_back_does_not_explode() -> None:
    loss, lr = cycles(0.2)
    assert confirmed_in(loss=loss, lr=lr) == []
    assert confirmed_in(loss=loss)


@pytest.mark.parametrize("factor", [4.0, 12.0])
def test_a_rate_that_comes_back_explains_no_loss_that_more_than_doubles(factor: float) -> None:
    loss, lr = cycles(0.05)
    loss[650:] *= np.minimum(factor, 1.05 ** np.arange(1, 851))
    assert confirmed_in(loss=loss, lr=lr)


def test_a_rate_higher_than_ever_explains_no_growth() -> None:
    t = np.arange(800)
    lr = np.where(t < 400, 1e-3, 5e-3)
    loss = 2.0 * np.where(t < 400, 1.0, np.minimum(1.7, 1.03 ** (t - 399))) * noise(800, 0.01)
    (found,) = confirmed_in(loss=loss, lr=lr)
    assert abs(found.iteration - 400) <= 10


@pytest.mark.parametrize("seed", range(3))
def test_a_norm_that_creeps_up_while_the_loss_falls_is_at_most_suspected(seed: int) -> None:
    t = np.arange(1500)
    norm = 20.0 ** (np.clip(t - 300, 0, 600) / 600) * noise(1500, 0.15, seed)
    loss = 2.0 + 3.0 * (1 + t / 20) ** -0.5
    assert confirmed_in(loss=loss * noise(1500, 0.01, seed), grad_norm=norm) == []


def test_a_norm_that_climbs_is_suspected_at_its_second_high_point() -> None:
    norm = np.full(300, 0.5)
    norm[200:] *= np.minimum(1.6 ** np.arange(1, 101), 1000.0)
    norm *= noise(300, 0.1)
    (found,) = confirmed_in(loss=np.linspace(4.0, 3.0, 300), grad_norm=norm)
    assert found.alarm_iteration == 202 + 1


@pytest.mark.parametrize("seed", SEEDS)
def test_slow_growth_out_of_a_decline_is_dated_where_it_began(seed: int) -> None:
    t = np.arange(900)
    level = 1.5 + 6.0 * (1 + t / 20) ** -0.5
    loss = level * 2.0 ** (np.maximum(0.0, t - 599) / 180.0) * noise(900, 0.012, seed)
    (found,) = confirmed_in(loss=loss)
    assert abs(found.iteration - 600) <= 5
    assert found.last_clean is not None and found.last_clean < 600 <= found.first_bad
