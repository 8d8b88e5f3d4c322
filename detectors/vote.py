"""Which members of an equality group left it, and since when: the vote that checksums and numbers share.

Axes: T positions, R ranks of a block, C columns (ranks with a class, sorted by class), S classes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import numpy as np

from firstfault.telemetry import MetricContract
from ingest.blocks import Flags, Ints, Ranks

from .base import State
from .evidence import MAX_LATER_RANKS, Sight
from .groups import codes_of
from .rank_table import UNKNOWN, RankTable
from .vote_view import Checks, Frame, View

MAX_SPLITS = 256
"""Separate departures that are told apart per metric. More than that is one broken group or wrong
layout, not 257 faults; further ranks are listed with the last one."""
_FIRST_WINDOW = 64
_WINDOW_CELLS = 1 << 22
"""Cells looked at in one go: 4 million keep the temporary arrays below 200 MB."""


@dataclass(slots=True, eq=False)
class Split:
    """Ranks that left their equality group at one position.

    ``ranks`` are the minority, or all between whom the vote cannot decide (``is_tie``).
    """

    group: int
    ranks: list[int]
    lead: int
    """The first of those that are not voted with; of a tie that is not its least rank."""
    iteration: int
    microbatch: int
    last_clean: int | None
    minority: str
    seen_ranks: Ranks
    seen_bad: Flags
    seen_clean: Flags
    majority: str = ""
    members: int = 0
    """Members of the group that reported at the position."""
    is_tie: bool = False
    differing: int = 1
    """Checks at which its lead differed."""
    returns: int = 0
    """Times that all of them were equal to their group again."""
    returned_at: int | None = None
    """Iteration at which all of them were equal again the first time."""
    later_ranks: list[list[int]] = field(default_factory=list)
    odd_ranks: list[int] = field(default_factory=list)
    """Those of ``ranks`` that do not hold the value that the least rank of a tie holds."""

    def sight(self, contract: MetricContract) -> Sight:
        """Who was seen good and bad at the position."""
        return Sight(
            metric=contract.name,
            iteration=self.iteration,
            microbatch=self.microbatch,
            ranks_R=self.seen_ranks,
            bad_R=self.seen_bad,
            clean_R=self.seen_clean,
            phase=contract.declared_phase,
        )


class EqualityVote:
    """Folds the checks of one metric; ``splits`` are the departures so far, in order.

    In each class the value of most members is the reference. Members that differ from it leave in
    one `Split` and are not voted with until they are equal again; whoever differs later is another.
    Where two values have most members there is no majority: the split is a tie of all of them.
    A check of one member says nothing.

    >>> ones = np.ones((2, 3), np.uint64)
    >>> low_TR = np.array([[5, 5, 5], [6, 6, 8]], np.uint64)
    >>> vote = EqualityVote()
    >>> vote.feed(Checks(
    ...     np.array([10, 20]), np.zeros(2, np.int32), np.arange(3, dtype=np.int32),
    ...     ones, low_TR, ones > 0, np.zeros(3, np.int64)))
    >>> [(split.ranks, split.last_clean, split.iteration) for split in vote.splits]
    [([2], 10, 20)]
    """

    def __init__(self) -> None:
        self.splits: list[Split] = []
        self.has_compared = False
        self._table = RankTable()

    def feed(self, checks: Checks) -> None:
        """Take the next checks, in order."""
        frame = Frame.of(checks, self._table)
        if frame is None:
            return
        start, length = 0, len(checks.iteration_T)
        largest = max(1, _WINDOW_CELLS // len(frame.columns_C))
        window = largest
        while start < length:
            stop = min(start + window, length)
            view = View.of(frame, start, stop, self._is_odd(frame))
            changed = np.flatnonzero(view.is_changed_T)
            upto = int(changed[0]) if len(changed) else stop - start
            self._pass_over(frame, view, start, upto)
            if len(changed):
                self._vote(frame, start + upto)
            window = _FIRST_WINDOW if len(changed) else 2 * window
            window = min(window, largest)
            start += upto + (1 if len(changed) else 0)

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "splits": [asdict(split) for split in self.splits],
            "has_compared": self.has_compared,
            "table": self._table.snapshot(),
        }

    @classmethod
    def restored(cls, state: State) -> EqualityVote:
        """The vote that gave ``state``."""
        vote = cls()
        vote.splits = [Split(**held) for held in state["splits"]]
        vote.has_compared = state["has_compared"]
        vote._table = RankTable.restored(state["table"])
        return vote

    def _is_odd(self, frame: Frame) -> Flags:
        odd_C: Flags = self._table.column("split")[frame.at_C] != UNKNOWN
        return odd_C

    def _pass_over(self, frame: Frame, view: View, start: int, upto: int) -> None:
        """Take ``upto`` positions from ``start`` at which nothing changed."""
        if upto == 0:
            return
        clean_TC, still_TC = view.is_clean_TC[:upto], view.is_still_odd_TC[:upto]
        self._note_clean(frame, clean_TC, start)
        if still_TC.any():
            self.has_compared = True
            counted_C = still_TC.sum(axis=0)
            for column in np.flatnonzero(counted_C).tolist():
                self._count(frame, column, int(counted_C[column]))

    def _note_clean(self, frame: Frame, clean_TC: Flags, start: int) -> None:
        last_clean = self._table.column("last_clean")
        seen_C = clean_TC.any(axis=0)
        if not seen_C.any():
            return
        self.has_compared = True
        last_C = len(clean_TC) - 1 - np.argmax(clean_TC[::-1], axis=0)
        last_clean[frame.at_C[seen_C]] = frame.checks.iteration_T[start + last_C[seen_C]]

    def _count(self, frame: Frame, column: int, checks: int) -> None:
        """Count checks of a split, at its lead."""
        split = self.splits[int(self._table.column("split")[frame.at_C[column]])]
        if split.lead == int(frame.ranks_C[column]):
            split.differing += checks

    def _vote(self, frame: Frame, t: int) -> None:
        """Take one position at which somebody left or came back."""
        self.has_compared = True
        before = self.splits[:]
        view = View.of(frame, t, t + 1, self._is_odd(frame))
        touched = np.unique(frame.class_C[view.is_different_TC[0] | view.is_back_TC[0]])
        opened: list[Split] = []
        for group in touched.tolist():
            columns = np.flatnonzero((frame.class_C == group) & frame.present_TC[t])
            self._take_back(frame, t, columns[view.is_back_TC[0, columns]])
            opened += self._part(frame, t, columns)
        after = View.of(frame, t, t + 1, self._is_odd(frame))
        for column in np.flatnonzero(after.is_still_odd_TC[0] & ~view.is_different_TC[0]).tolist():
            if self.splits[int(self._table.column("split")[frame.at_C[column]])] in before:
                self._count(frame, column, 1)
        tied_C = np.isin(frame.ranks_C, [rank for split in opened if split.is_tie for rank in split.ranks])
        clean_TC = after.is_clean_TC & ~tied_C
        self._note_clean(frame, clean_TC, t)
        bad_C = after.is_still_odd_TC[0] | tied_C
        for split in opened:
            split.seen_ranks, split.seen_bad, split.seen_clean = frame.in_rank_order(bad_C, clean_TC[0])

    def _take_back(self, frame: Frame, t: int, columns: Ints) -> None:
        """Ranks that are equal to their group again."""
        held = self._table.column("split")
        for index in np.unique(held[frame.at_C[columns]]).tolist():
            mine = columns[held[frame.at_C[columns]] == index]
            held[frame.at_C[mine]] = UNKNOWN
            if not (held == index).any():
                split = self.splits[index]
                split.returns += 1
                if split.returned_at is None:
                    split.returned_at = int(frame.checks.iteration_T[t])

    def _part(self, frame: Frame, t: int, columns: Ints) -> list[Split]:
        """Vote among the members that are not odd; returns the splits that opened."""
        held, former = self._table.column("split"), self._table.column("former")
        voters = columns[held[frame.at_C[columns]] == UNKNOWN]
        code_V, first, counts = codes_of(frame.low_TC[t, voters], frame.high_TC[t, voters])
        if len(counts) == 1:
            return []
        tops = np.flatnonzero(counts == counts.max())
        reference = int(tops[np.argmin(first[tops])])  # of equal values the one that the least rank holds
        odd = voters[code_V != reference]
        is_tie = len(tops) > 1
        for index in np.unique(former[frame.at_C[odd]]).tolist():
            if index != UNKNOWN:  # who left before and came back goes on with the old split
                again = odd[former[frame.at_C[odd]] == index]
                held[frame.at_C[again]] = index
                self.splits[index].differing += 1
        fresh = odd[former[frame.at_C[odd]] == UNKNOWN]
        if not len(fresh):
            return []
        named = voters if is_tie else fresh
        if len(self.splits) < MAX_SPLITS:
            split = self._split(frame, t, named, lead=int(fresh[0]))
            split.is_tie, split.members = is_tie, len(columns)
            split.odd_ranks = sorted(frame.ranks_C[odd].tolist())
            split.majority = frame.text(t, int(voters[first[reference]]))
            self.splits.append(split)
            opened = [split]
        else:
            self._add_later(frame, t, fresh)
            opened = []
        held[frame.at_C[fresh]] = former[frame.at_C[fresh]] = len(self.splits) - 1
        return opened

    def _split(self, frame: Frame, t: int, named: Ints, *, lead: int) -> Split:
        iteration = int(frame.checks.iteration_T[t])
        clean = self._table.column("last_clean")[frame.at_C[named]]
        known = clean[clean != UNKNOWN]
        nobody = np.empty(0, bool)
        return Split(
            group=int(frame.class_C[named[0]]),
            ranks=sorted(frame.ranks_C[named].tolist()),
            lead=int(frame.ranks_C[lead]),
            iteration=iteration,
            microbatch=int(frame.checks.microbatch_T[t]),
            # equal earlier in the same iteration still leaves the whole iteration open
            last_clean=min(int(known.min()), iteration - 1) if len(known) else None,
            minority=frame.text(t, lead),
            seen_ranks=np.empty(0, np.int32),
            seen_bad=nobody,
            seen_clean=nobody,
        )

    def _add_later(self, frame: Frame, t: int, fresh: Ints) -> None:
        later = self.splits[-1].later_ranks
        room = MAX_LATER_RANKS - len(later)
        later += [[int(frame.checks.iteration_T[t]), rank] for rank in frame.ranks_C[fresh[:room]].tolist()]
