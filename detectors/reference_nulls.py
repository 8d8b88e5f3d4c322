"""How far windows of two healthy runs are apart: what a difference must exceed to be one.

Measured over the early common stretch, given by the caller, or bounded by how the ranks scatter. Where none
of these is there, only the floor is known, below which no difference counts whatever the null.

Axes: T common points, W windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingest.blocks import Floats

WINDOW_POINTS = 100
"""Points of a window: over so many, the same decoder job on other hardware differs by up to 0.5 %, and a
rise of 1 % stands out."""
FLOOR = "floor"
"""The name of the null that is none: only what is closer than the floor can be told."""
FALSE_ALARM_RATE = 1e-3
"""Chance that two runs that differ as they did in the early stretch are told apart, over all windows of a
curve together (Bonferroni over the windows, Student's t for the spread that is learned)."""
_CALIBRATION_SHARE = 1 / 3
"""Share of the rest that the null is learned from; what it holds cannot be accused."""
_MIN_FREEDOM = 5.0
"""Degrees of freedom below which a spread says nothing: at 5 the threshold is already 10 sigma."""
_FLOOR_EXPONENT = 0.42
"""How the floors grow as windows get shorter: from 0.51 % over 100 points to 1.0 % over 20, as measured."""


@dataclass(frozen=True, slots=True)
class Null:
    """How far the windows of two healthy runs are apart, and by how much of it they may differ."""

    name: str
    level: float
    spread: float
    threshold: float
    level_threshold: float


def given(tolerance: float | None) -> Null | None:
    """What the caller has measured elsewhere."""
    return None if tolerance is None else Null("given", 0.0, math.nan, tolerance, tolerance)


def learned(difference_T: Floats, size: int, floor: float, edges: Sequence[int]) -> Null | None:
    """The null of the early stretch; None where that is too short."""
    from scipy.stats import t as student

    stretch = difference_T[: int(len(difference_T) * _CALIBRATION_SHARE)]
    step = max(1, size // 4)
    means = [nanmean(stretch[at : at + size]) for at in range(0, len(stretch) - size + 1, step)]
    means_W = np.array([mean for mean in means if math.isfinite(mean)])
    freedom = 1.5 * (len(stretch) / size - 1)
    if freedom < _MIN_FREEDOM or len(means_W) < 2:
        return None
    level = float(np.median(means_W))
    spread = float(np.sqrt(((means_W - means_W.mean()) ** 2).sum() / (len(means_W) - 1)))
    sigmas = float(student.isf(FALSE_ALARM_RATE / 2 / max(1, len(edges)), freedom))
    least = least_of(floor, size)
    return Null(
        "early stretch",
        level,
        spread,
        max(least, sigmas * spread * math.sqrt(1 + size / len(stretch))),
        # a level of its own is what runs of one configuration do not have
        max(2 * least, sigmas * spread * math.sqrt(size / len(stretch))),
    )


def from_ranks(
    variance_T: Floats, curves: tuple[Floats, Floats], floor: float, size: int, edges: Sequence[int]
) -> Null | None:
    """The null that the scatter of ranks gives: batches are drawn anew at every iteration.

    It bounds sampling noise alone; that healthy runs also wander is what the floor is for. None where fewer
    than three ranks report for themselves at most points: a reduced value does not scatter.
    """
    middle_T = np.abs(curves[0]) / 2 + np.abs(curves[1]) / 2
    usable_T = np.isfinite(variance_T) & (middle_T > 0)
    if not edges or 2 * usable_T.sum() <= len(usable_T):
        return None
    from scipy.stats import norm

    spread = math.sqrt(float(np.mean(variance_T[usable_T] / middle_T[usable_T] ** 2)) / size)
    least = least_of(floor, size)
    threshold = max(least, float(norm.isf(FALSE_ALARM_RATE / 2 / len(edges))) * spread)
    return Null("scatter of ranks", 0.0, spread, threshold, math.inf)


def least_of(floor: float, size: int) -> float:
    """The least relative difference of means over ``size`` points that counts."""
    return floor * float((WINDOW_POINTS / size) ** _FLOOR_EXPONENT)


def from_floor(floor: float, size: int, means: Sequence[float]) -> Null | None:
    """What is known without a null: windows closer than the floor are the same whatever it would be.

    None where one of them is not: then nothing can be told.
    """
    least = least_of(floor, size)
    if not means or max(map(abs, means)) > least:
        return None
    return Null(FLOOR, 0.0, math.nan, least, math.inf)


def nanmean(values: Floats) -> float:
    """The mean of what is finite, NaN where that is less than half."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if 2 * len(finite) >= len(values) > 0 else math.nan
