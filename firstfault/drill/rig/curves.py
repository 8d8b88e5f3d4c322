"""What a fault does to the whole curve: non-finite, growing, shifted, or a spike that passes.

Axes: T reported positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from .effects import SHIFT_POINTS, Departure, departure_of, first_shift, first_true, noise_of_curve, scaled
from .nonfinite_truth import skipped
from .recording import Flags, Floats, Ints, Recording

LOUD_LOSS = 2.0
"""A loss of twice what it would be is loud: slow explosions must be confirmed before that."""
LOUD_NORM = 10.0
"""Gradient norms wander by a factor of two or three in healthy runs; ten is loud."""
LOUD_SIGMA = 20.0
"""A loss near zero doubles by noise; it must stand out from that too."""
GROWING_POINTS = 3
"""Growth is three or more growing points; fewer are a jump."""
LASTING_POINTS = 50
"""What has not come back after 50 points is no spike that recovered."""
_IN_NOISE_SIGMA = 3.0
RAISED_SIGMA = 3.0
"""A level so much higher for `LASTING_POINTS` is seen as surely as one of a sigma for a hundred."""
_QUIET_GROWTH = 2.0  # a shift that less than doubles over SHIFT_POINTS points is no growth
STEP_SIGMA = 3.0
STEP_POINTS = 10
"""A level shift is that high over its first points already, and the curve itself has gone up by half of it;
what only gets there is a slope."""
RISE_SIGMA = 5.0
"""By so much a curve must rise over its own lowest level to be told from one that falls more slowly."""

GROWING = ("loss", "grad_norm")
SHIFTING = ("loss", "canary_loss", "eval_loss")
"""Curves whose level says something: a norm's may rise in a healthy run."""
SAMPLED = ("loss", "eval_loss")
"""Those of them with the noise of a sample, in which a slower decline cannot be seen."""


class Shape(StrEnum):
    """What happened to the curve."""

    NONFINITE = "nonfinite"
    GROWTH = "growth"
    SHARP = "sharp"
    """Loud at once, and it stays."""
    SHIFT = "shift"
    """Higher than it would be, for long, without a loud event before it."""
    SLOWER = "slower"
    """Such a shift of a curve that neither steps up nor rises: learning itself may take that course, and
    without the twin nothing tells the two apart."""
    SPIKE = "spike"
    """Back within `LASTING_POINTS`, or a level that falls, or that of a norm: it shows, and healthy runs do
    the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveEvent:
    """One event of one metric's curve."""

    metric: str
    shape: Shape
    position: int
    """Where it begins: of growth its first growing point."""


def curve_events(faulty: Recording, twin: Recording) -> list[CurveEvent]:
    """What the whole curves of loss, norms and evaluations show, by first position."""
    found: list[CurveEvent] = []
    skipped_T = skipped(faulty) | skipped(twin)
    for metric in sorted({*GROWING, *SHIFTING} & faulty.numbers.keys() & twin.numbers.keys()):
        rows, values_T, expected_T = mean_curves(faulty, twin, metric)
        if metric == "grad_norm":  # of a skipped step it is what overflowed, and no end of the curve
            done_T = ~skipped_T[rows]
            rows, values_T, expected_T = rows[done_T], values_T[done_T], expected_T[done_T]
        if len(rows):
            found += [
                CurveEvent(metric=metric, shape=shape, position=int(rows[at]))
                for shape, at in _events(metric, values_T, expected_T)
            ]
    return sorted(found, key=lambda one: (one.position, one.metric))


def mean_curves(faulty: Recording, twin: Recording, metric: str) -> tuple[Ints, Floats, Floats]:
    """Positions at which both report ``metric``, and both means over the ranks that do."""
    both_TR = faulty.present[metric] & twin.present[metric]
    rows = np.flatnonzero(both_TR.any(axis=1))
    means = []
    for run in (faulty, twin):
        with np.errstate(invalid="ignore", over="ignore"):
            total_T = np.where(both_TR, run.numbers[metric], 0.0).sum(axis=1)[rows]
        means.append(total_T / both_TR.sum(axis=1)[rows])
    return rows, means[0], means[1]


