"""Equality classes of one metric where no layout gives them: learned from the first two checks.

Axes: T positions, R ranks.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingest.blocks import Flags, Ints

from .base import State
from .groups import NO_CLASS, FirstCheck, learned_classes
from .rank_table import UNKNOWN, RankTable
from .vote_view import Checks

JOIN_TRIES = 2
"""Checks at which a rank that comes later may prove equal to a class; then it is compared with nobody.
Two, as for the ranks that were there: the first may be its last one before it received the state."""


class LearnedGroups:
    """Holds back the first check, and gives every later one its classes.

    ``is_decided`` after two checks that have two ranks in common; ``has_groups`` when some were
    equal. ``odd_rank`` differed from equal classes in both: suspect since the start.
    """

    def __init__(self) -> None:
        self.is_decided = False
        self.has_groups = False
        self.odd_rank: int | None = None
        self.first: Checks | None = None
        self._table = RankTable()

    def take(self, checks: Checks) -> list[Checks]:
        """The checks that can be voted on now, with their classes: none before the second one.

        ``checks.class_R`` says within which ranks equality is asked at all.
        """
        if self.is_decided:
            return [self._classed(checks)]
        waiting = self._learn(checks)
        return [self._classed(each) for each in waiting] if self.is_decided else []

    def snapshot(self) -> State:
        """The whole state as plain data."""
        first = self.first
        held = None if first is None else {name: getattr(first, name) for name in _CHECK_FIELDS}
        return {
            "is_decided": self.is_decided,
            "has_groups": self.has_groups,
            "odd_rank": self.odd_rank,
            "first": held,
            "table": self._table.snapshot(),
        }

    @classmethod
    def restored(cls, state: State) -> LearnedGroups:
        """The groups that gave ``state``."""
        groups = cls()
        groups.is_decided, groups.has_groups = state["is_decided"], state["has_groups"]
        groups.odd_rank = state["odd_rank"]
        held = state["first"]
        groups.first = None if held is None else Checks(**held)
        groups._table = RankTable.restored(state["table"])
        return groups

    def _learn(self, checks: Checks) -> list[Checks]:
        enough = np.flatnonzero((checks.present_TR & (checks.class_R != NO_CLASS)).sum(axis=1) >= 2).tolist()
        for t in enough:
            row = _row(checks, t)
            if self.first is None:
                self.first = row
            elif len(np.intersect1d(self.first.ranks_R, row.ranks_R)) >= 2:
                self._decide(self.first, row)
                return [self.first, _rows_from(checks, t)]
        return []

    def _decide(self, first: Checks, second: Checks) -> None:
        class_R, self.odd_rank = learned_classes(_as_first_check(first), _as_first_check(second))
        at_R = self._table.rows(first.ranks_R)
        self._table.column("class")[at_R] = class_R
        was_there_R = np.isin(first.ranks_R, second.ranks_R)
        self._table.column("tried")[at_R] = np.where(was_there_R, JOIN_TRIES, 1)
        self.is_decided, self.has_groups = True, bool((class_R != NO_CLASS).any())

    def _classed(self, checks: Checks) -> Checks:
        at_R = self._table.rows(checks.ranks_R)
        class_R, tried_R = self._table.column("class")[at_R], self._table.column("tried")[at_R]
        open_R = (class_R == NO_CLASS) & (tried_R < JOIN_TRIES) & (checks.class_R != NO_CLASS)
        present_TR = checks.present_TR
        if self.has_groups and open_R.any() and present_TR[:, open_R].any():
            present_TR = self._join(checks, np.flatnonzero(open_R), at_R)
            class_R = self._table.column("class")[at_R]
        return replace(checks, class_R=class_R, present_TR=present_TR)

    def _join(self, checks: Checks, newcomers: Ints, at_R: Ints) -> Flags:
        """Let newcomers join the class they are equal to; what they reported before is not compared.

        Position by position, against those who were members before it.
        """
        classes, tried = self._table.column("class"), self._table.column("tried")
        present_TR = checks.present_TR.copy()
        tries: dict[int, list[int]] = {}
        for column in newcomers.tolist():
            left = JOIN_TRIES - max(int(tried[at_R[column]]), 0)
            for t in np.flatnonzero(checks.present_TR[:, column])[:left].tolist():
                tries.setdefault(t, []).append(column)
        for t in sorted(tries):
            member_R = checks.present_TR[t] & (classes[at_R] != UNKNOWN)
            for column in tries[t]:
                row = at_R[column]
                if member_R[column]:
                    continue  # joined at its first try
                tried[row] = max(int(tried[row]), 0) + 1
                equal_R = member_R & (checks.class_R == checks.class_R[column])
                equal_R &= checks.high_TR[t] == checks.high_TR[t, column]
                equal_R &= checks.low_TR[t] == checks.low_TR[t, column]
                if equal_R.any():
                    classes[row] = classes[at_R[int(np.argmax(equal_R))]]
                    present_TR[:t, column] = False
        return present_TR


_CHECK_FIELDS = ("iteration_T", "microbatch_T", "ranks_R", "high_TR", "low_TR", "present_TR", "class_R")


def _row(checks: Checks, t: int) -> Checks:
    """One position, with the ranks that reported there and may be compared."""
    some_R = checks.present_TR[t] & (checks.class_R != NO_CLASS)
    return Checks(
        iteration_T=checks.iteration_T[t : t + 1].copy(),
        microbatch_T=checks.microbatch_T[t : t + 1].copy(),
        ranks_R=checks.ranks_R[some_R],
        high_TR=checks.high_TR[t : t + 1, some_R],
        low_TR=checks.low_TR[t : t + 1, some_R],
        present_TR=checks.present_TR[t : t + 1, some_R],
        class_R=checks.class_R[some_R],
    )


def _rows_from(checks: Checks, t: int) -> Checks:
    return rows_of(checks, t, len(checks.iteration_T))


def rows_of(checks: Checks, start: int, stop: int) -> Checks:
    """The positions ``[start, stop)`` alone."""
    part = slice(start, stop)
    return replace(
        checks,
        iteration_T=checks.iteration_T[part],
        microbatch_T=checks.microbatch_T[part],
        high_TR=checks.high_TR[part],
        low_TR=checks.low_TR[part],
        present_TR=checks.present_TR[part],
    )


def _as_first_check(row: Checks) -> FirstCheck:
    return FirstCheck(int(row.iteration_T[0]), row.ranks_R, row.class_R, row.high_TR[0], row.low_TR[0])
