"""A run's curves in a bounded number of buckets, extremes kept: what a plot is drawn from.

Axes: T positions, R ranks, B buckets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.blocks import Flags, Floats, Ints, IterationBlock

CURVE_METRICS = ("loss", "global_loss", "grad_norm", "local_grad_norm")
MAX_BUCKETS = 2048
"""Ten times the columns of a wide terminal; buckets are merged in pairs when there are more."""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One bucket of a curve. Numbers are None where no finite value was reported."""

    iteration: int
    median: float | None
    low: float | None
    high: float | None
    nonfinite: int


@dataclass(slots=True)
class _Buckets:
    """``width`` positions a bucket, ``count`` positions so far; the last bucket may be part full."""

    width: int
    count: int
    iteration_B: Ints
    median_B: Floats
    low_B: Floats
    high_B: Floats
    nonfinite_B: Ints

    def columns(self) -> list[NDArray[Any]]:
        return [self.iteration_B, self.median_B, self.low_B, self.high_B, self.nonfinite_B]


class CurveFold:
    """Per metric and bucket: first iteration, last median over ranks, extremes, non-finite values."""

    def __init__(self) -> None:
        self.buckets: dict[str, _Buckets] = {}

    def update(self, block: IterationBlock) -> None:
        """Take the next positions."""
        for metric in CURVE_METRICS:
            number = block.numbers.get(metric)
            if number is not None:
                self._extend(metric, block.iteration_T, number.values_TR, number.present_TR)

    def points(self, metric: str) -> list[CurvePoint]:
        """The curve so far, ascending; empty when the metric was not reported."""
        if metric not in self.buckets:
            return []
        columns = [column.tolist() for column in self.buckets[metric].columns()]
        return [
            CurvePoint(at, _finite(median), _finite(low), _finite(high), nonfinite)
            for at, median, low, high, nonfinite in zip(*columns, strict=True)
        ]

    def metrics(self) -> list[str]:
        """The metrics that have a curve."""
        return [metric for metric in CURVE_METRICS if metric in self.buckets]

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        return {metric: [b.width, b.count, *b.columns()] for metric, b in self.buckets.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        self.buckets = {metric: _Buckets(*saved) for metric, saved in state.items()}

    def _extend(self, metric: str, iteration_T: Ints, values_TR: Floats, present_TR: Flags) -> None:
        some_T = present_TR.any(axis=1)
        count = int(np.count_nonzero(some_T))
        if not count:
            return
        if count < len(present_TR):
            values_TR, present_TR = values_TR[some_T], present_TR[some_T]
            iteration_T = iteration_T[some_T]
        finite_TR = present_TR & np.isfinite(values_TR)
        held = self.buckets.get(metric) or _Buckets(1, 0, *_empty())
        while held.count + count > held.width * MAX_BUCKETS:
            held = _grouped(2 * held.width, held.count, held.columns(), np.arange(len(held.low_B)) // 2)
        new = [
            iteration_T,
            row_medians(values_TR, finite_TR),
            np.where(finite_TR, values_TR, np.inf).min(axis=1),
            np.where(finite_TR, values_TR, -np.inf).max(axis=1),
            (present_TR & ~finite_TR).sum(axis=1),
        ]
        all_rows = [np.concatenate(pair) for pair in zip(held.columns(), new, strict=True)]
        bucket = np.concatenate([np.arange(len(held.low_B)), (held.count + np.arange(count)) // held.width])
        self.buckets[metric] = _grouped(held.width, held.count + count, all_rows, bucket)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _empty() -> list[NDArray[Any]]:
    return [np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0), np.empty(0, np.int64)]


def _grouped(width: int, count: int, columns: list[NDArray[Any]], bucket: Ints) -> _Buckets:
    """Rows of equal, ascending ``bucket`` made one."""
    if not len(bucket):
        return _Buckets(width, count, *_empty())
    first = np.flatnonzero(np.append(True, np.diff(bucket) > 0))
    last = np.append(first[1:], len(bucket)) - 1
    iteration, median, low, high, nonfinite = columns
    return _Buckets(
        width,
        count,
        iteration[first],
        median[last],
        np.minimum.reduceat(low, first),
        np.maximum.reduceat(high, first),
        np.add.reduceat(nonfinite, first),
    )


def row_medians(values_TR: Floats, finite_TR: Flags) -> Floats:
    """Lower median of the finite values of each row, NaN where there is none."""
    if values_TR.shape[1] == 1:
        return np.where(finite_TR[:, 0], values_TR[:, 0], np.nan)
    ordered_TR = np.sort(np.where(finite_TR, values_TR, np.inf), axis=1)
    middle_T = np.maximum(finite_TR.sum(axis=1) - 1, 0) // 2
    median_T = ordered_TR[np.arange(len(ordered_TR)), middle_T]
    return np.where(finite_TR.any(axis=1), median_T, np.nan)
