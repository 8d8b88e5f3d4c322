"""The records of one file with their attempts, in an order that alignment can take.

The head of the file (all of it, if it fits) is read before anything is handed on, and decides:
whether its counter restarts in every epoch, whether a counter that goes back is a restart, and
whether the file is in order. A file that is not (sorted by rank, newest first) is sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

import numpy as np

from .attempt_rows import Rows
from .attempts import AttemptAssigner, AttemptConfig
from .blocks import RecordBatch
from .file_order import OrderConfig, sort_batches
from .file_reader import FileReader
from .glued_counters import GluedCounter, find_glued_counter
from .lateness import LatenessWatch
from .missing_loss import MissingLoss


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """What decides over order and attempts."""

    head_cells: int = 3 << 22
    """Values read before the first is handed on: 113 MB, about a million rows of six metrics."""
    lateness_iterations: int = 64
    """The lateness bound of alignment: what is out of order by less passes as it is."""
    max_restart_share: float = 0.05
    """Restarts per row beyond which a counter that goes back counts something else: a launch of less than
    20 logged rows, again and again, is no job; unnamed ranks in one file go back at every row or two."""
    max_fall_share: float = 0.2
    """Steps back per step, beyond which rows are in no order: newest first, or shuffled."""
    min_launch_rows: int = 4
    """Rows per restart from which one is believed if most of them go back to the very first iteration."""
    min_restarts: int = 8
    """Restarts that are believed in any file, however short."""
    order: OrderConfig = field(default_factory=OrderConfig)


def ordered_records(
    reader: FileReader, is_out_of_order: Callable[[], bool], config: StreamConfig | None = None
) -> Iterator[RecordBatch]:
    """All records of the file.

    ``is_out_of_order`` is asked about the rest of a file that is larger than the head.
    """
    limits = config or StreamConfig()
    batches = reader.batches()
    head, is_whole = _read_head(batches, limits.head_cells)
    glue = None if reader.says_attempt or reader.is_wire else find_glued_counter(head)
    if glue is not None:
        reader.remark(glue.remark)
    records = _with_missing(reader, _glued(chain(head, batches), glue), len(head))
    head = [next(records) for _ in head]
    assigner, head = _with_attempts(reader, head, limits)
    rest = (batch if assigner is None or reader.says_attempt else assigner.assign(batch) for batch in records)
    watch = LatenessWatch(limits.lateness_iterations)
    if any(watch.is_late(batch) for batch in head) or (not is_whole and is_out_of_order()):
        yield from sort_batches(chain(head, rest), limits.order)
        return
    while head:
        yield head.pop(0)
    yield from rest


def _read_head(batches: Iterator[RecordBatch], head_cells: int) -> tuple[list[RecordBatch], bool]:
    head: list[RecordBatch] = []
    cells = 0
    while cells < head_cells:
        batch = next(batches, None)
        if batch is None:
            return head, True
        head.append(batch)
        cells += len(batch) * (6 + len(batch.numbers) + len(batch.checksums)) + len(batch.rejected)
    return head, False


def _glued(batches: Iterator[RecordBatch], glue: GluedCounter | None) -> Iterator[RecordBatch]:
    for batch in batches:
        yield batch if glue is None else glue.apply(batch)


def _with_missing(
    reader: FileReader, batches: Iterator[RecordBatch], head_batches: int
) -> Iterator[RecordBatch]:
    """The records with losses that their logger could not write as NaN; our own lines leave none out."""
    if not reader.holds_rows or reader.is_wire:
        yield from batches
        return
    missing = MissingLoss()
    head = list(islice(batches, head_batches))
    missing.look_ahead(head)
    for batch in chain(head, batches):
        yield missing.infer(batch)
        if missing.first is not None:
            reader.remark(missing.remark)
    reader.doubt(missing.doubt)


def _with_attempts(
    reader: FileReader, head: list[RecordBatch], limits: StreamConfig
) -> tuple[AttemptAssigner | None, list[RecordBatch]]:
    """What numbers the attempts of the rest, and the head numbered by it.

    None if records say their attempts, or the counter goes back in a way that no restart does.
    """
    if reader.says_attempt:
        return None, head
    assigner = AttemptAssigner(
        AttemptConfig(window_iterations=limits.lateness_iterations, far_only=reader.is_wire)
    )
    numbered = [assigner.assign(batch) for batch in head]
    if assigner.restarts and _is_disorder(head, assigner.restarts, limits):
        reader.remark(
            f"the iteration goes back {assigner.restarts} times or more: taken as one attempt in no order"
            " (several ranks in one file without a rank?)"
        )
        return None, head
    return assigner, numbered


def _is_disorder(head: list[RecordBatch], restarts: int, limits: StreamConfig) -> bool:
    ranks, rises, falls, fresh = 1, 0, 0, 0
    for batch in head:
        rows = Rows.of(batch)
        _, group_N, iteration_N = rows.judged()
        if not len(iteration_N):
            continue
        step_N = np.diff(iteration_N)[np.diff(group_N) == 0]
        rises += int((step_N > 0).sum())
        falls += int((step_N < 0).sum())
        if len(step_N):
            begins_N = iteration_N[1:][np.diff(group_N) == 0] == iteration_N.min()
            fresh += int(((step_N < 0) & begins_N).sum())
        ranks = max(ranks, len(rows.keys))
    length = sum(len(batch) for batch in head)
    if fresh * 2 > falls and length >= limits.min_launch_rows * restarts:
        return False  # each begins at the beginning again
    many = max(limits.min_restarts * ranks, limits.max_restart_share * length)
    return restarts > many or falls > limits.max_fall_share * (rises + falls)
