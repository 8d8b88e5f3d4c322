"""Integers per rank, for ranks that come to be known one after the other.

Axes: N known ranks, R ranks of one block.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ingest.blocks import Ints, Ranks
from ingest.columns import union

from .base import State

UNKNOWN = -1
"""What a rank holds in every column before something is written."""


class RankTable:
    """Named columns of integers over the ranks known so far, which only grow.

    >>> table = RankTable()
    >>> table.rows(np.array([4, 9], np.int32))
    array([0, 1])
    >>> table.column("last_clean")[:] = 7
    >>> at = table.rows(np.array([3, 9], np.int32))
    >>> table.column("last_clean")[at]
    array([-1,  7])
    """

    def __init__(self) -> None:
        self.ranks_N: Ranks = np.empty(0, np.int32)
        self._columns: dict[str, Ints] = {}

    def rows(self, ranks_R: Ranks) -> Ints:
        """Index of each of ``ranks_R`` (ascending) in the columns; ranks not known yet are added."""
        if not np.array_equal(self.ranks_N, ranks_R):
            at_R = np.minimum(np.searchsorted(self.ranks_N, ranks_R), max(len(self.ranks_N) - 1, 0))
            if not len(self.ranks_N) or not np.array_equal(self.ranks_N[at_R], ranks_R):
                self._grow(ranks_R)
        return np.searchsorted(self.ranks_N, ranks_R)

    def column(self, name: str) -> Ints:
        """The column ``name``, to read and to write; `UNKNOWN` where nothing was written.

        Only good until `rows` adds a rank: ask for the rows first.
        """
        if name not in self._columns:
            self._columns[name] = np.full(len(self.ranks_N), UNKNOWN, np.int64)
        return self._columns[name]

    def snapshot(self) -> State:
        """The table as plain data."""
        columns = {name: column.copy() for name, column in self._columns.items()}
        return {"ranks": self.ranks_N.copy(), "columns": columns}

    @classmethod
    def restored(cls, state: Mapping[str, object]) -> RankTable:
        """The table that gave ``state``."""
        table = cls()
        table.ranks_N = np.array(state["ranks"], np.int32)
        columns = state["columns"]
        assert isinstance(columns, Mapping)
        table._columns = {str(name): np.array(column, np.int64) for name, column in columns.items()}
        return table

    def _grow(self, ranks_R: Ranks) -> None:
        all_N = union(self.ranks_N, ranks_R)
        old_N = np.searchsorted(all_N, self.ranks_N)
        for name, column in self._columns.items():
            grown = np.full(len(all_N), UNKNOWN, np.int64)
            grown[old_N] = column
            self._columns[name] = grown
        self.ranks_N = all_N
