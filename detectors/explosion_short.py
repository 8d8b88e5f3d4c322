"""Growth in a log too short for a baseline: the loss and the gradient norm leave their levels together.

Excerpts hold the moment and not the hour around it: three records of a run, the norm twenty-fold in the
second and the loss doubled in the third. One curve of so few points tells nothing; two that part together,
well after the start of the run and up to the end of the log, do. Axes: K points of a curve.
"""

from __future__ import annotations

import math

import numpy as np

from ingest.blocks import Floats

from .evidence import Certainty, Direction, Evidence, Json, Pattern
from .explosion_stream import DETECTOR, Stream

MOST_POINTS = 16
"""Points up to which a curve is too short to be judged by its own noise."""
RUNNING = 1000
"""Iteration before which loss and norm rise together in healthy runs: that is warm-up."""
LOSS_RATIO = 2.0
"""All losses after the parting over all before it: healthy spikes reach it at one point, without the norm."""
NORM_RATIO = 8.0
"""The same of the gradient norm."""
LOST_RATIO = 10.0
"""All losses to the end over all before: where that many points stay there, no norm is needed."""
LEAST_LOST = 4
"""Points that stay there."""
LEAST_LEVEL = 0.1
"""Loss from which on it was one: what begins smaller may be a penalty that grows out of nothing."""
LEAST_NORMS = 2
"""Norms that stay up: one is a bad batch."""


def grew_together(loss: Stream, norm: Stream, attempt: int) -> Evidence | None:
    """What two short curves say together; None if they do not part, or are long enough to be judged alone.

    The norm comes first or together with the loss: what the loss does alone is no matter of gradients.
    """
    if max(loss.points, norm.points) > MOST_POINTS:
        return None
    loss_K, loss_iteration_K = loss.window()
    log_norm_K, norm_iteration_K = norm.window()
    at = _parting(log_norm_K, math.log(NORM_RATIO))
    if at is None or len(log_norm_K) - at < LEAST_NORMS or int(norm_iteration_K[0]) < RUNNING:
        return None
    rise = _parting(np.log(loss_K), math.log(LOSS_RATIO)) if bool((loss_K > 0).all()) else None
    if rise is None or rise < 2 or loss_iteration_K[rise] < norm_iteration_K[at]:
        return None
    loss_ratio = float(loss_K[rise:].min() / loss_K[:rise].max())
    norm_K = np.exp(log_norm_K)
    detail: dict[str, Json] = {
        "baseline": float(norm_K[:at].max()),
        "peak": float(norm_K.max()),
        "loss_ratio": loss_ratio,
    }
    return Evidence(
        detector=DETECTOR,
        key=f"{norm.metric}/short",
        pattern=Pattern.SHARP_DEGRADE,
        certainty=Certainty.CONFIRMED,
        metric=norm.metric,
        attempt=attempt,
        iteration=int(norm_iteration_K[at]),
        first_bad=int(norm_iteration_K[at]),
        last_clean=int(norm_iteration_K[at - 1]),
        alarm_iteration=int(norm_iteration_K[-1]),
        statistic=float(norm_K[at:].min() / norm_K[:at].max()),
        threshold=NORM_RATIO,
        direction=Direction.UP,
        detail=detail,
    )


def stays_lost(loss: Stream, attempt: int) -> Evidence | None:
    """What a short curve says that leaves its level by the factor ten and stays there to the end."""
    loss_K, iteration_K = loss.window()
    if loss.points > MOST_POINTS or not bool((loss_K > 0).all()):
        return None
    at = _parting(np.log(loss_K), math.log(LOST_RATIO))
    if at is None or len(loss_K) - at < LEAST_LOST or loss_K[:at].max() < LEAST_LEVEL:
        return None
    return Evidence(
        detector=DETECTOR,
        key=f"{loss.metric}/short",
        pattern=Pattern.SHARP_DEGRADE,
        certainty=Certainty.CONFIRMED,
        metric=loss.metric,
        attempt=attempt,
        iteration=int(iteration_K[at]),
        first_bad=int(iteration_K[at]),
        last_clean=int(iteration_K[at - 1]),
        alarm_iteration=int(iteration_K[at + LEAST_LOST - 1]),
        statistic=float(loss_K[at:].min() / loss_K[:at].max()),
        threshold=LOST_RATIO,
        direction=Direction.UP,
        detail={"baseline": float(loss_K[:at].max()), "peak": float(loss_K.max())},
    )


def _parting(values_K: Floats, gap: float) -> int | None:
    """The first point from which on all are more than ``gap`` above all before it."""
    for at in range(1, len(values_K)):
        if values_K[at:].min() - values_K[:at].max() > gap:
            return at
    return None
