"""A rank or a run that gets slower for good is told; pauses, longer sequences and other batches are not.

Axes: T iterations, R ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detectors import pace_fold
from detectors.evidence import Certainty, CheckState, Evidence, Pattern
from detectors.kernels import Fold
from detectors.slowdown import Slowdown, SlowdownConfig
from firstfault.telemetry import EventKind
from service.sentence import headline

from .block_builders import block, canonical, event, evidence_in, random_cuts, run
from .run_builders import SyntheticRun, judged


def times(iterations: int = 800, ranks: int = 8, seed: int = 0, sigma: float = 0.03) -> Any:
    """Step times of half a second, with a checkpoint every fifty steps."""
    time_TR = 0.5 * np.exp(np.random.default_rng(seed).normal(0.0, sigma, (iterations, ranks)))
    time_TR[::50] *= 20.0
    return time_TR


def found(step_time_TR: Any, **more: Any) -> list[Evidence]:
    evidence: list[Evidence] = evidence_in(run(Slowdown(), [block({"step_time_s": step_time_TR, **more})]))
    return evidence


@pytest.mark.parametrize("factor", [1.3, 2.0])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_rank_that_gets_slower_than_its_peers_is_named(factor: float, ranks: int) -> None:
    time_TR = times(ranks=ranks)
    time_TR[300:, 1] *= factor
    (one,) = found(time_TR)
    assert (one.pattern, one.certainty) == (Pattern.UTILIZATION_DROP, Certainty.CONFIRMED)
    assert (one.ranks, one.is_tie) == ((1,), False)
    assert one.last_clean is not None
    assert one.last_clean < 300 <= one.first_bad <= 310
    assert one.detail["relative_shift"] == pytest.approx(factor - 1, rel=0.15)


def test_a_rank_that_is_a_little_slower_is_left_alone() -> None:
    time_TR = times()
    time_TR[300:, 1] *= 1.15
    assert found(time_TR) == []


@pytest.mark.parametrize("steps", [60, 95])
def test_a_rank_that_is_slow_for_a_while_recovers(steps: int) -> None:
    time_TR = times()
    time_TR[300 : 300 + steps, 1] *= 1.5
    (one,) = found(time_TR)
    assert one.certainty is Certainty.RECOVERED


@pytest.mark.parametrize("ranks", [1, 8])
def test_a_run_that_gets_slower_is_told_without_a_rank(ranks: int) -> None:
    time_TR = times(ranks=ranks)
    time_TR[300:] *= 1.8
    (one,) = found(time_TR)
    assert (one.certainty, one.ranks, one.detail["kind"]) == (Certainty.CONFIRMED, (), "run")
    assert one.last_clean is not None
    assert one.last_clean < 300 <= one.first_bad <= 311
    assert one.statistic == pytest.approx(1.8, rel=0.05)


def test_a_run_that_is_slow_for_a_while_recovers() -> None:
    time_TR = times()
    time_TR[304:384] *= 1.8
    (one,) = found(time_TR)
    assert one.certainty is Certainty.RECOVERED


def test_evaluations_and_checkpoints_are_no_slowdown() -> None:
    time_TR = times(2000)
    time_TR[::20] *= 30.0
    time_TR[500:503] *= 50.0
    assert found(time_TR) == []


@pytest.mark.parametrize("sigma", [0.0, 0.03, 0.3])
def test_healthy_step_times_of_any_noise_are_quiet(sigma: float) -> None:
    assert found(times(10_000, seed=2, sigma=sigma)) == []


def test_longer_sequences_take_longer_by_the_step_and_not_by_the_token() -> None:
    time_TR, tokens_TR = times(), np.full((800, 8), 4096.0)
    time_TR[300:], tokens_TR[300:] = 2 * time_TR[300:], 2 * tokens_TR[300:]
    assert found(time_TR, tokens=tokens_TR) == []
    assert found(time_TR)


def test_another_batch_size_has_another_pace() -> None:
    time_TR = times()
    time_TR[300:] *= 2.0
    detector = Slowdown()
    assert (
        evidence_in(run(detector, [block(step_time_s=time_TR, events=[event(EventKind.BATCH_SIZE, 300)])]))
        == []
    )


def test_it_says_why_it_could_not_run() -> None:
    detector = Slowdown()
    detector.update(block(step_time_s=times(20)))
    assert detector.check().state is CheckState.NOT_RUN
    assert detector.check().why == "20 step times: the pace is known after 64"


def test_the_compiled_fold_gives_the_bits_of_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    time_TR = times()
    time_TR[300:] *= 1.8
    states = []
    for after in (0, 10**9, 400):
        fold = Fold(pace_fold.FOLD.function, *pace_fold.FOLD.parts, compile_after_points=after)
        monkeypatch.setattr(pace_fold, "FOLD", fold)
        detector = Slowdown()
        pieces = random_cuts(block(step_time_s=time_TR), np.random.default_rng(1))
        states.append(canonical((run(detector, pieces, finish=False), detector.snapshot()["pace"])))
    assert states[0] == states[1] == states[2]


def test_the_verdict_names_the_slow_rank_and_asks_for_no_restore() -> None:
    slow = SyntheticRun(iterations=400).set(
        "step_time_s", lambda _, t, r: 0.5 + 0.01 * ((3 * t + 5 * r) % 7), 0
    )
    slow.set("step_time_s", lambda old, *_: 1.5 * old, 150, ranks=[3])
    verdict = judged(slow)
    assert verdict["label"] == "stall"
    assert headline(verdict).startswith("job: stall. Rank 3 (host n0) slows down since iteration 150")
    actions = [step["action"] for step in verdict["incidents"][0]["advice"]]
    assert "check_clocks" in actions
    assert "restore_checkpoint" not in actions


@pytest.mark.parametrize(
    "setting", ["peer_factor", "peer_points", "run_factor", "sigmas", "iterations_per_alarm"]
)
def test_settings_out_of_range_are_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        SlowdownConfig(**{setting: 0})


@pytest.mark.parametrize("name", ["batch_size", "seq_len"])
def test_steps_that_hold_more_by_a_reported_size_are_not_slow(name: str) -> None:
    time_TR = times()
    time_TR[400:] *= 2.0
    size_TR = np.full(time_TR.shape, 1024.0)
    size_TR[400:] = 2048.0
    assert found(time_TR, **{name: size_TR}) == []
