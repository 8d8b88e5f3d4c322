"""Folds every rank of a metric into a grid of rows × columns that keeps the worst of each cell.

Axes: T positions, R ranks in the order of the rows, G rows, B columns.

Never the mean: one rank of 100 000 that goes wrong for one iteration is seen in any grid. Pieces come newest
first, so that a rank which reports again later can be told from one that fell silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.blocks import Floats, Ints, Ranks

from .heat_rows import Row
from .heat_scores import TIER, Mark
from .history_matrix import Matrix

_NEVER = -1


@dataclass(frozen=True, slots=True)
class Best:
    """The worst of each cell: how bad, and its rank, iteration and value."""

    bad: Floats
    rank: NDArray[np.int32]
    iteration: Ints
    value: Floats
    """Of a number; NaN of a checksum."""
    text: NDArray[np.object_]
    """Of a checksum; None of a number."""

    @classmethod
    def empty(cls, shape: tuple[int, ...]) -> Best:
        """Cells that hold nothing."""
        return cls(
            np.zeros(shape),
            np.full(shape, _NEVER, np.int32),
            np.full(shape, _NEVER, np.int64),
            np.full(shape, np.nan),
            np.full(shape, None, object),
        )


class Grid:
    """The grid while it is filled; ``edges_B`` are the first iterations of its columns and where they end."""

    def __init__(self, rows: Sequence[Row], edges_B: Ints, by: str) -> None:
        self.edges_B, self.rows, self.by = edges_B, rows, by
        self.ranks_R: Ranks = np.concatenate([row.ranks for row in rows])
        self.starts_G = np.cumsum([0, *(len(row.ranks) for row in rows[:-1])])
        self.row_R = np.repeat(np.arange(len(rows)), [len(row.ranks) for row in rows])
        shape = len(rows), len(edges_B) - 1
        self.best = Best.empty(shape)
        self.last_B = np.full(shape[1], _NEVER, np.int64)
        """The last iteration of each column at which any rank reported."""
        self.seen_R = np.full(len(self.ranks_R), _NEVER, np.int64)
        """The last iteration at which each rank reported."""
        self._order = np.argsort(self.ranks_R, kind="stable")

    def take(self, matrix: Matrix, bad_TR: Floats) -> None:
        """Take a piece, older than all before; ``bad_TR`` is how bad its values are."""
        some_T = np.asarray(matrix.present_TR.any(axis=1))
        place_R = self._places(matrix.ranks_R)
        known_R = np.flatnonzero(place_R >= 0)
        at_R = place_R[known_R]
        # the ranks in the order of the rows: those of a row then lie together
        by_row = np.argsort(at_R, kind="stable")
        columns, at_R = known_R[by_row], at_R[by_row]
        iteration_T = matrix.iteration_T[some_T]
        inside_T = (iteration_T >= self.edges_B[0]) & (iteration_T < self.edges_B[-1])
        rows_T = np.flatnonzero(some_T)[inside_T]
        if not len(rows_T) or not len(columns):
            return
        iteration_T = iteration_T[inside_T]
        is_all = len(rows_T) == len(some_T) and np.array_equal(columns, np.arange(len(matrix.ranks_R)))
        wanted = (
            ... if is_all else np.ix_(rows_T, columns)
        )  # a copy of millions of cells that is seldom needed
        present_TR, worst_TR = matrix.present_TR[wanted], bad_TR[wanted]
        worst_TR[self._is_missing(present_TR, at_R)] = Mark.MISSING * TIER
        column_T = np.searchsorted(self.edges_B, iteration_T, side="right") - 1
        starts = np.flatnonzero(np.append(True, np.diff(column_T) != 0))
        for start, stop in zip(starts, [*starts[1:], len(rows_T)], strict=True):
            at = int(column_T[start])
            self.last_B[at] = max(self.last_B[at], int(iteration_T[stop - 1]))
            self._put(at, worst_TR[start:stop], matrix, (rows_T[start:stop], columns, at_R))
        latest_R = np.where(present_TR, iteration_T[:, np.newaxis], _NEVER).max(axis=0)
        np.maximum.at(self.seen_R, at_R, latest_R)

    def finish(self) -> None:
        """Mark what is late: ranks that reported once, and nothing any more in columns where others did."""
        for row, start in enumerate(self.starts_G.tolist()):
            seen_R = self.seen_R[start : start + len(self.rows[row].ranks)]
            reporting = np.flatnonzero(seen_R >= 0)
            if not len(reporting):
                continue
            first = int(reporting[seen_R[reporting].argmin()])
            silent_since, bad = int(seen_R[first]), Mark.LATE * TIER
            late_B = (self.last_B > silent_since) & (self.best.bad[row] < bad)
            self.best.bad[row, late_B] = bad
            self.best.rank[row, late_B] = self.rows[row].ranks[first]
            self.best.iteration[row, late_B] = np.maximum(silent_since + 1, self.edges_B[:-1])[late_B]
            self.best.value[row, late_B] = np.nan
            self.best.text[row, late_B] = None

    def _places(self, ranks_R: Ranks) -> NDArray[np.intp]:
        """Where ranks stand in the order of the rows; -1 for one that no row has."""
        sorted_R = self.ranks_R[self._order]
        at_R = np.minimum(np.searchsorted(sorted_R, ranks_R), len(sorted_R) - 1)
        return np.where(sorted_R[at_R] == ranks_R, self._order[at_R], -1)

    def _is_missing(self, present_TR: NDArray[np.bool_], at_R: NDArray[np.intp]) -> NDArray[np.bool_]:
        """Cells not reported by a rank that reports again later."""
        if present_TR.all():
            return np.zeros(present_TR.shape, bool)
        later_TR = np.logical_or.accumulate(present_TR[::-1], axis=0)[::-1]
        missing_TR: NDArray[np.bool_] = ~present_TR & (later_TR | (self.seen_R[at_R] >= 0))
        return missing_TR

    def _put(
        self,
        column: int,
        worst_TR: Floats,
        matrix: Matrix,
        place: tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]],
    ) -> None:
        """Put the worst of each row into a column, where it is worse than what is there."""
        rows_T, columns, at_R = place
        when_R = worst_TR.argmax(axis=0)
        worst_R = worst_TR[when_R, np.arange(len(columns))]
        row_R = self.row_R[at_R]
        starts = np.flatnonzero(np.append(True, np.diff(row_R) != 0))
        row_G, most_G = row_R[starts], np.maximum.reduceat(worst_R, starts)
        sizes = np.diff(np.append(starts, len(row_R)))
        is_most_R = worst_R == np.repeat(most_G, sizes)
        first_G = np.minimum.reduceat(np.where(is_most_R, np.arange(len(row_R)), len(row_R)), starts)
        is_new = most_G > self.best.bad[row_G, column]
        row_G, first_G = row_G[is_new], first_G[is_new]
        at_T, at_C = rows_T[when_R[first_G]], columns[first_G]
        self.best.bad[row_G, column] = most_G[is_new]
        self.best.rank[row_G, column] = matrix.ranks_R[at_C]
        self.best.iteration[row_G, column] = matrix.iteration_T[at_T]
        if matrix.values_TR is not None:
            self.best.value[row_G, column] = matrix.values_TR[at_T, at_C]
        else:
            for row, t, r in zip(row_G.tolist(), at_T.tolist(), at_C.tolist(), strict=True):
                self.best.text[row, column] = matrix.checksum(t, r)
