"""A loss that a line has no number for, though the lines before had one.

Axes: N records of a batch, K of one rank.

``loss=None``, ``loss: ******`` (a column too narrow for the number), a dash: a loop that printed its loss in
every record and now prints that has none that is a number, which is read as NaN and marked as inferred. Where
it comes and goes the loss is one that is reported now and then, and nothing is inferred of it. What can be
read neither way is kept as a doubt: such a log is not called healthy.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ingest.blocks import Flags, Ints, NumberColumn, RecordBatch
from ingest.columns import distinct

from .losses import LOSS

LOST = "\0lost"
"""The column that marks records whose loss is lost; no metric can have its name."""
LEAST_BEFORE = 8
"""Losses in a row that must come before the first lost one: a log that prints its loss at every second record
or less often shows that within them."""
MOST_RETURNS = 2
"""Times that the loss may be lost and come back before it is one that is reported now and then."""
GAP_FACTOR = 3
"""Lost records at the end, over the longest row of them before, from which on they are no such pause."""


@dataclass(slots=True)
class _Seen:
    """What was seen of the loss of one rank."""

    losses: int = 0
    returns: int = 0
    gap: int = 0
    """Records in the row of lost ones that is open."""
    longest: int = 0
    first_lost: int = -1
    """Where the row that is open began."""
    is_sparse: bool = False

    def take(self, size: int, first: int, *, is_lost: bool) -> bool:
        """Take some records in a row, from iteration ``first`` on; whether their losses are inferred."""
        if is_lost:
            self.is_sparse |= self.losses < LEAST_BEFORE
            self.first_lost = self.first_lost if self.gap else first
            self.gap += size
            return not self.is_sparse
        self.losses += size
        self.returns += self.gap > 0
        self.is_sparse |= self.returns > MOST_RETURNS
        self.longest, self.gap = max(self.longest, self.gap), 0
        return False

    @property
    def is_doubtful(self) -> bool:
        """Whether the loss is lost to the end, and nothing was concluded from it."""
        return self.is_sparse and self.losses > 0 and self.gap > GAP_FACTOR * max(self.longest, 1)


class LostLosses:
    """Finds the records of one log whose loss must have been NaN, in their order."""

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}
        self.first: int | None = None
        """The iteration of the first loss that was inferred."""

    @property
    def doubt(self) -> str:
        """Why the log cannot be called healthy; empty where nothing is lost to the end."""
        lost = [seen.first_lost for seen in self._seen.values() if seen.is_doubtful]
        return f"from iteration {min(lost)} on the log has no number where it had the loss" if lost else ""

    def apply(self, batch: RecordBatch) -> RecordBatch:
        """The batch without its marks, and with the losses that are inferred."""
        loss, lost = batch.numbers.get(LOSS), batch.numbers.get(LOST)
        none_N = np.zeros(len(batch), np.bool_)
        has_N = none_N if loss is None else loss.present_N
        lost_N = none_N if lost is None else lost.present_N & ~has_N
        either_N = has_N | lost_N
        inferred_N = np.zeros(len(batch), np.bool_)
        for rank in distinct(batch.rank_N):
            at_K = np.flatnonzero(either_N & (batch.rank_N == rank))
            if len(at_K):
                seen = self._seen.setdefault(rank, _Seen())
                inferred_N[at_K] = _walk(seen, lost_N[at_K], batch.iteration_N[at_K])
        if lost is None:
            return batch
        numbers = {name: column for name, column in batch.numbers.items() if name != LOST}
        if inferred_N.any():
            first = int(batch.iteration_N[inferred_N][0])
            self.first = first if self.first is None else self.first
            numbers[LOSS] = _with_inferred(loss, inferred_N)
        return replace(batch, numbers=numbers)


def _walk(seen: _Seen, lost_K: Flags, iteration_K: Ints) -> Flags:
    """Which records are inferred, given what came before them."""
    inferred_K = np.zeros(len(lost_K), np.bool_)
    borders = [0, *(np.flatnonzero(np.diff(lost_K)) + 1).tolist(), len(lost_K)]
    for start, stop in pairwise(borders):
        is_lost = bool(lost_K[start])
        inferred_K[start:stop] = seen.take(stop - start, int(iteration_K[start]), is_lost=is_lost)
    return inferred_K


def _with_inferred(loss: NumberColumn | None, inferred_N: Flags) -> NumberColumn:
    if loss is None:
        return NumberColumn(np.full(len(inferred_N), np.nan), inferred_N, inferred_N)
    values_N = np.where(inferred_N, np.nan, loss.values_N)
    marked_N = inferred_N if loss.inferred_N is None else inferred_N | loss.inferred_N
    return NumberColumn(values_N, loss.present_N | inferred_N, marked_N)


def lost_remark(first: int) -> str:
    """What was inferred, for a person."""
    return f"from iteration {first} on a word or nothing where the loss had its number is read as NaN"
