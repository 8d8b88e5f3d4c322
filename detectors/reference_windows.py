"""Two curves of one configuration, beyond noise: do the means of windows differ by more than they did?

The relative difference d_t = (a_t - b_t) / mean(|a_t|, |b_t|) of two healthy runs is noise with a slow
wander of its own, so nothing is compared without a null that was measured: the spread of window means over
the early common stretch (after the warm-up, up to a third), in short logs the scatter of the ranks that
report for themselves, or a tolerance that the caller has measured elsewhere. Without, nothing is concluded.

Source: the spread of window means that overlap is the overlapping batch means estimator of Meketon and
Schmeiser, Overlapping Batch Means: Something for Nothing?, WSC 1984, with its degrees of freedom, 1.5 times
those of windows that do not overlap. Axes: T common points, W windows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ingest.blocks import Flags, Floats, Ints, IterationBlock, NumberBlock

from .reference_exact import Common
from .reference_nulls import WINDOW_POINTS, Null, from_floor, from_ranks, given, learned, nanmean

MIN_WINDOW_POINTS = 20
"""The same in short logs, where a window is a fifteenth of what is common: some must be there to learn."""
_SKIPPED_SHARE = 0.1
"""Share of the common points that are warm-up: there, runs that start alike part."""
_MIN_RANKS = 3
"""Ranks whose scatter says how far the mean over them is off: with two it may be small by chance."""
_SPIKE_SIGMAS = 8.0
"""Distance from the running median at which a point is a spike: those of two runs come at other points."""
_SPIKE_HALF_POINTS = 25
_MAX_SPIKE_SHARE = 0.05
"""Of more spikes than this share the curve consists, and none is masked."""
_NONFINITE_SHARE = 0.5
"""Share of a window that is not a number in one log alone at which it differs: single ones are skips."""
_NONFINITE_TAIL = 3
"""Last points that are not a number in one log alone at which it differs: a run that died of it ends so."""


FLOORS = {
    "loss": 0.007,
    "global_loss": 0.007,
    # norms of two healthy runs differ by tens of percent at single points; nothing smaller was measured
    "grad_norm": 0.1,
}
"""Curves that are compared, in the order in which they are told, each with the least relative difference of
means over `WINDOW_POINTS` that counts. Of the longest public healthy curves the same decoder job on other
hardware, topology or image differs by up to 0.51 %; curves of encoders differ by up to 11 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowComparison:
    """What became of one curve. ``verdict`` is ``same``, ``differs`` or ``no_null``."""

    metric: str
    points: int
    """Common points, spikes and non-finite ones left out."""
    spikes: int
    verdict: str
    why: str = ""
    window_points: int = 0
    windows: int = 0
    null: str = ""
    """``early stretch``, ``scatter of ranks``, ``given`` or ``floor``."""
    spread: float = math.nan
    """Standard deviation of window means in the null."""
    threshold: float = math.nan
    """Greatest |difference - level| of a window mean that is noise."""
    level: float = 0.0
    """Median difference over the early stretch."""
    worst: float = math.nan
    """The window mean farthest from the level, and where it is."""
    worst_from: int | None = None
    worst_to: int | None = None
    first_from: int | None = None
    """The first window beyond the threshold."""
    first_to: int | None = None


@np.errstate(over="ignore", invalid="ignore")  # what overflows is not finite, and left out like NaN
def compare_windows(
    first: IterationBlock, second: IterationBlock, tolerance: float | None = None
) -> list[WindowComparison]:
    """Each curve that both logs have; ``tolerance``: the relative difference that is called the same."""
    common = Common.of(first, second)
    compared = []
    for metric, floor in FLOORS.items():
        if metric in first.numbers and metric in second.numbers:
            (one_T, has_one_T), (two_T, has_two_T) = (
                _mean(block.numbers[metric], common.at_T[side]) for side, block in enumerate((first, second))
            )
            both_T = has_one_T & has_two_T
            pair = _Pair(
                metric=metric,
                floor=floor,
                iteration_T=common.iteration_T[both_T],
                curves=(one_T[both_T], two_T[both_T]),
                variance_T=(
                    _sampling_variance(first.numbers[metric], common.at_T[0])
                    + _sampling_variance(second.numbers[metric], common.at_T[1])
                )[both_T],
            )
            compared.append(_compare(pair, tolerance))
    return compared


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Pair:
    """One curve of both logs at their common points."""

    metric: str
    floor: float
    iteration_T: Ints
    curves: tuple[Floats, Floats]
    variance_T: Floats
    """Variance of the difference of the means, from how ranks scatter; NaN where too few report."""


def _sampling_variance(block: NumberBlock, at_T: Ints) -> Floats:
    """Variance of the mean over ranks at each point, by their scatter; NaN with fewer than three.

    Equal values count once: ranks of one tensor-parallel group report one loss.
    """
    values_TR = np.where(block.present_TR[at_T], block.values_TR[at_T], np.nan)
    sorted_TR = np.sort(values_TR, axis=1)
    distinct_T = (np.diff(sorted_TR, axis=1) > 0).sum(axis=1) + 1
    variance_T = np.full(len(at_T), np.nan)
    usable_T = (distinct_T >= _MIN_RANKS) & np.isfinite(np.where(block.present_TR[at_T], values_TR, 0.0)).all(
        axis=1
    )
    variance_T[usable_T] = np.nanvar(values_TR[usable_T], axis=1, ddof=1) / distinct_T[usable_T]
    return variance_T


