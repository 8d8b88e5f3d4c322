"""Pictures of the detectors of whole curves: `explosion`, `curve_drift`, `evaluation`.

Where a detector keeps its statistic only once it passes its threshold, its own test is asked again, on a
copy of its state and with the threshold at nothing: the same arithmetic on the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from detectors import drift_state, drift_tests, explosion_baseline, explosion_growth
from detectors.curve_drift import CurveDrift
from detectors.curve_gates import step_sigmas
from detectors.drift_stream import Stream as DriftStream
from detectors.evaluation import Evaluation
from detectors.evaluation_stream import LEAST_BEFORE, SUSPECT_AFTER, SUSPECT_BEFORE, EvaluationStream
from detectors.explosion import Explosion
from detectors.explosion_stream import Stream as ExplosionStream
from ingest.blocks import IterationBlock
from tests.block_builders import block, masked

from .drawing import Drawn, drawn
from .svg import Line, Panel
from .trace import only, sample, watch


def explosion_fires() -> Drawn:
    """The sample log ``explosion_late``: the learning rate goes wrong at 562."""
    title = "explosion fires: the loss leaves its level and does not come back"
    return _explosion(title, only(sample("explosion_late"), "loss"), onset=562, window=(500.0, 660.0))


def explosion_quiet() -> Drawn:
    """The sample log ``spike_recovered``."""
    return _explosion("explosion stays quiet: a spike that recovers", only(sample("spike_recovered"), "loss"))


def curve_drift_fires() -> Drawn:
    """A loss that still falls, and lies 4 % higher from 600 on."""
    return _drift("curve_drift fires: the level is 4 % higher from 600 on", [_falling_loss(1.04)], onset=600)


def curve_drift_quiet() -> Drawn:
    """The same loss, whose decline slows down instead; and, at 600, four bad batches."""
    whole = _falling_loss(1.0, spike=1.25)
    return _drift("curve_drift confirms nothing: a decline that slows, and a spike", [whole])


def evaluation_fires() -> Drawn:
    """The sample log ``eval_falls``: what is evaluated is not what is trained."""
    blocks = only(sample("eval_falls"), "eval_accuracy", "loss")
    return _evaluation(
        "evaluation fires: accuracy falls in a step while the loss goes on well", blocks, onset=435
    )


def evaluation_quiet() -> Drawn:
    """Overfitting: the accuracy sinks by and by while the training loss falls."""
    T = 900
    rng = np.random.default_rng(3)
    t = np.arange(T)
    accuracy_T = 0.2 + 0.5 * (1 - np.exp(-t / 100)) - 0.12 * np.maximum(0.0, (t - 400) / 500)
    seldom_T = t % 10 != 0
    whole = block(
        loss=(2.0 + 2.0 * np.exp(-t / 300)) * np.exp(rng.normal(0.0, 0.02, T)),
        eval_accuracy=masked(accuracy_T * np.exp(rng.normal(0.0, 0.01, T)), seldom_T),
    )
    return _evaluation("evaluation stays quiet: overfitting, an accuracy that sinks by and by", [whole])


def _falling_loss(step: float, spike: float = 1.0) -> IterationBlock:
    t = np.arange(1000)
    loss_T = (2.0 + 2.0 * np.exp(-t / 150)) * np.exp(np.random.default_rng(0).normal(0.0, 0.012, len(t)))
    loss_T[600:] *= step
    loss_T[600:604] *= spike
    return block(loss=loss_T)


def _explosion(
    title: str,
    blocks: Sequence[IterationBlock],
    onset: int | None = None,
    window: tuple[float, float] | None = None,
) -> Drawn:
    detector = Explosion()

    def read(piece: IterationBlock) -> dict[str, float]:
        stream = detector._streams.get("loss")
        numbers = piece.numbers.get("loss")
        value = float(np.nanmedian(numbers.values_TR)) if numbers is not None else math.nan
        return {"value": value if math.isfinite(value) else math.nan, **_growth(stream, value)}

    trace = watch(detector, blocks, read)
    x_K, columns = trace.iterations, trace.columns
    curve = Panel(
        label="loss, median of the ranks",
        is_log=True,
        lines=[
            Line(x_K=x_K, y_K=columns["base"], role="peer", name="baseline"),
            Line(x_K=x_K, y_K=columns["value"], name="loss"),
        ],
    )
    inside = [
        (excess, gate)
        for x, excess, gate in zip(x_K, columns["excess"], columns["gate"], strict=True)
        if window is None or window[0] <= x <= window[1]
    ]
    growth = Panel(
        label="(loss − baseline) / unit, relative",
        top=min(3.0, max(value for pair in inside for value in pair if math.isfinite(value))),
        floor=-0.25,
        lines=[
            Line(x_K=x_K, y_K=columns["gate"], role="limit", name="high above"),
            Line(x_K=x_K, y_K=columns["excess"], name="excess"),
        ],
    )
    return drawn(title, trace, [curve, growth], onset, x_range=window)


def _growth(stream: ExplosionStream | None, value: float) -> dict[str, float]:
    """Baseline, excess and gate after a point, the last two in the unit of the curve."""
    if stream is None or not math.isfinite(value):
        return {"base": math.nan, "excess": math.nan, "gate": math.nan}
    ints, floats, _, ordered = stream.arrays[:4]
    knobs = stream.knobs
    count = int(ints[explosion_baseline.IN_WINDOW])
    if ints[explosion_baseline.PHASE] != explosion_growth.QUIET or ints[explosion_baseline.HIGH_RUN] > 0:
        base, gate, unit = (
            float(floats[at])
            for at in (explosion_baseline.BASE, explosion_baseline.GATE, explosion_baseline.UNIT)
        )
    elif count < explosion_baseline.WARM:
        return {"base": math.nan, "excess": math.nan, "gate": math.nan}
    else:
        base = explosion_baseline.median_sorted(ordered.tolist(), count)
        sigma = 1.25 * float(floats[explosion_baseline.NOISE])
        unit = explosion_baseline.unit_of(
            base, sigma, float(floats[explosion_baseline.FLOOR]), float(knobs[explosion_growth.RELATIVE])
        )
        gate = max(float(knobs[explosion_growth.RISE]) * unit, float(knobs[explosion_growth.SIGMAS]) * sigma)
    return {"base": base, "excess": (value - base) / unit, "gate": gate / unit}


def _drift(title: str, blocks: Sequence[IterationBlock], onset: int | None = None) -> Drawn:
    detector = CurveDrift()

    def read(piece: IterationBlock) -> dict[str, float]:
        value = float(np.nanmedian(piece.numbers["loss"].values_TR))
        return {"value": value, **_step_scores(detector._streams["loss"])}

    trace = watch(detector, blocks, read)
    x_K, columns = trace.iterations, trace.columns
    at_K = np.flatnonzero(~np.isnan(columns["score"])).tolist()
    curve = Panel(label="loss", lines=[Line(x_K=x_K, y_K=columns["value"], name="loss")])
    score = Panel(
        label="step score, σ",
        floor=0.0,
        lines=[
            Line(
                x_K=x_K,
                y_K=[step_sigmas(detector.config.suspected_per_million)] * len(x_K),
                role="limit",
                name="suspected above",
            ),
            Line(
                x_K=[x_K[k] for k in at_K],
                y_K=[columns["score"][k] for k in at_K],
                name="each 8 points: greatest over all places",
                dots=True,
            ),
        ],
    )
    return drawn(title, trace, [curve, score], onset)


def _step_scores(stream: DriftStream) -> dict[str, float]:
    """The score that the step test gives at a full mini-block, whether or not it passes the threshold."""
    ints, floats, _, minis, *_, scratch = (array.tolist() for array in stream.arrays)
    knobs = stream.knobs.tolist()
    is_settled = ints[drift_state.PHASE] == drift_state.SHIFTED
    if ints[drift_state.IN_MINI] != 0 or ints[drift_state.MINIS] < drift_state.WARM or is_settled:
        return {"score": math.nan}
    if ints[drift_state.PHASE] == drift_state.SUSPICIOUS:
        return {"score": float(floats[drift_state.SCORE])}
    knobs[drift_state.SUSPECT_Z], knobs[drift_state.MIN_STEP] = 0.0, 0.0
    floats[drift_state.SCORE] = 0.0
    drift_tests.watch_step(ints, floats, minis, scratch, knobs)
    return {"score": float(floats[drift_state.SCORE])}


def _evaluation(title: str, blocks: Sequence[IterationBlock], onset: int | None = None) -> Drawn:
    detector = Evaluation()

    def read(piece: IterationBlock) -> dict[str, float]:
        stream = detector._streams.get("eval_accuracy")
        numbers = piece.numbers.get("eval_accuracy")
        if stream is None or numbers is None:
            return dict.fromkeys(("value", "fall", "sigmas"), math.nan)
        return {"value": float(np.nanmedian(numbers.values_TR)), **_fall(stream)}

    trace = watch(detector, blocks, read)
    at_K = np.flatnonzero(~np.isnan(trace.columns["value"])).tolist()
    x_K = [trace.iterations[k] for k in at_K]
    value_K, fall_K = ([trace.columns[name][k] for k in at_K] for name in ("value", "fall"))
    curve = Panel(
        label="accuracy, fraction", lines=[Line(x_K=x_K, y_K=value_K, name="eval_accuracy", dots=True)]
    )
    fall = Panel(
        label="fall of the median, relative, where all of the last 4 are below all before",
        floor=0.0,
        top=max(0.1, float(np.nanmax(fall_K))),
        lines=[
            Line(x_K=x_K, y_K=[detector.config.min_fall] * len(x_K), role="limit"),
            Line(x_K=x_K, y_K=fall_K, dots=True),
        ],
    )
    return drawn(title, trace, [curve, fall], onset)


def _fall(stream: EvaluationStream) -> dict[str, float]:
    """The fall that the rank test weighs, 0 where the points before and after are not apart."""
    config = stream._config
    stream._config = replace(config, min_fall=0.001, min_sigmas=0.0)
    found = stream._test(SUSPECT_AFTER, LEAST_BEFORE, SUSPECT_BEFORE, 0.0)
    stream._config = config
    if found is None:
        return {"fall": 0.0}
    before_B3, after_M3 = found
    level = float(np.median(before_B3[:, 1]))
    return {"fall": (level - float(np.median(after_M3[:, 1]))) / abs(level)}
