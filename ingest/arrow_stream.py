"""Arrow in and out: a stream from outside is bounded and validated before a value of it is used."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute

from firstfault.telemetry import UNNAMED_RANK, WHOLE_ITERATION
from firstfault.wire import Defaults, Rejection
from firstfault.wire_values import describe

from .arrow_columns import batch_from_columns
from .arrow_frames import CONTINUATION, FILE_MAGIC, ArrowRefused, FrameLimits, check_file, check_stream
from .blocks import ChecksumColumn, RecordBatch
from .columns import BatchBuilder
from .errors import UnreadableInput
from .joining import concatenate
from .json_reference import rejected

if TYPE_CHECKING:
    from .decode import DecodeConfig, RawMessage

RULE_ARROW = "must be a valid Arrow stream"
SLICE_ROWS = 1 << 16
"""Rows converted at once from a file: 65 536 keep the fixed cost below a percent and the memory small."""
_MAX_STREAM_MESSAGES = 4096  # batches of one Kafka message: each costs a fixed 0.1 ms
_FILE_ROWS = 1 << 40  # rows of a file batch are bounded by its bytes
_CHECKSUM_BYTES = 16
Part = tuple[pa.RecordBatch, str, int]


def batch_from_arrow(
    data: bytes, config: DecodeConfig, defaults: Defaults, source: str = "", offset: int = -1
) -> RecordBatch:
    """The records of one Arrow IPC stream; what is not understood is in ``rejected``. Never raises."""
    parts, why = read_stream(data, config)
    read = [(part, source, offset) for part in parts]
    return concatenate(_records(read, [(why, source, offset, data)], config, defaults), config.max_cells)


def batches_from_arrow_messages(
    messages: Sequence[RawMessage], config: DecodeConfig, defaults: Defaults
) -> list[RecordBatch]:
    """The records of many Arrow messages; those of one schema are converted together."""
    parts: list[Part] = []
    refused: list[tuple[Rejection | None, str, int, bytes]] = []
    for message in messages:
        found, why = read_stream(message.value, config)
        parts.extend((part, message.source, message.offset) for part in found)
        refused.append((why, message.source, message.offset, message.value))
    return _records(parts, refused, config, defaults)


def arrow_from_batch(batch: RecordBatch) -> bytes:
    """The batch as an Arrow IPC stream of our columns.

    Raises:
        ValueError: the batch holds events, which travel as JSON lines only.
    """
    table = table_from_batch(batch)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_batch(table)
    return bytes(sink.getvalue())


def table_from_batch(batch: RecordBatch) -> pa.RecordBatch:
    """The batch as Arrow columns: identities, time, metrics, checksums as 16 big-endian bytes, labels.

    Raises:
        ValueError: the batch holds events, which travel as JSON lines only.
    """
    if batch.events:
        raise ValueError(f"a batch of columns must not hold events, got {len(batch.events)}")
    runs = pa.DictionaryArray.from_arrays(
        pa.array(batch.run_N, pa.int32()), pa.array(batch.runs, pa.string())
    )
    arrays: list[tuple[str, pa.Array]] = [
        ("run", runs),
        ("attempt", pa.array(batch.attempt_N)),
        ("rank", pa.array(batch.rank_N, mask=batch.rank_N == UNNAMED_RANK)),
        ("iteration", pa.array(batch.iteration_N)),
        ("microbatch", pa.array(batch.microbatch_N, mask=batch.microbatch_N == WHOLE_ITERATION)),
        ("time", pa.array(batch.time_N, mask=np.isnan(batch.time_N))),
    ]
    for name, number in batch.numbers.items():
        arrays.append((name, pa.array(number.values_N, mask=~number.present_N)))
    for name, sums in batch.checksums.items():
        arrays.append((name, _checksum_array(sums)))
    for name in dict.fromkeys(name for _, name, _ in batch.labels):
        texts: list[str | None] = [None] * len(batch)
        for at, label, text in batch.labels:
            if label == name:
                texts[at] = text
        arrays.append((name, pa.array(texts, pa.string())))
    return pa.RecordBatch.from_arrays([array for _, array in arrays], [name for name, _ in arrays])


def iter_arrow_file(path: Path, config: DecodeConfig, defaults: Defaults) -> Iterator[RecordBatch]:
    """The record batches of an Arrow file (stream or file format; .arrow, .feather).

    Raises:
        UnreadableInput: it is not Arrow, is damaged, or asks for more memory than allowed.
    """
    try:
        with pa.memory_map(str(path)) as mapped:
            yield from _file_batches(mapped.read_buffer(), str(path), config, defaults)
    except (pa.ArrowException, ArrowRefused, OSError, ValueError) as error:
        raise UnreadableInput(f"{path}: not a readable Arrow file: {error}") from error


def _file_batches(
    data: pa.Buffer, source: str, config: DecodeConfig, defaults: Defaults
) -> Iterator[RecordBatch]:
    row = 0
    for whole in _whole_batches(data, config):
        whole.validate(full=True)
        for start in range(0, whole.num_rows, SLICE_ROWS):
            part = whole.slice(start, SLICE_ROWS)
            yield batch_from_columns(part, defaults, RowsOfFile(source, row + start))
        row += whole.num_rows


def _whole_batches(data: pa.Buffer, config: DecodeConfig) -> Iterator[pa.RecordBatch]:
    """The batches of a file as they were written, not yet validated."""
    limits = FrameLimits(_FILE_ROWS, config.max_batch_bytes, _FILE_ROWS, is_total=False)
    view = memoryview(data).cast("B")  # a buffer is of signed bytes, which never equal b"\xff"
    if view[: len(FILE_MAGIC)] == FILE_MAGIC:
        check_file(view, limits)
        with pa.ipc.open_file(data) as reader:
            _check_width(reader.schema, config)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)
    elif view[: len(CONTINUATION)] == CONTINUATION:
        check_stream(view, limits)
        with pa.ipc.open_stream(data) as reader:
            _check_width(reader.schema, config)
            yield from reader
    else:
        raise ArrowRefused("must begin as Arrow does", describe(bytes(view[:16])))


class RowsOfFile:
    """A row of a file is placed by its number."""

    def __init__(self, source: str, first: int) -> None:
        self._source = source
        self._first = first

    def of(self, row: int) -> tuple[str, int]:
        """Source and offset of a row, counted from 0 in the converted columns."""
        return self._source, self._first + row


class _RowsOfParts:
    """A row of joined parts is placed by the message that its part came in."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._ends = list(accumulate(part.num_rows for part, _, _ in parts))

    def of(self, row: int) -> tuple[str, int]:
        _, source, offset = self._parts[min(bisect_right(self._ends, row), len(self._parts) - 1)]
        return source, offset


