"""A counter of iterations that restarts in every epoch, beside an epoch that increases: one attempt.

Axes: N records.

``epoch 1 iter 10 … iter 720, epoch 2 iter 10 …`` is no restart. Where every complete epoch ends at the
same iteration L, the iteration becomes ``(epoch - first epoch) × L + iteration`` (L counted from the
logged iterations, so it is short by what the logging interval leaves out at the end of an epoch).
Where epochs differ in length, each is counted on from the end of the one before. An epoch that falls
is a restart of the run, and begins where that epoch began before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from .blocks import Flags, Floats, Ints, RecordBatch


@dataclass(slots=True)
class _Place:
    """Where one rank stands: its epoch, the greatest iteration in it, and what was counted before it."""

    epoch: int
    greatest: int
    before: int = 0
    begun: dict[int, int] = field(default_factory=dict)
    """What was counted before each epoch."""


class GluedCounter:
    """Makes a restarting counter rise; ``epoch_iterations`` None: as long as each epoch turns out to be."""

    def __init__(self, first_epoch: int, epoch_iterations: int | None, *, from_zero: bool = False) -> None:
        self.epoch_iterations = epoch_iterations
        self._first_epoch = first_epoch
        self._from_zero = from_zero
        self._places: dict[tuple[str, int], _Place] = {}

    @property
    def remark(self) -> str:
        """What is done, for a person."""
        if self.epoch_iterations is None:
            return "the iteration restarts in epochs of different length: each goes on from the one before"
        return f"the iteration restarts in every epoch: epoch × {self.epoch_iterations} + iteration is used"

    def apply(self, batch: RecordBatch) -> RecordBatch:
        """The batch with a counter that rises over epochs."""
        epoch_N = _epochs(batch)
        if epoch_N is None:
            return batch
        known_N = np.isfinite(epoch_N) & (epoch_N >= 0) & (epoch_N < 2**31)
        epochs_N = np.where(known_N, epoch_N, 0).astype(np.int64)
        if self.epoch_iterations is not None:
            extra_N = (
                np.where(known_N, np.maximum(epochs_N - self._first_epoch, 0), 0) * self.epoch_iterations
            )
            return replace(batch, iteration_N=batch.iteration_N + extra_N)
        extra_N = np.zeros(len(batch), np.int64)
        group_N = batch.run_N.astype(np.int64) << 32 | batch.rank_N.astype(np.int64) & 0xFFFFFFFF
        for group in np.unique(group_N):
            at_N = np.flatnonzero((group_N == group) & known_N)
            if len(at_N):
                key = batch.runs[int(batch.run_N[at_N[0]])], int(batch.rank_N[at_N[0]])
                extra_N[at_N] = self._count_on(key, epochs_N[at_N], batch.iteration_N[at_N])
        return replace(batch, iteration_N=batch.iteration_N + extra_N)

    def _count_on(self, key: tuple[str, int], epochs_N: Ints, iteration_N: Ints) -> Ints:
        """What was counted before the epoch of each record of one rank."""
        extra_N = np.zeros(len(epochs_N), np.int64)
        place = self._places.get(key) or _Place(int(epochs_N[0]), -1)
        self._places[key] = place
        borders = np.flatnonzero(np.diff(epochs_N, prepend=epochs_N[0] - 1, append=epochs_N[-1] - 1) != 0)
        for start, stop in pairwise(borders):
            self._enter(place, int(epochs_N[start]))
            extra_N[start:stop] = place.before
            place.greatest = max(place.greatest, int(iteration_N[start:stop].max()))
        return extra_N

    def _enter(self, place: _Place, epoch: int) -> None:
        place.begun.setdefault(place.epoch, place.before)
        if epoch > place.epoch:
            place.before += (epoch - place.epoch) * (place.greatest + self._from_zero)
        elif epoch < place.epoch:
            place.before = place.begun.get(epoch, 0)
        else:
            return
        place.epoch, place.greatest = epoch, -1


def find_glued_counter(batches: Sequence[RecordBatch]) -> GluedCounter | None:
    """How the counter of these records, the head of a file, must be glued; None if it need not be.

    It must when, on the first rank of the file, it goes back at least once exactly where the epoch
    increases, and does so at more than half of the places where either does, but for restarts, where
    the epoch goes back too.
    """
    iteration_N, epoch_N = _series(batches)
    if len(iteration_N) < 2:
        return None
    back_N: Flags = np.diff(iteration_N) < 0
    rises_N: Flags = np.diff(epoch_N) > 0
    stays_N: Flags = (np.diff(iteration_N) == 0) & rises_N
    restarts_N: Flags = np.diff(epoch_N) < 0
    falls = int((back_N & rises_N).sum())
    glued = falls + int(stays_N.sum())
    if not falls or glued * 2 <= int((back_N & ~restarts_N).sum()) or glued * 2 <= int(rises_N.sum()):
        return None
    ends_N = iteration_N[:-1][(back_N | stays_N) & rises_N]
    first = int(epoch_N[0])
    from_zero = int(iteration_N.min()) == 0
    if (ends_N == ends_N[0]).all() and not restarts_N.any():
        return GluedCounter(first, int(ends_N[0]) + from_zero)
    return GluedCounter(first, None, from_zero=from_zero)


def _series(batches: Sequence[RecordBatch]) -> tuple[Ints, Floats]:
    """Iterations and epochs of the first rank's records that have a whole epoch."""
    iterations: list[Ints] = []
    epochs: list[Floats] = []
    rank: int | None = None
    for batch in batches:
        epoch_N = _epochs(batch)
        if epoch_N is None or not len(batch):
            continue
        rank = int(batch.rank_N[0]) if rank is None else rank
        with np.errstate(invalid="ignore"):
            mine_N = (batch.rank_N == rank) & (epoch_N >= 0) & (epoch_N == np.floor(epoch_N))
        iterations.append(batch.iteration_N[mine_N])
        epochs.append(epoch_N[mine_N])
    if not iterations:
        return np.empty(0, np.int64), np.empty(0)
    return np.concatenate(iterations), np.concatenate(epochs)


def _epochs(batch: RecordBatch) -> Floats | None:
    column = batch.numbers.get("epoch")
    return None if column is None else np.where(column.present_N, column.values_N, np.nan)
