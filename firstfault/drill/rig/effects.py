"""Where a faulty run first differs from its golden twin, per metric.

A value that a deterministic job repeats to the bit (checksums, counts, flags) differs when one bit does. A
noisy curve differs when it is more than `JUMP_SIGMA` away once, or more than `SHIFT_SIGMA` for
`SHIFT_POINTS` points: less than that no detector can tell from noise without the twin.
Axes: T positions, R ranks, B windows of positions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...telemetry import Kind, contract_of
from .recording import Flags, Floats, Ints, Recording

JUMP_SIGMA = 8.0
"""One point so far off is observable: a Gaussian goes that far once in 1e15 points."""
SHIFT_SIGMA = 1.0
SHIFT_POINTS = 100
"""A mean of 100 points that is one sigma off stands ten standard errors out."""
WINDOW = 50
"""Positions over which the noise of a curve is taken to be the same: it falls as training goes on."""
_RELATIVE_FLOOR = 1e-6
"""Noise below this share of the value is rounding of 32-bit floats, not noise."""
_NORMAL_OF_MAD = 1.4826
_SMALLEST = 1e-30  # a norm of zero has a logarithm too

_NOISY_KINDS = (Kind.CURVE, Kind.AGREED, Kind.SKETCH)
_SCALE_FREE = ("norm", "absmax")
"""Metrics of these names are compared by their logarithms: their noise is a factor."""


@dataclass(frozen=True, slots=True)
class Departure:
    """Where a curve leaves its twin: by a jump of one point, or by a shift that lasts; None: it does not."""

    jump: int | None
    shift: int | None

    @property
    def first(self) -> int | None:
        """The earlier one."""
        found = [at for at in (self.jump, self.shift) if at is not None]
        return min(found, default=None)


def first_effects(faulty: Recording, twin: Recording) -> dict[str, int]:
    """Per metric the first iteration at which it differs from the twin; those that never do are left out."""
    found: dict[str, int] = {}
    for metric in sorted(twin.present.keys() & faulty.present.keys()):
        at = first_effect(faulty, twin, metric)
        if at is not None:
            found[metric] = int(twin.iterations_T[at])
    return found


def first_effect(faulty: Recording, twin: Recording, metric: str) -> int | None:
    """The first position at which one metric of any rank differs from the twin's."""
    present_TR = faulty.present[metric] & twin.present[metric]
    if metric in twin.checksums:
        return first_true(present_TR & (faulty.checksums[metric] != twin.checksums[metric]))
    values_TR, expected_TR = faulty.numbers[metric], twin.numbers[metric]
    if not is_noisy(metric):
        same_TR = (values_TR == expected_TR) | (np.isnan(values_TR) & np.isnan(expected_TR))
        return first_true(present_TR & ~same_TR)
    found = [first_true(present_TR & ~np.isfinite(values_TR) & np.isfinite(expected_TR))]
    for rank in np.flatnonzero(present_TR.any(axis=0)):
        rows = np.flatnonzero(present_TR[:, rank])
        left = departure(scaled(metric, values_TR[rows, rank]), scaled(metric, expected_TR[rows, rank]))
        found.append(None if left.first is None else int(rows[left.first]))
    return min((at for at in found if at is not None), default=None)


def is_noisy(metric: str) -> bool:
    """Whether a metric has noise of its own, so that only a large difference shows."""
    return contract_of(metric).kind in _NOISY_KINDS or metric.partition("/")[0].startswith("eval_")


def scaled(metric: str, values: Floats) -> Floats:
    """A metric on the scale on which its noise is even: norms by their logarithm, the others as they are."""
    if not metric.partition("/")[0].endswith(_SCALE_FREE):
        return values
    with np.errstate(divide="ignore", invalid="ignore"):
        logs: Floats = np.log(np.maximum(values, _SMALLEST))
    return logs


def departure(values_T: Floats, expected_T: Floats) -> Departure:
    """Where a curve leaves its twin, by the twin's own noise from point to point."""
    return departure_of(values_T - expected_T, noise_of_curve(expected_T))


def departure_of(difference_T: Floats, sigma_T: Floats) -> Departure:
    """Where a difference from what was expected passes the bounds; NaN is no difference, but non-finite."""
    with np.errstate(invalid="ignore", divide="ignore"):
        z_T = np.nan_to_num(difference_T / sigma_T, nan=0.0, posinf=1e9, neginf=-1e9)
    return Departure(first_true(np.abs(z_T) > JUMP_SIGMA), first_shift(z_T))


def first_shift(z_T: Floats, points: int = SHIFT_POINTS, sigma: float = SHIFT_SIGMA) -> int | None:
    """The first point more than ``sigma`` off whose next ``points`` points are so on average.

    >>> first_shift(np.concatenate([np.zeros(50), np.full(120, 1.5)]))
    50
    """
    if len(z_T) < points:
        return None
    sums = np.concatenate([[0.0], np.cumsum(np.clip(z_T, -JUMP_SIGMA, JUMP_SIGMA))])
    mean_B = (sums[points:] - sums[:-points]) / points
    head_B = z_T[: len(mean_B)]
    return first_true((np.abs(mean_B) > sigma) & (head_B * np.sign(mean_B) > sigma))


def noise_of_curve(values_T: Floats) -> Floats:
    """Standard deviation of a curve from one point to the next, by windows; trend hardly counts."""
    steps_T = np.abs(np.diff(values_T, prepend=values_T[:1])) / np.sqrt(2.0)
    return _pooled(steps_T[:, None], values_T)


def noise_of_residuals(residual_TR: Floats, level_T: Floats) -> Floats:
    """Standard deviation of residuals of several ranks, pooled over ranks and windows of positions."""
    centred_TR = np.abs(residual_TR - np.nanmedian(residual_TR, axis=0, keepdims=True))
    return _pooled(centred_TR, level_T)


def first_true(flags: Flags) -> int | None:
    """The first row that holds a True."""
    rows: Ints = np.flatnonzero(flags.any(axis=1) if flags.ndim > 1 else flags)
    return int(rows[0]) if len(rows) else None


def _pooled(size_TR: Floats, level_T: Floats) -> Floats:
    """Median size of windows as a standard deviation, the greater of each three neighbours, per position."""
    count = max(1, len(level_T) // WINDOW)
    usual_B = np.array([_median(part) for part in np.array_split(size_TR, count)])
    # a window of smooth warm-up, or one that a scaler skipped, would make its neighbours' noise an effect
    padded_B = np.concatenate([usual_B[:1], usual_B, usual_B[-1:]])
    usual_B = np.maximum(np.maximum(padded_B[:-2], padded_B[1:-1]), padded_B[2:])
    owner_T = np.repeat(np.arange(count), [len(part) for part in np.array_split(level_T, count)])
    floor_T = _RELATIVE_FLOOR * np.maximum(np.abs(np.nan_to_num(level_T, posinf=0.0, neginf=0.0)), _SMALLEST)
    return np.asarray(np.maximum(_NORMAL_OF_MAD * usual_B[owner_T], floor_T))


def _median(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else 0.0
