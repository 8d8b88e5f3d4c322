"""The streams of one process (its output and its errors, a log file beside them) read as one.

They often hold the same records twice, rounded differently or counted differently (a progress bar beside
a logger), so values are taken from one of them alone. The others add their events, and values that are not
finite: what ended a process is often said on its error stream alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from .blocks import RecordBatch
from .columns import select_rows
from .joining import concatenate
from .merge import merge

_CURVES = ("loss", "global_loss", "grad_norm", "local_grad_norm")
"""Metrics by which the stream of the records is told."""
_MAX_LAST_WORDS = 8
"""Records of a process that may be no more than its last words: each of its libraries says it once."""
_MAX_WAITING = 8
"""Batches of records without a place that are kept: the first of them tells what happened."""


def join_streams(
    streams: Sequence[Iterator[RecordBatch]],
    has_counter: Callable[[int], bool],
    on_left: Callable[[int, int], None],
) -> Iterator[RecordBatch]:
    """The records of the stream that reports curves, with the events and the non-finite values of all.

    The first batch of each decides, the earlier stream between equals. ``has_counter`` tells whether the
    stream at a place counts iterations; what one that does not has to say (the exception that ended a
    process) comes behind the last record. ``on_left`` is told the place of each other stream that holds
    records, and of the one that was taken instead.
    """
    heads = [next(stream, None) for stream in streams]
    scores = [(0, 0) if head is None else _score(head) for head in heads]
    main = scores.index(max(scores))
    end = _End()
    cursors: list[Iterator[RecordBatch]] = []
    for at, (head, rest) in enumerate(zip(heads, streams, strict=True)):
        whole: Iterator[RecordBatch] = chain([] if head is None else [head], rest)
        if at == main:
            cursors.append(end.watch(whole))
            continue
        if head is not None and len(head):
            on_left(at, main)
        cursors.append(_side(whole, None if has_counter(at) else end))
    yield from merge(cursors)
    yield from end.left_over()


def join_processes(
    processes: Sequence[Iterator[RecordBatch]], has_counter: Callable[[int], bool]
) -> Iterator[RecordBatch]:
    """The records of the processes of a job in one order.

    A process that counts nothing and only says that something was not finite says so where the others
    are, and not at the start.
    """
    heads = [next(process, None) for process in processes]
    is_last_word = [
        head is not None and not has_counter(at) and _is_last_word(head) for at, head in enumerate(heads)
    ]
    end = _End()
    cursors: list[Iterator[RecordBatch]] = []
    for at, (head, rest) in enumerate(zip(heads, processes, strict=True)):
        whole: Iterator[RecordBatch] = chain([] if head is None else [head], rest)
        is_held = is_last_word[at] and not all(is_last_word)
        cursors.append(_side(whole, end) if is_held else end.watch(whole))
    yield from merge(cursors)
    yield from end.left_over()


def _is_last_word(head: RecordBatch) -> bool:
    """Whether a stream says no more than that its process met something that is not finite."""
    values = [column.values_N[column.present_N] for column in head.numbers.values()]
    return 0 < len(head) <= _MAX_LAST_WORDS and not any(np.isfinite(value_N).any() for value_N in values)


class _End:
    """Where the main stream ends, and what comes behind it."""

    def __init__(self) -> None:
        self._run = ""
        self._attempt = 0
        self._iteration = -1
        self._waiting: list[RecordBatch] = []

    def watch(self, batches: Iterator[RecordBatch]) -> Iterator[RecordBatch]:
        """The batches of the main stream."""
        for batch in batches:
            if len(batch):
                newest_N = batch.attempt_N == batch.attempt_N.max()
                reached = int(batch.attempt_N.max()), int(batch.iteration_N[newest_N].max())
                self._attempt, self._iteration = max((self._attempt, self._iteration), reached)
            yield batch

    def keep(self, batch: RecordBatch) -> None:
        """Take records without a place; the first are enough."""
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append(batch)

    def left_over(self) -> Iterator[RecordBatch]:
        """The records that waited, behind the last iteration of the main stream."""
        for batch in self._waiting:
            yield replace(
                batch,
                attempt_N=np.full(len(batch), self._attempt, np.int32),
                iteration_N=np.full(len(batch), self._iteration + 1, np.int64),
            )


def _side(batches: Iterator[RecordBatch], end: _End | None) -> Iterator[RecordBatch]:
    """Of another stream the events, and the records that hold something that is not finite."""
    for batch in batches:
        bad = _not_finite(batch)
        events = tuple((0, event) for _, event in batch.events)
        if end is not None and len(bad):
            end.keep(bad)
            bad = concatenate([])
        if len(bad) or events:
            yield replace(bad, events=events)


def _not_finite(batch: RecordBatch) -> RecordBatch:
    """The non-finite values of the curves in a batch, and nothing else."""
    curves = {name: batch.numbers[name] for name in _CURVES if name in batch.numbers}
    kept = {
        name: replace(column, present_N=column.present_N & ~np.isfinite(column.values_N))
        for name, column in curves.items()
    }
    if not kept:
        return concatenate([])
    any_N = np.logical_or.reduce([column.present_N for column in kept.values()])
    return select_rows(replace(batch, numbers=kept, checksums={}, events=(), rejected=()), any_N)


def _score(head: RecordBatch) -> tuple[int, int]:
    curves = max(
        (int(head.numbers[name].present_N.sum()) for name in _CURVES if name in head.numbers), default=0
    )
    return curves, len(head)
