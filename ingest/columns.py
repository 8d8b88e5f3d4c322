"""Record batches: built from records, joined, and cut down to some of their rows.

Axes: N records.

Cells of what was not reported hold NaN (0 in checksums), so that equal records give equal bytes.
A label that a rank repeats is kept at the ends of each stretch only, see `labels`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from firstfault.telemetry import Checksum, Event, Record, Value

from .blocks import ChecksumColumn, Flags, NumberColumn, RecordBatch, Rejected
from .labels import labels_from_rows

_WORD_BITS, _WORD_MASK = 64, (1 << 64) - 1
MAX_CELLS = 1 << 25
"""Rows times distinct metrics of one batch: 300 MB as columns. Reached only by made-up names."""


class BatchBuilder:
    """Collects records and events in arrival order, then gives them as columns."""

    def __init__(self, max_cells: int = MAX_CELLS) -> None:
        self._max_cells = max_cells
        self._records: list[Record] = []
        self._events: list[tuple[int, Event]] = []
        self._rejected: list[Rejected] = []
        self._origins: set[tuple[str, str]] = set()

    def add(self, what: Record | Event, part: str | None = None) -> None:
        """Take the next record or event; ``part`` of the source, where that is not the same for all."""
        if part is not None:
            self._origins.add((what.run, part))
        if isinstance(what, Record):
            self._records.append(what)
        else:
            self._events.append((len(self._records), what))

    @property
    def record_count(self) -> int:
        """Records taken so far."""
        return len(self._records)

    @property
    def event_count(self) -> int:
        """Events taken so far."""
        return len(self._events)

    def reject(self, rejected: Rejected) -> None:
        """Keep what was not understood."""
        self._rejected.append(rejected)

    def build(self) -> RecordBatch:
        """All that was added, as one batch.

        Metrics beyond the cell budget are left out, the last seen first, each counted as rejected.
        """
        records = self._records
        numbers, checksums, labels = _sparse(records)
        size = len(records)
        admitted, refused = admit([*numbers, *checksums], size, self._max_cells)
        runs = {name: at for at, name in enumerate(dict.fromkeys(record.run for record in records))}
        run_N = np.fromiter((runs[record.run] for record in records), np.int32, size)
        attempt_N = np.fromiter((record.attempt for record in records), np.int32, size)
        rank_N = np.fromiter((record.rank for record in records), np.int32, size)
        iteration_N = np.fromiter((record.iteration for record in records), np.int64, size)
        microbatch_N = np.fromiter((record.microbatch for record in records), np.int32, size)
        keys = (run_N, attempt_N, rank_N, iteration_N, microbatch_N)
        return RecordBatch(
            runs=tuple(runs),
            run_N=run_N,
            attempt_N=attempt_N,
            rank_N=rank_N,
            iteration_N=iteration_N,
            microbatch_N=microbatch_N,
            time_N=np.fromiter((np.nan if r.time is None else r.time for r in records), np.float64, size),
            numbers={name: _dense_number(size, *numbers[name]) for name in numbers if name in admitted},
            checksums={
                name: _dense_checksum(size, *checksums[name]) for name in checksums if name in admitted
            },
            labels=labels_from_rows(labels, keys),
            events=tuple(self._events),
            rejected=(*self._rejected, *refused),
            origins=frozenset(self._origins) or None,
        )


def batch_from_records(arrived: Iterable[Record | Event], rejected: Iterable[Rejected] = ()) -> RecordBatch:
    """Records and events in arrival order as one batch."""
    builder = BatchBuilder()
    for what in arrived:
        builder.add(what)
    for why in rejected:
        builder.reject(why)
    return builder.build()


def records_from_batch(batch: RecordBatch) -> list[Record]:
    """The rows of a batch as records, for small output; labels only at the rows that kept them."""
    metrics: list[dict[str, Value]] = [{} for _ in range(len(batch))]
    labels: list[dict[str, str]] = [{} for _ in range(len(batch))]
    for name, number in batch.numbers.items():
        for at in np.flatnonzero(number.present_N).tolist():
            metrics[at][name] = float(number.values_N[at])
    for name, checksum in batch.checksums.items():
        for at in np.flatnonzero(checksum.present_N).tolist():
            high, low = int(checksum.high_N[at]), int(checksum.low_N[at])
            metrics[at][name] = Checksum(high << _WORD_BITS | low)
    for at, name, text in batch.labels:
        labels[at][name] = text
    return [
        Record(
            run=batch.runs[batch.run_N[at]],
            rank=int(batch.rank_N[at]),
            iteration=int(batch.iteration_N[at]),
            attempt=int(batch.attempt_N[at]),
            microbatch=int(batch.microbatch_N[at]),
            time=None if np.isnan(batch.time_N[at]) else float(batch.time_N[at]),
            metrics=metrics[at],
            labels=labels[at],
        )
        for at in range(len(batch))
    ]


def select_rows(batch: RecordBatch, keep_N: Flags) -> RecordBatch:
    """The records where ``keep_N``; events stay with the records before them, ``rejected`` is kept.

    ``runs`` keeps all names. A label goes with the row that carries it.
    """
    if keep_N.all():
        return batch
    at_K = np.flatnonzero(keep_N)  # few rows are taken faster by their places

    def kept_before(row: int) -> int:
        return int(np.searchsorted(at_K, row))

    return RecordBatch(
        runs=batch.runs,
        run_N=batch.run_N[at_K],
        attempt_N=batch.attempt_N[at_K],
        rank_N=batch.rank_N[at_K],
        iteration_N=batch.iteration_N[at_K],
        microbatch_N=batch.microbatch_N[at_K],
        time_N=batch.time_N[at_K],
        numbers={
            name: NumberColumn(
                column.values_N[at_K],
                column.present_N[at_K],
                None if column.inferred_N is None else column.inferred_N[at_K],
            )
            for name, column in batch.numbers.items()
        },
        checksums={
            name: ChecksumColumn(column.high_N[at_K], column.low_N[at_K], column.present_N[at_K])
            for name, column in batch.checksums.items()
        },
        labels=tuple((kept_before(at), name, text) for at, name, text in batch.labels if keep_N[at]),
        events=tuple((kept_before(before), event) for before, event in batch.events),
        rejected=batch.rejected,
        origins=batch.origins,
    )


def distinct(values_N: NDArray[np.int32]) -> list[int]:
    """The distinct values, ascending: mostly one, which is found without looking for others.

    >>> distinct(np.array([3, 1, 3], np.int32))
    [1, 3]
    """
    if not len(values_N):
        return []
    least, greatest = int(values_N.min()), int(values_N.max())
    return [least] if least == greatest else [int(value) for value in np.unique(values_N)]


def union(one_N: NDArray[np.int32], other_N: NDArray[np.int32]) -> NDArray[np.int32]:
    """The distinct values of both, ascending. numpy's own would load masked arrays, which takes 40 ms.

    >>> union(np.array([0, 4], np.int32), np.array([4, 2, 2], np.int32)).tolist()
    [0, 2, 4]
    """
    both_N = np.sort(np.concatenate([one_N, other_N]))
    is_new_N = np.ones(len(both_N), np.bool_)
    is_new_N[1:] = both_N[1:] != both_N[:-1]
    return both_N[is_new_N]


def admit(names: Sequence[str], size: int, max_cells: int) -> tuple[frozenset[str], list[Rejected]]:
    """The metrics that fit the cell budget in order of appearance, and one `Rejected` for each other."""
    limit = max(1, max_cells // max(1, size))
    rule = f"must be among the first {limit} metrics of a batch of {size} records"
    refused = [Rejected(name, rule, "all values", whole=False) for name in names[limit:]]
    return frozenset(names[:limit]), refused


Sparse = dict[str, tuple[list[int], list[Value]]]


def _sparse(records: Sequence[Record]) -> tuple[Sparse, Sparse, dict[str, tuple[list[int], list[str]]]]:
    numbers: Sparse = {}
    checksums: Sparse = {}
    labels: dict[str, tuple[list[int], list[str]]] = {}
    for at, record in enumerate(records):
        for name, value in record.metrics.items():
            kind = checksums if isinstance(value, Checksum) else numbers
            rows, values = kind.setdefault(name, ([], []))
            rows.append(at)
            values.append(value)
        for name, text in record.labels.items():
            label_rows, texts = labels.setdefault(name, ([], []))
            label_rows.append(at)
            texts.append(text)
    return numbers, checksums, labels


def _dense_number(size: int, rows: list[int], values: list[Value]) -> NumberColumn:
    values_N, present_N = np.full(size, np.nan), np.zeros(size, np.bool_)
    values_N[rows] = values
    values_N[np.isnan(values_N)] = np.nan  # one NaN for all: conflicts are settled by bit patterns
    present_N[rows] = True
    return NumberColumn(values_N, present_N)


def _dense_checksum(size: int, rows: list[int], values: list[Value]) -> ChecksumColumn:
    high_N, low_N, present_N = np.zeros(size, np.uint64), np.zeros(size, np.uint64), np.zeros(size, np.bool_)
    words = [int(value) for value in values]
    high_N[rows] = np.array([word >> _WORD_BITS for word in words], np.uint64)
    low_N[rows] = np.array([word & _WORD_MASK for word in words], np.uint64)
    present_N[rows] = True
    return ChecksumColumn(high_N, low_N, present_N)
