"""Arrange records in one call, as objects or as one batch of columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from firstfault.telemetry import Checksum, Event, EventKind, Record, Value
from ingest.alignment import AlignmentConfig, RunAligner
from ingest.blocks import IterationBlock, RecordBatch
from ingest.columns import batch_from_records

Arrived = Record | Event


def record(rank: int, iteration: int, /, *, run: str = "run", attempt: int = 0, **metrics: float) -> Record:
    """A record; integers under a checksum's name are checksums."""
    values: Mapping[str, Value] = {
        name: Checksum(value) if name.endswith("_checksum") else float(value)
        for name, value in metrics.items()
    }
    return Record(run=run, rank=rank, iteration=iteration, attempt=attempt, metrics=values)


def event(kind: str, iteration: int, /, *, rank: int = 0, attempt: int = 0, **fields: object) -> Event:
    """An event of the run called ``run``."""
    return Event(
        kind=EventKind(kind), run="run", rank=rank, iteration=iteration, attempt=attempt, fields=fields
    )


def align(
    batches: Iterable[RecordBatch], config: AlignmentConfig | None = None, *, ended: bool = True
) -> tuple[RunAligner, list[IterationBlock]]:
    """All blocks of one run, those that end of input settles included."""
    aligner = RunAligner("run", config)
    blocks = [block for batch in batches for block in aligner.push(batch)]
    if ended:
        blocks += [block for attempt in aligner.attempts.values() for block in attempt.pending()]
    return aligner, blocks


def cut(arrived: Sequence[Arrived], sizes: Iterable[int]) -> Iterator[RecordBatch]:
    """The records in batches of the given sizes, the last size repeated."""
    begin, size = 0, 1
    given = iter(sizes)
    while begin < len(arrived):
        size = next(given, size)
        yield batch_from_records(arrived[begin : begin + size])
        begin += size


Cell = tuple[int, int, int, int, str]


def cells(blocks: Iterable[IterationBlock]) -> dict[Cell, object]:
    """Every reported value by (attempt, iteration, microbatch, rank, metric); floats as their bits."""
    found: dict[Cell, object] = {}
    for block in blocks:
        for name, number in block.numbers.items():
            for t, r in np.argwhere(number.present_TR):
                found[_key(block, t, r, name)] = number.values_TR[t, r].tobytes()
        for name, checksum in block.checksums.items():
            for t, r in np.argwhere(checksum.present_TR):
                high, low = checksum.high_TR[t, r], checksum.low_TR[t, r]
                found[_key(block, t, r, name)] = int(high) << 64 | int(low)
    return found


def _key(block: IterationBlock, t: int, r: int, name: str) -> Cell:
    return (
        block.attempt,
        int(block.iteration_T[t]),
        int(block.microbatch_T[t]),
        int(block.ranks_R[r]),
        name,
    )
