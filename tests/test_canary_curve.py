"""The loss of a fixed batch: breaks of its decline are found, healthy declines are left alone."""

from __future__ import annotations

import numpy as np
import pytest

from detectors.curve_drift import CurveDrift
from detectors.evidence import Certainty, Evidence, Pattern
from firstfault.telemetry import Event, EventKind

from .curve_builders import Series, assert_cut_invariant, assert_restores, block_of, confirmed, judge

BREAK = 600


def canary(
    share: float, *, every: int = 5, points: int = 1200, scatter: float = 2e-4, seed: int = 0
) -> Series:
    """A power-law decline that goes on at ``share`` of its speed from `BREAK` on, every few iterations."""
    t = np.arange(points, dtype=np.float64)
    level = 1.8 + 6.0 * (1 + t / 20) ** -0.45
    level = np.where(t < BREAK, level, level[BREAK] + share * (level - level[BREAK]))
    loss = level * np.exp(np.random.default_rng(seed).normal(0, scatter, points))
    loss[t % every != 0] = np.nan
    return np.asarray(loss)


@pytest.mark.parametrize("share", [0.5, 0.2, 0.0, -0.5])
@pytest.mark.parametrize("every", [1, 5, 20])
def test_a_slower_decline_a_standstill_and_a_rise_are_confirmed(share: float, every: int) -> None:
    (found,) = confirmed(judge(CurveDrift(), [block_of({"canary_loss": canary(share, every=every)})]))
    assert (found.metric, found.pattern) == ("canary_loss", Pattern.SLOW_DEGRADE)
    assert found.last_clean is not None and found.last_clean < BREAK <= found.first_bad
    assert found.first_bad - found.last_clean <= 200


def test_a_step_upwards_is_confirmed_as_one() -> None:
    loss = canary(1.0)
    loss[BREAK:] *= 1.02
    (found,) = confirmed(judge(CurveDrift(), [block_of({"canary_loss": loss})]))
    assert found.pattern is Pattern.SHARP_SLOW_DEGRADE
    assert found.last_clean is not None and found.last_clean < BREAK <= found.first_bad


@pytest.mark.parametrize("scatter", [1e-7, 2e-4, 2e-3])
@pytest.mark.parametrize("decay", [80, 300])
def test_a_decline_that_slows_as_healthy_ones_do_is_left_alone(scatter: float, decay: int) -> None:
    t = np.arange(2000.0)
    exponential = 2.0 + 6.0 * np.exp(-t / decay)
    noise = np.random.default_rng(1).normal(0, scatter, len(t))
    for loss in (exponential, 1.8 + 6.0 * (1 + t / 20) ** -0.45):
        block = block_of({"canary_loss": loss * np.exp(noise)})
        assert not [one for one in judge(CurveDrift(), [block]) if isinstance(one, Evidence)]


def test_parameters_that_wander_raise_no_alarm() -> None:
    rng = np.random.default_rng(2)
    for _ in range(5):
        loss = 1.8 + 6.0 * (1 + np.arange(1000.0) / 20) ** -0.45
        walk = np.cumsum(rng.normal(0, 1e-3, len(loss)))
        assert confirmed(judge(CurveDrift(), [block_of({"canary_loss": loss * np.exp(walk)})])) == []


@pytest.mark.parametrize("falls_to", [0.1, 0.5])
def test_a_step_of_the_rate_explains_a_break(falls_to: float) -> None:
    lr = np.where(np.arange(1200) < BREAK, 1e-3, 1e-3 * falls_to)
    block = block_of({"canary_loss": canary(falls_to), "lr": lr})
    assert confirmed(judge(CurveDrift(), [block])) == []


def test_new_data_explain_a_break() -> None:
    event = Event(kind=EventKind.DATA_CHANGE, run="curve", rank=0, iteration=BREAK)
    assert confirmed(judge(CurveDrift(), [block_of({"canary_loss": canary(0.2)}, events=(event,))])) == []


def test_what_is_suspected_at_first_is_confirmed_under_the_same_key() -> None:
    findings = judge(CurveDrift(), [block_of({"canary_loss": canary(0.5, every=1)})])
    found = [one for one in findings if isinstance(one, Evidence)]
    assert {one.key for one in found} == {"canary_loss/1"}
    assert found[-1].certainty is Certainty.CONFIRMED


def test_the_findings_do_not_depend_on_cuts() -> None:
    rate = np.where(np.arange(1200) < 200, 1e-3, 5e-4)
    block = block_of({"canary_loss": canary(0.2), "lr": rate})
    assert_cut_invariant(CurveDrift, block, np.random.default_rng(3))


@pytest.mark.parametrize("at", [203, 700, 900])
def test_a_restored_detector_goes_on_exactly(at: int) -> None:
    assert_restores(CurveDrift, block_of({"canary_loss": canary(0.4, every=1)}), at)


def test_coverage_names_the_canary() -> None:
    detector = CurveDrift()
    detector.update(block_of({"canary_loss": canary(0.2)}))
    assert detector.check().metrics == ("canary_loss",)
