"""Parquet from outside: read in a child process, since hostile bytes can abort its reader."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow as pa

from firstfault.wire import Defaults, Rejection
from firstfault.wire_values import RULE_VALUE

from . import parquet_child
from .arrow_columns import batch_from_columns
from .arrow_stream import SLICE_ROWS, RowsOfFile, read_stream
from .blocks import RecordBatch
from .columns import BatchBuilder
from .decode_config import DecodeConfig
from .errors import UnreadableInput
from .json_reference import rejected

_MAX_REASON_BYTES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetConfig:
    """What the reader of one file may use."""

    memory_bytes: int = 4 << 30
    """Address space of the child: 4 GiB. The libraries map less than 1; the rest holds the pages of one
    row group, which writers keep far below that."""
    silence_s: float = 120.0
    """Seconds without a piece after which the child is ended: a piece takes milliseconds."""


DEFAULT_PARQUET = ParquetConfig()


def iter_parquet(
    path: Path, config: DecodeConfig, defaults: Defaults, limits: ParquetConfig = DEFAULT_PARQUET
) -> Iterator[RecordBatch]:
    """The records of a Parquet file, in pieces of bounded size; offsets are row numbers.

    Raises:
        UnreadableInput: it is not Parquet, is damaged, crashes the reader or exceeds its memory.
    """
    row = 0
    for piece in _pieces(path, config, limits):
        found, why = read_stream(piece, config, is_of_file=True)
        if why is not None:
            raise UnreadableInput(f"{path}: its reader gave damaged columns: {why.rule}, got {why.value}")
        for part in found:
            if row == 0:
                yield from _nested_columns(part.schema, path)
            yield batch_from_columns(part, defaults, RowsOfFile(str(path), row))
            row += part.num_rows


def _nested_columns(schema: pa.Schema, path: Path) -> Iterator[RecordBatch]:
    """One `Rejected` for each column whose values cannot be metrics; the child does not read them."""
    builder = BatchBuilder()
    for field in schema:
        if pa.types.is_nested(field.type):
            why = Rejection(field.name, RULE_VALUE, f"a column of {field.type}"[:200], is_whole=False)
            builder.reject(rejected(why, str(path), 0, b""))
    batch = builder.build()
    if batch.rejected:
        yield batch


def _pieces(path: Path, config: DecodeConfig, limits: ParquetConfig) -> Iterator[bytes]:
    """The streams that the child writes, until it says that it is done."""
    # -P: nothing is imported from the current folder, which may be the place of the hostile file.
    command = [sys.executable, "-P", parquet_child.__file__, str(path.absolute())]
    command += [str(limits.memory_bytes), str(SLICE_ROWS)]
    with (
        tempfile.TemporaryFile() as reasons,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=reasons) as child,
    ):
        assert child.stdout is not None
        try:
            while piece := _next_piece(child.stdout, path, config, limits):
                yield piece
        except EOFError:
            raise UnreadableInput(f"{path}: not a readable Parquet file: {_reason(child, reasons)}") from None
        finally:
            child.kill()


def _next_piece(out: IO[bytes], path: Path, config: DecodeConfig, limits: ParquetConfig) -> bytes:
    """The next stream, empty at the end; EOFError if the child ended before saying so."""
    ready, _, _ = select.select([out], [], [], limits.silence_s)
    if not ready:
        raise UnreadableInput(f"{path}: its reader must give a piece every {limits.silence_s} s, got none")
    size = int.from_bytes(_exactly(out, parquet_child.LENGTH_BYTES), "big")
    if size > config.max_batch_bytes:
        raise UnreadableInput(
            f"{path}: {SLICE_ROWS} rows must take at most {config.max_batch_bytes} bytes, got {size}"
        )
    return _exactly(out, size)


def _exactly(out: IO[bytes], size: int) -> bytes:
    data = out.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _reason(child: subprocess.Popen[bytes], reasons: IO[bytes]) -> str:
    """Why the child ended: what it said last, or the signal that ended it."""
    status = child.wait()
    reasons.seek(0)
    said = reasons.read(_MAX_REASON_BYTES).decode(errors="replace").strip()
    if status < 0:
        return f"its reader was ended by {signal.Signals(-status).name}"
    return said.splitlines()[-1] if said else f"its reader ended with status {status}"
