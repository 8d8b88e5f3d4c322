"""Builders of log files and of the batches that come out of them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from firstfault.telemetry import UNNAMED_RANK, Record
from firstfault.wire import Defaults
from ingest.blocks import RecordBatch
from ingest.columns import batch_from_records
from ingest.file_reader import FileConfig
from ingest.file_source import FileSource
from ingest.file_stream import StreamConfig
from ingest.jobs import Job, find_jobs
from ingest.joining import concatenate
from ingest.sniff import find_dialect
from ingest.tables import TableReader

Row = tuple[int, int, int]
"""(attempt, rank, iteration)."""


def read_table(text: str | bytes, *, name: str = "t.csv", rank: int = UNNAMED_RANK) -> RecordBatch:
    """The records of a table, read in one piece."""
    data = text.encode() if isinstance(text, str) else text
    return table_reader(data, name=name, rank=rank).decode(data)


def table_reader(data: bytes, *, name: str = "t.csv", rank: int = UNNAMED_RANK) -> TableReader:
    """A reader that knows the header of ``data`` and has read nothing yet."""
    return TableReader(find_dialect(data, name), data, Defaults(run="t", rank=rank), name)


def source_of(
    *paths: Path, config: FileConfig | None = None, stream: StreamConfig | None = None
) -> FileSource:
    """The source of the one job in ``paths``."""
    (job,) = find_jobs(paths)
    return FileSource(job, config=config, stream=stream)


def stdin_source(data: bytes, *, follow: bool = False) -> FileSource:
    """Standard input that holds ``data``."""
    (job,) = find_jobs(["-"])
    return FileSource(job, stdin=io.BytesIO(data), follow=follow)


def read_all(source: FileSource) -> RecordBatch:
    """Everything a source gives, as one batch."""
    batches: list[RecordBatch] = []
    while not source.is_exhausted:
        batches += source.poll(0.0)
    return concatenate(batches)


def read_files(
    *paths: Path, config: FileConfig | None = None, stream: StreamConfig | None = None
) -> RecordBatch:
    """The records of the one job in ``paths``."""
    return read_all(source_of(*paths, config=config, stream=stream))


def rows_of(batch: RecordBatch) -> list[Row]:
    """(attempt, rank, iteration) of each record, in order."""
    return list(zip(batch.attempt_N.tolist(), batch.rank_N.tolist(), batch.iteration_N.tolist(), strict=True))


def values_of(batch: RecordBatch, metric: str) -> list[float | None]:
    """A metric of each record, None where it was not reported."""
    column = batch.numbers[metric]
    return [
        value if present else None
        for value, present in zip(column.values_N.tolist(), column.present_N.tolist(), strict=True)
    ]


def batch_of(
    rows: Sequence[tuple[int, int] | tuple[int, int, float]], *, run: str = "r", metric: str = "loss"
) -> RecordBatch:
    """Records from (rank, iteration) or (rank, iteration, value); else the value follows from both."""
    records = [
        Record(
            run=run,
            rank=row[0],
            iteration=row[1],
            metrics={metric: float(row[2]) if len(row) == 3 else row[0] + row[1] / 1000},
        )
        for row in rows
    ]
    return batch_from_records(records)


def with_attempts(batch: RecordBatch, attempts: Iterable[int]) -> RecordBatch:
    """The batch with other attempts."""
    from dataclasses import replace

    return replace(batch, attempt_N=np.array(list(attempts), np.int32))


def cut(batch: RecordBatch, sizes: Sequence[int]) -> list[RecordBatch]:
    """The batch in pieces of these sizes, the rest in one."""
    from ingest.row_order import take_rows

    pieces, at = [], 0
    for size in [*sizes, len(batch)]:
        if at >= len(batch):
            break
        pieces.append(take_rows(batch, np.arange(at, min(at + size, len(batch)))))
        at += size
    return pieces


def job_names(jobs: Sequence[Job]) -> dict[str, list[int | None]]:
    """The run of each job and the ranks of its files."""
    return {job.run: [file.rank for file in job.files] for job in jobs}