def read_stream(
    data: bytes, config: DecodeConfig, *, is_of_file: bool = False
) -> tuple[list[pa.RecordBatch], Rejection | None]:
    """The valid batches of a stream up to the first that is not, and why not.

    ``is_of_file`` allows what a batch of a file may take, else what a message may.
    """
    parts: list[pa.RecordBatch] = []
    limits = FrameLimits(
        max_rows=config.max_message_rows,
        max_unpacked_bytes=config.max_batch_bytes if is_of_file else config.max_decompressed_bytes,
        max_messages=_MAX_STREAM_MESSAGES,
        is_total=True,
    )
    try:
        check_stream(memoryview(data), limits)
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            _check_width(reader.schema, config)
            for part in reader:
                part.validate(full=True)
                parts.append(part)
    except ArrowRefused as error:
        return parts, Rejection("message", error.rule, error.value)
    except (pa.ArrowException, OSError, ValueError) as error:
        return parts, Rejection("message", RULE_ARROW, str(error)[:200])
    return parts, None


def _check_width(schema: pa.Schema, config: DecodeConfig) -> None:
    if len(schema) > config.max_keys:
        raise ArrowRefused(f"must have at most {config.max_keys} columns", f"{len(schema)}")
    for name in schema.names:  # raises UnicodeDecodeError, a ValueError, for a name that is not text
        name.encode()


def rows_of_part(part: pa.RecordBatch, defaults: Defaults, source: str, first_row: int) -> RecordBatch:
    """The records of a validated part, its rows placed by their numbers from ``first_row`` on."""
    try:
        return batch_from_columns(part, defaults, RowsOfFile(source, first_row))
    except (pa.ArrowException, ValueError, OverflowError) as error:
        builder = BatchBuilder()
        why = Rejection("message", RULE_ARROW, str(error)[:200])
        builder.reject(rejected(why, source, first_row, b""))
        return builder.build()


def _records(
    parts: Sequence[Part],
    refused: Iterable[tuple[Rejection | None, str, int, bytes]],
    config: DecodeConfig,
    defaults: Defaults,
) -> list[RecordBatch]:
    """Parts converted in groups of one schema, and what was refused."""
    batches: list[RecordBatch] = []
    builder = BatchBuilder()
    group: list[Part] = []
    for part in parts:
        if group and not part[0].schema.equals(group[0][0].schema):
            batches.append(_converted(group, defaults, builder))
            group = []
        group.append(part)
    if group:
        batches.append(_converted(group, defaults, builder))
    for why, source, offset, data in refused:
        if why is not None:
            builder.reject(rejected(why, source, offset, data[: config.max_line_bytes]))
    return [*batches, builder.build()]


def _converted(group: Sequence[Part], defaults: Defaults, builder: BatchBuilder) -> RecordBatch:
    """The records of parts of one schema."""
    try:
        table = pa.Table.from_batches([part for part, _, _ in group]).combine_chunks()
        whole = table.to_batches()
        places = _RowsOfParts(group)
        return concatenate([batch_from_columns(part, defaults, places) for part in whole[:1]])
    except (pa.ArrowException, ValueError, OverflowError) as error:
        _, source, offset = group[0]
        builder.reject(rejected(Rejection("message", RULE_ARROW, str(error)[:200]), source, offset, b""))
        return concatenate([])


def _checksum_array(sums: ChecksumColumn) -> pa.Array:
    words_N2 = np.stack([sums.high_N, sums.low_N], axis=1).astype(">u8")
    array = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(_CHECKSUM_BYTES), len(words_N2), [None, pa.py_buffer(words_N2.tobytes())]
    )
    return pa.compute.if_else(pa.array(sums.present_N), array, pa.scalar(None, array.type))
