"""A curve at any zoom: the level of the pyramid that has the rows asked for, and no more.

Axes: B rows of a curve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from .history_access import Files
from .history_names import Claim
from .history_parquet import read_level
from .history_summary import LEVEL_BITS, MAX_LEVEL, Columns, bucket_starts, fold, joined, picked

_ROWS_READ = 4096
"""Rows that a curve is made of at least, if there are as many: more than a screen has columns."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A metric over its ranks, ascending; ``columns`` are those of `history_summary.COLUMNS`.

    With ``is_downsampled`` a row may stand for several positions: its extremes and counts are of all of
    them. ``level`` is the coarsest level of the pyramid it was read from.
    """

    metric: str
    level: int
    is_downsampled: bool
    columns: Columns


def read_curve(
    files: Files, found: Sequence[Claim], metric: str, start: int, last: int, *, points: int
) -> Curve:
    """A metric in the iterations ``start`` to ``last``, in at most ``points`` rows."""
    found = [one for one in found if one.last >= start and one.first <= last]
    if not found:
        return Curve(metric, 0, False, joined([]))
    limit = max(_ROWS_READ, points)
    span = min(last, found[-1].last) - max(start, found[0].first) + 1
    level = next(k for k in range(MAX_LEVEL + 1) if span >> (LEVEL_BITS * k) < limit or k == MAX_LEVEL)
    while True:
        used, rows = _level_rows(files, found, level, partial(read_level, metric=metric, last=last), start)
        size, positions = len(rows["iteration"]), int(rows["positions"].sum())
        # a bucket has at most 16 in the level below, and one of the first level as many as it counts
        below = positions if level == 1 else size << LEVEL_BITS
        if level == 0 or size == positions or below > limit:
            break
        level -= 1
    if size > points:
        place = np.arange(size) * points // size
        rows = fold(rows, np.flatnonzero(np.append(True, np.diff(place) != 0)))
    return Curve(metric, used, len(rows["iteration"]) < positions, rows)


def _level_rows(
    files: Files,
    found: Sequence[Claim],
    level: int,
    read: Callable[..., tuple[int, Columns] | None],
    start: int,
) -> tuple[int, Columns]:
    """The rows of ``level`` from ``start`` on, and the coarsest level that they were read from."""
    parts: list[Columns] = []
    used = 0
    for claim in found:
        # part of a file: its coarse buckets may count what another file answers for
        wanted = level if claim.is_whole else 0
        got = files.read(claim.path, partial(read, level=wanted, first=max(start, claim.first)))
        if got is not None:
            of_level, rows = got
            if not claim.is_whole:
                rows = picked(rows, rows["iteration"] >= claim.first)
            parts.append(rows)
            used = max(used, of_level)
    rows = joined(parts)
    return used, fold(rows, bucket_starts(rows["iteration"], level)) if level else rows
