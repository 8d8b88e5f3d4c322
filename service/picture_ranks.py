"""How far each rank was from its peers, position by position, in bounded memory: what a strip is drawn from.

A number is held against the median of the ranks at the same position, a checksum against the majority of
its replicas, a count of non-finite values against zero. Positions are merged in pairs when there are too
many cells; a cell keeps the worst of what was merged.

Axes: T positions, R ranks, B buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detectors.rank_groups import groups_of
from firstfault.mesh import Layout
from firstfault.telemetry import Kind
from ingest.blocks import ChecksumBlock, Flags, Floats, Ints, IterationBlock, NumberBlock, Ranks

from .curves import row_medians

MAX_CELLS = 1 << 19
"""Cells of one metric: 65 000 positions of 8 ranks, 500 of 1000, 50 of 10 000; 5 bytes each."""
STRIP_COLUMNS = 96
"""Columns of a strip: wide enough to be seen on a phone, enough to show what came before and after."""
_LEVELS = (3.0, 6.0, 12.0, 24.0)
"""Distance from the peers, in robust standard deviations, from which on a cell is darker."""
_RECENT = 9
"""Positions of the mean that shows what lasts."""
_BEFORE = 0.6
"""Share of a strip's columns that lie before the onset."""


class Cell(IntEnum):
    """What a rank showed at a position, the worse the higher."""

    MISSING = 0
    SAME = 1
    LEVEL_1 = 2
    LEVEL_2 = 3
    LEVEL_3 = 4
    LEVEL_4 = 5
    DIFFERS = 6
    INFINITE = 7
    NAN = 8


@dataclass(frozen=True, slots=True)
class RankStrip:
    """Ranks × positions of one metric around an iteration."""

    metric: str
    kind: str
    """``number``, ``checksum`` or ``count``."""
    ranks: tuple[int, ...]
    first: tuple[int, ...]
    """Of each column the first of its iterations."""
    last: tuple[int, ...]
    cells_BR: NDArray[np.uint8]

    def first_bad(self, rank: int) -> int | None:
        """The first column's iteration at which a rank differs or is not finite; None if it never is."""
        at = self.ranks.index(rank)
        bad = np.flatnonzero(self.cells_BR[:, at] >= Cell.DIFFERS)
        return self.first[int(bad[0])] if len(bad) else None