def _mean(block: NumberBlock, at_T: Ints) -> tuple[Floats, Flags]:
    """(mean over the ranks that report, whether any does); NaN where any of them is not finite.

    Over all ranks of a log, not those that both have: the same job on twice the ranks is comparable.
    """
    values_TR, present_TR = block.values_TR[at_T], block.present_TR[at_T]
    count_T = present_TR.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean_T = np.where(present_TR, values_TR, 0.0).sum(axis=1) / count_T
    return np.where(np.isfinite(mean_T), mean_T, np.nan), count_T > 0


def _compare(pair: _Pair, tolerance: float | None) -> WindowComparison:
    iteration_T, curves = pair.iteration_T, pair.curves
    difference_T = _relative(*curves)
    spikes_T = _spikes(difference_T)
    difference_T = np.where(spikes_T, np.nan, difference_T)
    points = int(np.isfinite(difference_T).sum())
    size = min(WINDOW_POINTS, max(MIN_WINDOW_POINTS, len(difference_T) // 15))
    start = int(len(difference_T) * _SKIPPED_SHARE)
    edges = list(range(start, len(difference_T) - size + 1, size))
    blank = WindowComparison(
        metric=pair.metric,
        points=points,
        spikes=int(spikes_T.sum()),
        verdict="no_null",
        window_points=size,
        windows=len(edges),
    )
    one_sided = _one_sided(np.isnan(curves[0]) != np.isnan(curves[1]), edges, size)
    if one_sided is not None:
        first, last = (int(iteration_T[at]) for at in one_sided)
        why = "it is not a number in one of the logs alone"
        return replace(blank, verdict="differs", why=why, first_from=first, first_to=last)
    means = [(at, mean) for at in edges if math.isfinite(mean := nanmean(difference_T[at : at + size]))]
    null = given(tolerance) or learned(difference_T[start:], size, pair.floor, edges)
    null = null or from_ranks(pair.variance_T, pair.curves, pair.floor, size, edges)
    null = null or from_floor(pair.floor, size, [mean for _, mean in means])
    if null is None or not means:
        why = f"no calibrated null: {points} common points are too few to learn how such runs differ"
        return replace(blank, why=why)
    return _judged(blank, null, means, iteration_T)


def _one_sided(is_one_sided_T: Flags, edges: Sequence[int], size: int) -> tuple[int, int] | None:
    """The first window, or the end, that is not a number in one log alone: (first point, last point)."""
    for at in edges:
        if is_one_sided_T[at : at + size].mean() > _NONFINITE_SHARE:
            return at, at + size - 1
    two_sided = np.flatnonzero(~is_one_sided_T)
    tail = int(two_sided[-1]) + 1 if len(two_sided) else 0
    last = len(is_one_sided_T) - 1
    return (tail, last) if last - tail + 1 >= _NONFINITE_TAIL else None


def _relative(one_T: Floats, two_T: Floats) -> Floats:
    """The difference relative to the mean size; 0 where both are 0, NaN where either is not finite."""
    size_T = np.abs(one_T) / 2 + np.abs(two_T) / 2
    gap_T = one_T - two_T
    return np.divide(gap_T, size_T, out=np.where(np.isnan(gap_T), np.nan, 0.0), where=size_T > 0)


def _judged(
    blank: WindowComparison, null: Null, means: Sequence[tuple[int, float]], iteration_T: Ints
) -> WindowComparison:
    """Every window mean, by where the window starts, against the null."""
    worst_at, worst = max(means, key=lambda one: abs(one[1] - null.level))
    beyond = [at for at, mean in means if abs(mean - null.level) > null.threshold]
    is_apart = abs(null.level) > null.level_threshold
    first_at = means[0][0] if is_apart else beyond[0] if beyond else None
    last = blank.window_points - 1
    return replace(
        blank,
        verdict="same" if first_at is None else "differs",
        why="they differ from the early stretch on" if is_apart else "",
        windows=len(means),
        null=null.name,
        spread=null.spread,
        threshold=null.level_threshold if is_apart else null.threshold,
        level=null.level,
        worst=worst,
        worst_from=int(iteration_T[worst_at]),
        worst_to=int(iteration_T[worst_at + last]),
        first_from=None if first_at is None else int(iteration_T[first_at]),
        first_to=None if first_at is None else int(iteration_T[first_at + last]),
    )


def _spikes(difference_T: Floats) -> Flags:
    """Points far off the running median; none where they are no exception."""
    finite = np.flatnonzero(np.isfinite(difference_T))
    spikes_T = np.zeros(len(difference_T), np.bool_)
    if len(finite) < 2 * _SPIKE_HALF_POINTS:
        return spikes_T
    from scipy.ndimage import median_filter

    values = difference_T[finite]
    residual = values - median_filter(values, size=2 * _SPIKE_HALF_POINTS + 1, mode="nearest")
    sigma = 1.4826 * float(np.median(np.abs(residual)))
    is_far = np.abs(residual) > _SPIKE_SIGMAS * sigma
    if sigma > 0.0 and is_far.mean() <= _MAX_SPIKE_SHARE:
        spikes_T[finite[is_far]] = True
    return spikes_T