def _events(metric: str, values_T: Floats, expected_T: Floats) -> list[tuple[Shape, int]]:
    is_bad_T = ~np.isfinite(values_T) & np.isfinite(expected_T)
    bad = first_true(is_bad_T)
    stop = len(values_T) if bad is None else bad
    curve_T, twin_T = scaled(metric, values_T), scaled(metric, expected_T)
    sigma_T = noise_of_curve(np.where(np.isfinite(twin_T), twin_T, 0.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        z_T = ((curve_T - twin_T) / sigma_T)[:stop]
    left = departure_of((curve_T - twin_T)[:stop], sigma_T[:stop])
    loud_T = _is_loud(metric, values_T, expected_T)[:stop] & (z_T > LOUD_SIGMA)
    found: list[tuple[Shape, int]] = []
    at = _lasting_loud(loud_T, z_T)
    if at is None and bad is not None and stop and z_T[-1] > _IN_NOISE_SIGMA:
        at = stop - 1  # it grew, but was NaN before it was loud
    if at is not None:
        start = _growth_start(z_T, at)
        points = _growing_points(z_T[start : stop if bad is not None else at + LASTING_POINTS])
        found.append((Shape.GROWTH if points >= GROWING_POINTS else Shape.SHARP, start))
        if metric in SHIFTING and (quiet := _quiet_shift(z_T[: at + 1], left)) is not None:
            found.append((_shift_or_slower(metric, curve_T[: at + 1], z_T[: at + 1], sigma_T, quiet), quiet))
    elif left.first is not None:
        shape, at = _unloud(metric, z_T, left)
        if shape is Shape.SHIFT:
            shape = _shift_or_slower(metric, curve_T[:stop], z_T, sigma_T, at)
        found.append((shape, at))
    if bad is not None:
        found.append((Shape.NONFINITE, bad))
    return found


def _unloud(metric: str, z_T: Floats, left: Departure) -> tuple[Shape, int]:
    """What a curve shows that left its twin and was never loud: a higher level, or what passes."""
    raised = (left.shift, first_shift(z_T, LASTING_POINTS, RAISED_SIGMA))
    higher = [at for at in raised if at is not None and z_T[at] > 0] if metric in SHIFTING else []
    assert left.first is not None, "asked only of curves that left their twin"
    return (Shape.SHIFT, min(higher)) if higher else (Shape.SPIKE, left.first)


def _shift_or_slower(metric: str, curve_T: Floats, z_T: Floats, sigma_T: Floats, at: int) -> Shape:
    """Whether a higher level from ``at`` on came by a step, or by a rise of the curve itself."""
    if metric not in SAMPLED:
        return Shape.SHIFT
    before_T, after_T, sigma = curve_T[:at], curve_T[at:], float(sigma_T[at])
    if len(before_T) < STEP_POINTS:
        return Shape.SLOWER  # from the start on: there is no level that it could leave
    jump = float(np.median(after_T[:STEP_POINTS]) - np.median(before_T[-STEP_POINTS:]))
    is_step = float(np.median(z_T[at : at + STEP_POINTS])) >= STEP_SIGMA and jump >= STEP_SIGMA / 2 * sigma
    if is_step or min(len(before_T), len(after_T)) < LASTING_POINTS:
        return Shape.SHIFT if is_step else Shape.SLOWER
    rise = float(_trailing(after_T).max() - _trailing(before_T).min())
    return Shape.SHIFT if rise >= RISE_SIGMA * sigma else Shape.SLOWER


def _trailing(values_T: Floats) -> Floats:
    """Means of `LASTING_POINTS` points each."""
    sums = np.concatenate([[0.0], np.cumsum(values_T)])
    return np.asarray((sums[LASTING_POINTS:] - sums[:-LASTING_POINTS]) / LASTING_POINTS)


def _is_loud(metric: str, values_T: Floats, expected_T: Floats) -> Flags:
    factor = LOUD_NORM if metric.startswith("grad_norm") else LOUD_LOSS
    with np.errstate(invalid="ignore"):
        return np.asarray(values_T - expected_T > (factor - 1.0) * np.abs(expected_T))


def _lasting_loud(loud_T: Flags, z_T: Floats) -> int | None:
    """The first loud point from which the curve does not come back into its noise for `LASTING_POINTS`."""
    for at in np.flatnonzero(loud_T):
        after_T = z_T[at + 1 : at + 1 + LASTING_POINTS]
        back_T = after_T < _IN_NOISE_SIGMA
        # two in a row: a curve that oscillates as it diverges passes through its old level now and then
        if not len(after_T) or not (back_T[1:] & back_T[:-1]).any():
            return int(at)
    return None


def _growth_start(z_T: Floats, at: int) -> int:
    """The first point of the stretch up to ``at`` that is out of the noise."""
    quiet = np.flatnonzero(z_T[: at + 1] <= _IN_NOISE_SIGMA)
    return int(quiet[-1]) + 1 if len(quiet) else 0


def _growing_points(z_T: Floats) -> int:
    """Points above all before them, from the first one of the stretch on."""
    if not len(z_T):
        return 0
    highest_T = np.maximum.accumulate(z_T)
    return 1 + int((highest_T[1:] > highest_T[:-1]).sum())


def _quiet_shift(z_T: Floats, left: Departure) -> int | None:
    """A lasting upward shift that did not grow at first, ahead of the loud event."""
    at = left.shift
    if at is None or z_T[at] <= 0 or at + SHIFT_POINTS > len(z_T):
        return None
    quarter = SHIFT_POINTS // 4
    head, tail = (
        float(np.median(part)) for part in (z_T[at : at + quarter], z_T[at : at + SHIFT_POINTS][-quarter:])
    )
    return at if 0 < tail < _QUIET_GROWTH * max(head, 1.0) else None
