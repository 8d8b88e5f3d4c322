"""A metric over the whole run in a bounded number of buckets that a curve can be drawn from without loss.

A bucket keeps the first, last, least and greatest of its medians over ranks: a line through these four
covers the same pixels as a line through all of them. Beside it the least and greatest value of any rank,
and how many values were not finite, by kind.

Axes: T positions, R ranks, B buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.blocks import Flags, Floats, Ints, NumberBlock

from .curves import row_medians

MAX_BUCKETS = 960
"""Buckets of one curve: as many as a chart has pixels; merged in pairs when there are more."""
_KINDS = ("nan", "posinf", "neginf", "inferred")


@dataclass(frozen=True, slots=True)
class CurveBucket:
    """Positions ``first`` to ``last``; numbers are None where none of them was finite."""

    first: int
    last: int
    start: float | None
    least: float | None
    greatest: float | None
    end: float | None
    """``start``, ``least``, ``greatest`` and ``end`` are of the medians over ranks."""
    low: float | None
    high: float | None
    """The least and greatest value of any rank."""
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    inferred: int = 0
    """Of the NaN those that were concluded from how the log is written."""

    @property
    def nonfinite(self) -> int:
        """Values that were not finite."""
        return self.nan + self.posinf + self.neginf


class CurveFolder:
    """One metric of one attempt."""

    def __init__(self) -> None:
        self._width, self._count = 1, 0
        self._columns: list[NDArray[Any]] = []

    def update(self, iteration_T: Ints, block: NumberBlock) -> None:
        """Take the next positions, ascending."""
        some_T = block.present_TR.any(axis=1)
        count = int(np.count_nonzero(some_T))
        if not count:
            return
        inferred_TR = None if block.inferred_TR is None else block.inferred_TR[some_T]
        rows = _rows(iteration_T[some_T], block.values_TR[some_T], block.present_TR[some_T], inferred_TR)
        bucket_T = (self._count + np.arange(count)) // self._width
        place_B = np.arange(len(self._columns[0])) if self._columns else np.empty(0, np.int64)
        held = self._columns or [row[:0] for row in rows]
        joined = [np.concatenate(pair) for pair in zip(held, rows, strict=True)]
        self._columns = _merged(joined, np.concatenate([place_B, bucket_T]))
        self._count += count
        while len(self._columns[0]) > MAX_BUCKETS:
            self._width *= 2
            self._columns = _merged(self._columns, np.arange(len(self._columns[0])) // 2)

    def buckets(self) -> list[CurveBucket]:
        """What was kept, ascending."""
        lists = [column.tolist() for column in self._columns]
        return [_bucket(row) for row in zip(*lists, strict=True)]


def thinned(buckets: Sequence[CurveBucket], most: int) -> Sequence[CurveBucket]:
    """At most ``most`` buckets that cover the same."""
    if len(buckets) <= most:
        return buckets
    each = -(-len(buckets) // most)
    return [_joined(buckets[at : at + each]) for at in range(0, len(buckets), each)]


def _joined(group: Sequence[CurveBucket]) -> CurveBucket:
    def known(name: str) -> list[float]:
        return [value for one in group if (value := getattr(one, name)) is not None]

    counts = {kind: sum(getattr(one, kind) for one in group) for kind in _KINDS}
    starts, ends = known("start"), known("end")
    return CurveBucket(
        first=group[0].first,
        last=group[-1].last,
        start=starts[0] if starts else None,
        least=min(known("least"), default=None),
        greatest=max(known("greatest"), default=None),
        end=ends[-1] if ends else None,
        low=min(known("low"), default=None),
        high=max(known("high"), default=None),
        **counts,
    )


def _rows(
    iteration_T: Ints, values_TR: Floats, present_TR: Flags, inferred_TR: Flags | None
) -> list[NDArray[Any]]:
    """A bucket for each position, as columns in the order of `CurveBucket`."""
    finite_TR = present_TR & np.isfinite(values_TR)
    median_T = row_medians(values_TR, finite_TR)
    is_inferred_TR = np.zeros_like(present_TR) if inferred_TR is None else inferred_TR & present_TR
    return [
        iteration_T,
        iteration_T,
        *[median_T] * 4,
        np.where(finite_TR, values_TR, np.inf).min(axis=1),
        np.where(finite_TR, values_TR, -np.inf).max(axis=1),
        (present_TR & np.isnan(values_TR)).sum(axis=1),
        (present_TR & np.isposinf(values_TR)).sum(axis=1),
        (present_TR & np.isneginf(values_TR)).sum(axis=1),
        is_inferred_TR.sum(axis=1),
    ]


def _merged(columns: list[NDArray[Any]], bucket: Ints) -> list[NDArray[Any]]:
    """Rows of equal, ascending ``bucket`` made one."""
    first = np.flatnonzero(np.append(True, np.diff(bucket) > 0))
    if len(first) == len(bucket):
        return columns
    last = np.append(first[1:], len(bucket)) - 1
    start, stop, *numbers, low, high, nan, posinf, neginf, inferred = columns
    least = np.fmin.reduceat(numbers[1], first)
    return [
        start[first],
        stop[last],
        _first_known(numbers[0], first, last),
        least,
        np.fmax.reduceat(numbers[2], first),
        _first_known(numbers[3][::-1], *_reversed(first, last))[::-1],
        np.minimum.reduceat(low, first),
        np.maximum.reduceat(high, first),
        *[np.add.reduceat(one, first) for one in (nan, posinf, neginf, inferred)],
    ]


def _reversed(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """The same groups counted from the end."""
    size = int(last[-1])
    return size - last[::-1], size - first[::-1]


def _first_known(values: Floats, first: Ints, last: Ints) -> Floats:
    """Of each group ``[first, last]`` the first value that is not NaN, NaN where all are."""
    place = np.where(np.isnan(values), len(values), np.arange(len(values)))
    found = np.minimum.reduceat(place, first)
    return np.where(found <= last, values[np.minimum(found, len(values) - 1)], np.nan)


def _bucket(row: tuple[Any, ...]) -> CurveBucket:
    first, last, start, least, greatest, end, low, high, *counts = row
    return CurveBucket(
        first,
        last,
        _known(start),
        _known(least),
        _known(greatest),
        _known(end),
        _known(low),
        _known(high),
        *counts,
    )


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None
