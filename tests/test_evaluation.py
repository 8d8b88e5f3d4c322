"""An evaluation that falls while training goes on well; what is overfitting, noise or explained."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from detectors.evaluation import Evaluation, EvaluationConfig, direction_of
from detectors.evaluation_stream import EvaluationStream
from detectors.evidence import Certainty, Evidence, Pattern
from firstfault.telemetry import UNNAMED_RANK, EventKind
from ingest.blocks import IterationBlock
from service.sentence import headline

from .block_builders import annotations_in, block, event, evidence_in, masked, run
from .run_builders import SyntheticRun, judged

ITERATIONS, EVERY, ONSET = 600, 10, 400
Curve = NDArray[np.float64]


def job(
    metric: str = "eval_accuracy",
    fault: Callable[[Curve, Curve], Curve] = lambda values, _: values,
    *,
    loss: Callable[[Curve], Curve] | None = lambda loss: loss,
    noise: float = 0.01,
    **more: object,
) -> IterationBlock:
    """A job that learns, evaluated each tenth iteration; ``fault`` changes the (values, iterations)."""
    rng = np.random.default_rng(4)
    t = np.arange(ITERATIONS, dtype=np.float64)
    progress = 1 - np.exp(-t / 120)
    values = 4.2 - 2.1 * progress if metric.endswith("loss") else 0.1 + 0.6 * progress
    values = fault(values * np.exp(rng.normal(0, noise, ITERATIONS)), t)
    metrics = {metric: masked(values, t % EVERY != 0)}
    if loss is not None:
        metrics["loss"] = loss((4.0 - 2.0 * progress) * np.exp(rng.normal(0, 0.02, ITERATIONS)))
    return block(metrics, ranks=[UNNAMED_RANK], **more)  # type: ignore[arg-type]  # events alone


def fallen(by: float, stop: int = ITERATIONS) -> Callable[[Curve, Curve], Curve]:
    return lambda values, t: np.where((t >= ONSET) & (t < stop), values * by, values)


def found(stream: IterationBlock) -> list[Evidence]:
    return evidence_in(run(Evaluation(), [stream]))


@pytest.mark.parametrize(
    ("metric", "by"), [("eval_accuracy", 0.8), ("test_acc", 0.85), ("val_loss", 1.2), ("eval_ppl", 1.5)]
)
def test_a_lasting_fall_beside_a_good_training_loss_is_confirmed(metric: str, by: float) -> None:
    (fall,) = found(job(metric, fallen(by)))
    assert (fall.pattern, fall.certainty) == (Pattern.LOW_TEST_ACCURACY, Certainty.CONFIRMED)
    assert (fall.last_clean, fall.first_bad, fall.iteration) == (ONSET - EVERY, ONSET, ONSET)
    assert fall.detail["chance"] == pytest.approx(1 / 735471)


def test_few_points_behind_a_fall_leave_it_suspected() -> None:
    t = np.arange(450)
    accuracy = np.where(t >= ONSET, 0.5, 0.7) + 0.001 * (t % 7)
    stream = block(
        loss=np.linspace(4, 2, 450), eval_accuracy=masked(accuracy, t % EVERY != 0), ranks=[UNNAMED_RANK]
    )
    (fall,) = found(stream)
    assert fall.certainty is Certainty.SUSPECTED


def test_a_fall_that_comes_back_has_recovered() -> None:
    (fall,) = found(job(fault=fallen(0.8, 500)))
    assert fall.certainty is Certainty.RECOVERED


def test_an_evaluation_that_follows_the_training_loss_is_left_to_the_curve_of_the_loss() -> None:
    def worse(loss: Curve) -> Curve:
        return np.where(np.arange(ITERATIONS) >= ONSET, 1.1 * loss, loss)

    assert found(job("eval_loss", fallen(1.2), loss=worse)) == []


def test_without_a_training_loss_a_fall_is_no_more_than_suspected() -> None:
    (fall,) = found(job(fault=fallen(0.8), loss=None))
    assert fall.certainty is Certainty.SUSPECTED
    assert fall.detail["why_not_confirmed"] == "no training loss to hold it against"


@pytest.mark.parametrize("kind", [EventKind.DATA_CHANGE, EventKind.RESUME])
def test_a_fall_right_after_a_change_is_no_more_than_suspected(kind: EventKind) -> None:
    (fall,) = found(job(fault=fallen(0.8), events=[event(kind, ONSET - 3)]))
    assert fall.certainty is Certainty.SUSPECTED


@pytest.mark.parametrize("metric", ["eval_loss", "eval_accuracy"])
def test_overfitting_is_an_annotation_and_no_fault(metric: str) -> None:
    slope = 0.0015 if metric.endswith("loss") else -0.0015

    def creeping(values: Curve, t: Curve) -> Curve:
        return values * (1 + slope * np.maximum(t - 250, 0))

    findings = run(Evaluation(), [job(metric, creeping)])
    assert evidence_in(findings) == []
    (note,) = annotations_in(findings)
    assert note.kind == "overfitting"
    assert 150 <= note.iteration <= 350


def test_what_is_no_evaluation_is_not_watched() -> None:
    for name in ("eval_runtime", "eval_samples_per_second", "testing", "accuracy", "eval_loss_scale", "loss"):
        assert direction_of(name) == 0
    assert [direction_of(name) for name in ("eval_mmlu_acc", "val_rouge_f1", "eval_loss/c4")] == [1, 1, -1]


@pytest.mark.parametrize(("correlation", "limit"), [(0.0, 0), (0.6, 1)])
def test_noise_is_confirmed_no_more_often_than_is_said(correlation: float, limit: int) -> None:
    """10 000 evaluations of a level that does not change; 3 % of noise is far above that of real ones."""
    confirmed = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        level, stream = 0.0, EvaluationStream("eval_accuracy", 1, EvaluationConfig())
        for at in range(500):
            level = correlation * level + rng.normal(0, 0.03 * np.sqrt(1 - correlation**2))
            told = stream.take(at, float(0.7 * np.exp(level)), 2.0, (), 0)
            confirmed += sum(
                isinstance(one, Evidence) and one.certainty is Certainty.CONFIRMED for one in told
            )
    assert confirmed <= limit


def test_the_verdict_names_the_evaluation_and_asks_for_another() -> None:
    job_of_eight = SyntheticRun(iterations=300)
    for t in range(0, 300, 10):
        job_of_eight.set(
            "eval_accuracy", lambda _, at, __: 0.6 + 0.001 * (at % 30) - 0.2 * (at >= 200), t, t + 1, [0]
        )
    verdict = judged(job_of_eight)
    (incident,) = verdict["incidents"]
    assert (verdict["label"], incident["pattern"]) == ("silent_drift", "low_test_accuracy")
    assert incident["severity"] == "warning"
    assert "The evaluation accuracy got worse and stays so while training goes on" in headline(verdict)
    assert incident["advice"][0]["action"] == "evaluate_again"
    assert [cause["kind"] for cause in incident["causes"]][:2] == ["software", "data"]


def test_of_a_loss_that_creeps_up_overfitting_is_said_first_and_of_none_that_it_fell() -> None:
    job_of_eight = SyntheticRun(iterations=60)
    for t in range(60):
        rise = max(0.0, 0.01 * (t - 20))
        job_of_eight.set("eval_loss", lambda _, __, ___, rise=rise: 0.8 + rise, t, t + 1, [0])
    (incident,) = judged(job_of_eight)["incidents"]
    assert (incident["certainty"], incident["causes"][0]["kind"]) == ("suspected", "data")
    reasons = [reason for cause in incident["causes"] for reason in cause["because"]]
    assert "overfits" in reasons[0]
    assert not any("eval_loss fell" in reason for reason in reasons)