class RankFolder:
    """One metric of one attempt."""

    def __init__(self, metric: str, kind: str) -> None:
        self._metric, self._kind = metric, kind
        self._width, self._count = 1, 0
        self._ranks_R: Ranks = np.empty(0, np.int32)
        self._first_B: Ints = np.empty(0, np.int64)
        self._last_B: Ints = np.empty(0, np.int64)
        self._code_BR: NDArray[np.uint8] = np.empty((0, 0), np.uint8)
        self._away_BR: NDArray[np.float32] = np.empty((0, 0), np.float32)

    def update(self, block: IterationBlock) -> None:
        """Take the next positions, ascending."""
        number, checksum = block.numbers.get(self._metric), block.checksums.get(self._metric)
        present_TR = number.present_TR if number is not None else checksum.present_TR if checksum else None
        if present_TR is None or not present_TR.any():
            return
        some_T: Flags = np.any(present_TR, axis=1)
        if number is not None:
            code_TR, away_TR = _of_number(number, some_T, is_count=self._kind == "count")
        else:
            assert checksum is not None, "a metric is a number or a checksum"
            code_TR, away_TR = _of_checksum(checksum, some_T, block.layout, block.ranks_R)
        self._extend(block.iteration_T[some_T], block.ranks_R, code_TR, away_TR)

    def strip(self, onset: int | None) -> RankStrip | None:
        """The columns around ``onset`` (the last ones without); None for a single rank."""
        if len(self._ranks_R) < 2 or not len(self._first_B):
            return None
        stop = len(self._first_B)
        if onset is not None:
            at = int(np.searchsorted(self._last_B, onset))
            stop = min(stop, max(STRIP_COLUMNS, at + round(STRIP_COLUMNS * (1 - _BEFORE))))
        part = slice(max(0, stop - STRIP_COLUMNS), stop)
        return RankStrip(
            metric=self._metric,
            kind=self._kind,
            ranks=tuple(self._ranks_R.tolist()),
            first=tuple(self._first_B[part].tolist()),
            last=tuple(self._last_B[part].tolist()),
            cells_BR=self._cells(part, onset),
        )

    def _cells(self, part: slice, onset: int | None) -> NDArray[np.uint8]:
        """Distances as levels; their scale is what was usual before the onset."""
        cells_BR = self._code_BR[part].copy()
        if self._kind != "number":
            return cells_BR
        usual_B = slice(None) if onset is None else self._last_B < onset
        levels_BR = np.maximum(
            _levels(self._away_BR, self._code_BR == Cell.SAME, usual_B)[part],
            # what lasts is seen in the mean of a few positions long before it is in any of them
            _levels(_recent_means(self._away_BR), self._code_BR == Cell.SAME, usual_B)[part],
        )
        return np.where(cells_BR == Cell.SAME, levels_BR, cells_BR).astype(np.uint8)

    def _extend(
        self, iteration_T: Ints, ranks_R: Ranks, code_TR: NDArray[np.uint8], away_TR: NDArray[np.float32]
    ) -> None:
        union_R = np.union1d(self._ranks_R, ranks_R).astype(np.int32)
        code, away = (
            np.concatenate([_spread(held, self._ranks_R, union_R), _spread(new, ranks_R, union_R)])
            for held, new in ((self._code_BR, code_TR), (self._away_BR, away_TR))
        )
        bucket_T = (self._count + np.arange(len(iteration_T))) // self._width
        bucket = np.concatenate([np.arange(len(self._first_B)), bucket_T])
        self._count += len(iteration_T)
        self._ranks_R = union_R
        first_B = np.concatenate([self._first_B, iteration_T])
        last_B = np.concatenate([self._last_B, iteration_T])
        self._hold([first_B, last_B, code, away], bucket)
        while self._code_BR.size > max(MAX_CELLS, 2 * len(union_R)):
            self._width *= 2
            held: list[NDArray[Any]] = [self._first_B, self._last_B, self._code_BR, self._away_BR]
            self._hold(held, np.arange(len(self._first_B)) // 2)

    def _hold(self, columns: Sequence[NDArray[Any]], bucket: Ints) -> None:
        first = np.flatnonzero(np.append(True, np.diff(bucket) > 0))
        last = np.append(first[1:], len(bucket)) - 1
        self._first_B, self._last_B = columns[0][first], columns[1][last]
        self._code_BR = np.maximum.reduceat(columns[2], first, axis=0)
        lowest, greatest = (each.reduceat(columns[3], first, axis=0) for each in (np.minimum, np.maximum))
        self._away_BR = np.where(-lowest > greatest, lowest, greatest)


def kind_of(block: IterationBlock, metric: str) -> str:
    """How ranks are held against each other in ``metric``."""
    if metric in block.checksums:
        return "checksum"
    return "count" if block.contracts.of(metric).kind is Kind.NONFINITE_COUNT else "number"


def _of_number(
    number: NumberBlock, some_T: Flags, *, is_count: bool
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    values_TR, present_TR = number.values_TR[some_T], number.present_TR[some_T]
    finite_TR = present_TR & np.isfinite(values_TR)
    code_TR = np.where(present_TR, np.uint8(Cell.SAME), np.uint8(Cell.MISSING))
    code_TR[present_TR & np.isnan(values_TR)] = Cell.NAN
    code_TR[present_TR & np.isinf(values_TR)] = Cell.INFINITE
    if is_count:
        code_TR[finite_TR & (values_TR > 0)] = Cell.DIFFERS
        return code_TR, np.zeros(code_TR.shape, np.float32)
    return code_TR, _distance(values_TR, finite_TR)


def _distance(values_TR: Floats, finite_TR: Flags) -> NDArray[np.float32]:
    """Signed distance from the median of the ranks as a share of it; 0 where either is not finite."""
    median_T1 = row_medians(values_TR, finite_TR)[:, None]
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        away_TR = (values_TR - median_T1) / np.maximum(np.abs(median_T1), np.finfo(np.float64).tiny)
    away_TR = np.where(finite_TR & np.isfinite(median_T1), away_TR, 0.0)
    return np.clip(np.nan_to_num(away_TR, nan=0.0, posinf=1e30, neginf=-1e30), -1e30, 1e30).astype(np.float32)


def _recent_means(away_BR: NDArray[np.float32]) -> NDArray[np.float64]:
    """The mean distance over the last few positions."""
    sums_BR = np.cumsum(np.clip(away_BR, -1e6, 1e6), axis=0, dtype=np.float64)
    lagged_BR = np.zeros_like(sums_BR)
    lagged_BR[_RECENT:] = sums_BR[:-_RECENT]
    counts_B1 = np.minimum(np.arange(1, len(sums_BR) + 1), _RECENT)[:, None]
    means_BR: NDArray[np.float64] = (sums_BR - lagged_BR) / counts_B1
    means_BR[: _RECENT - 1] = 0.0  # of fewer the mean is no steadier than the values
    return means_BR


def _levels(away_BR: NDArray[Any], known_BR: Flags, usual_B: Any) -> NDArray[np.uint8]:
    """Distances as levels, by what is usual in the rows ``usual_B``."""
    usual = np.abs(away_BR[usual_B][known_BR[usual_B]])
    # 1.4826: MAD of a Gaussian; tails are heavier than its, so that the first level is left to 1 in 200
    scale = max(1.4826 * np.median(usual), np.quantile(usual, 0.995) / _LEVELS[0]) if len(usual) else 0.0
    # ranks that print the same rounded value have no scale: then any difference counts as one level
    levels_BR: NDArray[np.uint8] = np.digitize(
        np.abs(away_BR) / (scale if scale > 0.0 else 1e-3), _LEVELS
    ).astype(np.uint8)
    return levels_BR + np.uint8(Cell.SAME)


def _of_checksum(
    checksum: ChecksumBlock, some_T: Flags, layout: Layout | None, ranks_R: Ranks
) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
    present_TR = checksum.present_TR[some_T]
    high_TR, low_TR = checksum.high_TR[some_T], checksum.low_TR[some_T]
    group_R = groups_of(layout, ranks_R).shard_R
    code_TR = np.where(present_TR, np.uint8(Cell.SAME), np.uint8(Cell.MISSING))
    # only rows in which anything differs at all need a vote
    mixed_T = [len(np.unique(low_TR[t][present_TR[t]])) > 1 for t in range(len(low_TR))]
    for t in np.flatnonzero(mixed_T):
        for group in np.unique(group_R):
            member = np.flatnonzero((group_R == group) & present_TR[t])
            _, inverse, counts = np.unique(
                np.stack([high_TR[t, member], low_TR[t, member]]),
                axis=1,
                return_inverse=True,
                return_counts=True,
            )
            if len(counts) > 1:
                is_top = counts == counts.max()
                odd = np.ones(len(member), bool) if is_top.sum() > 1 else ~is_top[inverse.ravel()]
                code_TR[t, member[odd]] = Cell.DIFFERS
    return code_TR, np.zeros(code_TR.shape, np.float32)


def _spread(held: NDArray[Any], ranks_R: Ranks, union_R: Ranks) -> NDArray[Any]:
    """Columns of ``ranks_R`` put where ``union_R`` has them, zero elsewhere."""
    if len(ranks_R) == len(union_R):
        return held
    wide = np.zeros((len(held), len(union_R)), held.dtype)
    wide[:, np.searchsorted(union_R, ranks_R)] = held
    return wide
