"""A counter of iterations that restarts in every epoch, beside an epoch that increases: one attempt.

Axes: N records.

``epoch 1 iter 10 … iter 720, epoch 2 iter 10 …`` is no restart. Where every complete epoch ends at the
same iteration L, the iteration becomes ``(epoch - first epoch) × L + iteration`` (L counted from the
logged iterations, so it is short by what the logging interval leaves out at the end of an epoch).
Where epochs differ in length, no counter of whole iterations is in the file, and the row number
takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .blocks import Flags, Floats, Ints, RecordBatch


@dataclass(frozen=True, slots=True)
class GluedCounter:
    """How a restarting counter is made to rise; ``epoch_iterations`` None: by row number."""

    first_epoch: int
    epoch_iterations: int | None

    @property
    def remark(self) -> str:
        """What is done, for a person."""
        if self.epoch_iterations is None:
            return "the iteration restarts in epochs of different length: the row number, from 0, is used"
        return f"the iteration restarts in every epoch: epoch × {self.epoch_iterations} + iteration is used"

    def apply(self, batch: RecordBatch, rows_before: int) -> RecordBatch:
        """The batch with a counter that rises over epochs."""
        if self.epoch_iterations is None:
            return replace(
                batch, iteration_N=np.arange(rows_before, rows_before + len(batch), dtype=np.int64)
            )
        epoch_N = _epochs(batch)
        if epoch_N is None:
            return batch
        known_N = np.isfinite(epoch_N) & (epoch_N >= self.first_epoch) & (epoch_N < 2**31)
        extra_N = np.where(known_N, epoch_N - self.first_epoch, 0).astype(np.int64) * self.epoch_iterations
        return replace(batch, iteration_N=batch.iteration_N + extra_N)


def find_glued_counter(batches: Sequence[RecordBatch]) -> GluedCounter | None:
    """How the counter of these records, the head of a file, must be glued; None if it need not be.

    It must when, on the first rank of the file, it goes back at least once exactly where the epoch
    increases, and does so at more than half of the places where it goes back.
    """
    iteration_N, epoch_N = _series(batches)
    if len(iteration_N) < 2:
        return None
    back_N: Flags = np.diff(iteration_N) < 0
    rises_N: Flags = np.diff(epoch_N) > 0
    glued = int((back_N & rises_N).sum())
    if not glued or glued * 2 <= int(back_N.sum()) or glued * 2 <= int(rises_N.sum()):
        return None
    ends_N = iteration_N[:-1][back_N & rises_N]
    first = int(epoch_N[0])
    start = int(iteration_N.min())
    if (ends_N == ends_N[0]).all():
        return GluedCounter(first, int(ends_N[0]) + (1 if start == 0 else 0))
    return GluedCounter(first, None)


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
