"""Put the records of a batch in the order of attempts and iterations.

Axes: N records.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from firstfault.telemetry import Event, EventKind

from .blocks import ChecksumColumn, Ints, NumberColumn, RecordBatch

Position = tuple[int, int]
"""(attempt, iteration)."""

_AFTER_ITS_ITERATION = (EventKind.CHECKPOINT, EventKind.RUN_END)


def position_of(event: Event) -> Position:
    """Where an event belongs."""
    return event.attempt, event.iteration


def is_in_order(batch: RecordBatch) -> bool:
    """Whether no record stands before one of an earlier iteration or attempt."""
    later_N = np.diff(batch.iteration_N) >= 0
    attempt_N = np.diff(batch.attempt_N)
    return bool(((attempt_N > 0) | ((attempt_N == 0) & later_N)).all())


def in_order(batch: RecordBatch) -> RecordBatch:
    """The batch sorted by attempt and iteration; equals keep their order, events take their place.

    An event stands before the records of its iteration, a checkpoint or the end of a run after them.
    """
    if not is_in_order(batch):
        batch = take_rows(batch, np.lexsort((batch.iteration_N, batch.attempt_N)))
    if not batch.events:
        return batch
    keys = list(zip(batch.attempt_N.tolist(), batch.iteration_N.tolist(), strict=True))
    placed = sorted(
        ((_place(keys, event), event) for _, event in batch.events),
        key=lambda each: (each[0], position_of(each[1])),
    )
    return replace(batch, events=tuple(placed))


def take_rows(batch: RecordBatch, order_N: Ints) -> RecordBatch:
    """The records ``order_N`` in that order, each at most once; labels go with them, events stay."""
    place_N = np.full(len(batch), -1, np.int64)
    place_N[order_N] = np.arange(len(order_N))
    labels = [(int(place_N[at]), name, text) for at, name, text in batch.labels if place_N[at] >= 0]
    return replace(
        batch,
        run_N=batch.run_N[order_N],
        attempt_N=batch.attempt_N[order_N],
        rank_N=batch.rank_N[order_N],
        iteration_N=batch.iteration_N[order_N],
        microbatch_N=batch.microbatch_N[order_N],
        time_N=batch.time_N[order_N],
        numbers={name: _take_number(column, order_N) for name, column in batch.numbers.items()},
        checksums={
            name: ChecksumColumn(column.high_N[order_N], column.low_N[order_N], column.present_N[order_N])
            for name, column in batch.checksums.items()
        },
        labels=tuple(sorted(labels)),
    )


def _take_number(column: NumberColumn, order_N: Ints) -> NumberColumn:
    inferred = None if column.inferred_N is None else column.inferred_N[order_N]
    return NumberColumn(column.values_N[order_N], column.present_N[order_N], inferred)


def _place(keys: list[Position], event: Event) -> int:
    from bisect import bisect_left, bisect_right

    find = bisect_right if event.kind in _AFTER_ITS_ITERATION else bisect_left
    return find(keys, position_of(event))
