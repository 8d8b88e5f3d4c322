"""Arrow bodies checked by the worker's own conversion, and cut into streams of one run each.

Rows go on with the columns that the sender gave them, rejected rows included, as with lines. What a stream
has after its first damaged batch stays behind; its sender is told.

Axes: N rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firstfault.wire import Rejection
from ingest.arrow_stream import read_stream, rows_of_part
from ingest.blocks import RecordBatch, Rejected
from ingest.decode import ALL_REQUIRED, ARROW_CONTENT_TYPE, DecodeConfig
from ingest.json_reference import rejected

from .intake_config import IntakeConfig
from .intake_lines import Checked, IntakeMessage, check_count, check_runs

_SOURCE = "the body"
_FILL = 0.9
"""Share of a message that a first guess from the mean size of a row may fill."""


def check_arrow(data: bytes, decode: DecodeConfig, config: IntakeConfig) -> Checked:
    """The rows of an Arrow stream, each by itself.

    Raises:
        IntakeProblem: 413, too many rows or runs.
    """
    parts, damage = read_stream(data, decode)
    check_count(sum(part.num_rows for part in parts), config)
    firsts = list(accumulate((part.num_rows for part in parts), initial=1))
    batches = [
        rows_of_part(part, ALL_REQUIRED, _SOURCE, first)
        for part, first in zip(parts, firsts[:-1], strict=True)
    ]
    runs = {batch.runs[code] for batch in batches for code in np.unique(batch.run_N).tolist()}
    check_runs(len(runs), config)
    why = [one for batch in batches for one in batch.rejected]
    accepted = sum(len(batch) for batch in batches)
    refused = firsts[-1] - 1 - accepted
    if damage is not None:
        why.append(rejected(damage, _SOURCE, -1, b""))
        refused += 1
    if damage is None and len(runs) == 1 and len(data) <= config.max_message_bytes:
        messages = [IntakeMessage(runs.pop(), data, ARROW_CONTENT_TYPE, accepted)]
    else:
        cut = _Cutter(config.max_message_bytes)
        messages = [
            one
            for part, first, batch in zip(parts, firsts[:-1], batches, strict=True)
            for one in cut.cut(part, first, batch)
        ]
        why += cut.refused
        accepted -= len(cut.refused)
        refused += len(cut.refused)
    return Checked(accepted, refused, tuple(why), tuple(messages))


class _Cutter:
    """Cuts tables by run, and then into rows that fit a message."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.refused: list[Rejected] = []

    def cut(self, part: pa.RecordBatch, first_row: int, batch: RecordBatch) -> Iterator[IntakeMessage]:
        """The messages of one part; `batch` is what its rows were understood as."""
        if not len(batch):
            return
        good_N, run_N = _runs_of_rows(part.num_rows, first_row, batch)
        # A stream repeats its dictionaries: cut into pieces they could be most of each.
        plain = pa.RecordBatch.from_arrays(
            [_plain(column) for column in part.columns], schema=_plain_schema(part)
        )
        for code in dict.fromkeys(run_N.tolist()):
            rows_N = np.flatnonzero(run_N == code)
            table = plain if len(rows_N) == len(plain) else plain.take(pa.array(rows_N))
            yield from self._fitting(batch.runs[code], table, good_N[rows_N])

    def _fitting(self, run: str, table: pa.RecordBatch, good_N: NDArray[np.bool_]) -> Iterator[IntakeMessage]:
        mean = max(1, table.nbytes // len(table))
        step = max(1, int(self._max_bytes * _FILL) // mean)
        for start in range(0, len(table), step):
            yield from self._halved(run, table.slice(start, step), good_N[start : start + step])

    def _halved(self, run: str, table: pa.RecordBatch, good_N: NDArray[np.bool_]) -> Iterator[IntakeMessage]:
        value = _stream(table)
        if len(value) <= self._max_bytes:
            yield IntakeMessage(run, value, ARROW_CONTENT_TYPE, int(good_N.sum()))
        elif len(table) > 1:
            half = len(table) // 2
            yield from self._halved(run, table.slice(0, half), good_N[:half])
            yield from self._halved(run, table.slice(half), good_N[half:])
        elif good_N[0]:
            rule = f"must be at most {self._max_bytes} bytes"
            self.refused.append(rejected(Rejection("row", rule, f"{len(value)} bytes"), _SOURCE, -1, b""))


def _runs_of_rows(
    rows: int, first_row: int, batch: RecordBatch
) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Which rows were accepted, and the run that each goes with: a rejected one with the row before it."""
    good_N = np.ones(rows, np.bool_)
    good_N[[one.offset - first_row for one in batch.rejected if one.whole]] = False
    assert good_N.sum() == len(batch), "each rejected row has one reason"
    # the place, among the accepted, of the last one up to each row
    last_N = np.maximum(np.cumsum(good_N) - 1, 0)
    return good_N, batch.run_N[last_N]


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _plain_schema(part: pa.RecordBatch) -> pa.Schema:
    return pa.schema(
        [
            pa.field(field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
            for field in part.schema
        ]
    )


def _stream(table: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    return bytes(sink.getvalue())
