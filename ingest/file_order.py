"""Sort the records of a file that is not in order, whatever its size: runs on disk, then a merge.

A file may hold rank 0's whole history, then rank 1's; or the newest row first; or rows in no order.
Parts that fit in memory are sorted there, put into one temporary file, and read back side by side.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import IO

import numpy as np
from numpy.typing import NDArray

from .blocks import ChecksumColumn, NumberColumn, RecordBatch, Rejected
from .joining import concatenate
from .merge import merge
from .row_order import in_order, position_of, take_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderConfig:
    """What sorting may hold in memory."""

    part_cells: int = 1 << 23
    """Values (columns times rows) sorted at once: 75 MB, about a million rows of five metrics."""
    piece_cells: int = 1 << 17
    """Values of one part that are read back at a time: with 100 parts on disk about 100 MB in all."""


def sort_batches(batches: Iterator[RecordBatch], config: OrderConfig | None = None) -> Iterator[RecordBatch]:
    """All records in the order of attempts and iterations; equals may change places.

    What was rejected comes first, since it has no place. Everything is read before the first record
    is given. Disk space of about the size of the records as columns is used while it is read back.
    """
    limits = config or OrderConfig()
    with tempfile.TemporaryFile(prefix="firstfault-sort-") as file:
        parts: list[list[int]] = []
        waiting: list[RecordBatch] = []
        waiting_cells = 0
        events: list[RecordBatch] = []
        for batch in batches:
            if batch.rejected:
                yield replace(concatenate([]), rejected=batch.rejected)
            if batch.events:
                events.append(replace(concatenate([]), events=batch.events))
            waiting.append(replace(batch, events=(), rejected=()))
            waiting_cells += _cells(batch)
            if waiting_cells >= limits.part_cells:
                parts.append(_write_part(file, in_order(concatenate(waiting)), limits.piece_cells))
                waiting, waiting_cells = [], 0
        rest = in_order(concatenate(waiting))
        cursors = [_read_part(file, places) for places in parts]
        if len(rest) or not parts:
            cursors.append(iter(_pieces(rest, limits.piece_cells)))
        if events:
            cursors.append(_in_steps(concatenate(events)))
        yield from merge(cursors)


def _in_steps(events: RecordBatch) -> Iterator[RecordBatch]:
    """All events at once: the merge holds each back until the records before it are through."""
    ordered = sorted((event for _, event in events.events), key=position_of)
    yield replace(events, events=tuple((0, event) for event in ordered))


def _cells(batch: RecordBatch) -> int:
    return len(batch) * (6 + len(batch.numbers) + len(batch.checksums))


def _pieces(batch: RecordBatch, piece_cells: int) -> list[RecordBatch]:
    rows = max(1, piece_cells // (_cells(batch) // max(len(batch), 1) or 1))
    if len(batch) <= rows:
        return [batch]
    starts = range(0, len(batch), rows)
    return [take_rows(batch, np.arange(at, min(at + rows, len(batch)))) for at in starts]


def _write_part(file: IO[bytes], batch: RecordBatch, piece_cells: int) -> list[int]:
    places: list[int] = []
    for piece in _pieces(batch, piece_cells):
        file.seek(0, 2)
        places.append(file.tell())
        _write(file, piece)
    return places


def _read_part(file: IO[bytes], places: list[int]) -> Iterator[RecordBatch]:
    for place in places:
        file.seek(place)
        yield _read(file)


def _write(file: IO[bytes], batch: RecordBatch) -> None:
    """One batch: a line of JSON that says what follows, then the arrays."""
    names = {
        "runs": batch.runs,
        "labels": batch.labels,
        "numbers": [[name, column.inferred_N is not None] for name, column in batch.numbers.items()],
        "checksums": list(batch.checksums),
    }
    file.write(json.dumps(names).encode() + b"\n")
    for array in _arrays(batch):
        np.save(file, array, allow_pickle=False)


def _arrays(batch: RecordBatch) -> Iterator[NDArray[np.generic]]:
    yield from (
        batch.run_N,
        batch.attempt_N,
        batch.rank_N,
        batch.iteration_N,
        batch.microbatch_N,
        batch.time_N,
    )
    for number in batch.numbers.values():
        yield from (number.values_N, number.present_N)
        if number.inferred_N is not None:
            yield number.inferred_N
    for checksum in batch.checksums.values():
        yield from (checksum.high_N, checksum.low_N, checksum.present_N)


def _read(file: IO[bytes]) -> RecordBatch:
    names = json.loads(file.readline())

    def load() -> NDArray[np.generic]:
        array: NDArray[np.generic] = np.load(file, allow_pickle=False)
        return array

    identity = dict(
        zip(
            ("run_N", "attempt_N", "rank_N", "iteration_N", "microbatch_N", "time_N"),
            (load() for _ in range(6)),
            strict=True,
        )
    )
    numbers = {
        name: NumberColumn(load(), load(), load() if inferred else None)  # type: ignore[arg-type]  # as written
        for name, inferred in names["numbers"]
    }
    checksums = {
        name: ChecksumColumn(load(), load(), load())  # type: ignore[arg-type]  # as written
        for name in names["checksums"]
    }
    rejected: tuple[Rejected, ...] = ()
    return RecordBatch(
        runs=tuple(names["runs"]),
        numbers=numbers,
        checksums=checksums,
        labels=tuple((int(at), str(name), str(text)) for at, name, text in names["labels"]),
        rejected=rejected,
        **identity,  # type: ignore[arg-type]  # as written
    )
