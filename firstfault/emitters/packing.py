"""A batch of lines as the bytes of one message or request: JSON lines, or Arrow where that is shorter.

Nothing is imported here on the sending thread: `Packer` is made in the constructor of a sink.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import groupby
from typing import Any

from ..telemetry import is_checksum
from ..wire_values import NONFINITE_TEXT, as_float

LINES = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
_WORTH_PACKING_BYTES = 1024
"""Shorter bodies fit into one packet of a network as they are."""
_EVENT, _HEARTBEAT = b'"event":', b'"event":"heartbeat"'
"""As `wire.encode_event` writes them; a label that holds them costs columns, and nothing else."""
_INTEGERS = ("attempt", "rank", "iteration", "microbatch")


@dataclass(frozen=True, slots=True)
class Packed:
    """A body and what its headers say of it."""

    body: bytes
    content_type: str
    encoding: str | None = None


class Packer:
    """Packs batches with what is installed where it is made."""

    def __init__(self, arrow_from_records: int) -> None:
        self._arrow_from = arrow_from_records
        self._arrow: Any = _imported("pyarrow")
        if self._arrow is not None:
            import_module("pyarrow.ipc")
        zstandard = _imported("zstandard")
        self._encoding = "gzip" if zstandard is None else "zstd"
        # one packer serves one thread, which zstandard asks for
        self._compress: Callable[[bytes], bytes] = (
            _gzip if zstandard is None else zstandard.ZstdCompressor(level=1).compress
        )

    def parts(self, lines: Sequence[bytes]) -> list[list[bytes]]:
        """``lines`` as what is sent one after the other: records may be columns where no event is among them.

        Heartbeats go ahead, since they belong to no place among records; other events keep theirs.
        """
        if self._arrow is None or len(lines) < self._arrow_from:
            return [list(lines)]
        ahead = [line for line in lines if _HEARTBEAT in line]
        others = [line for line in lines if _HEARTBEAT not in line]
        groups = [list(group) for _, group in groupby(others, key=lambda line: _EVENT in line)]
        return ([ahead] if ahead else []) + groups

    def packed(self, lines: Sequence[bytes], *, compress: bool) -> Packed:
        """The body of ``lines``; compressed where it is asked for and worth it."""
        body, content_type = b"\n".join(lines) + b"\n", LINES
        if self._arrow is not None and len(lines) >= self._arrow_from:
            columns = self._columns(lines)
            if columns is not None and len(columns) < len(body):
                body, content_type = columns, ARROW
        if not compress or len(body) < _WORTH_PACKING_BYTES:
            return Packed(body, content_type)
        return Packed(self._compress(body), content_type, self._encoding)

    def _columns(self, lines: Sequence[bytes]) -> bytes | None:
        """`arrow_of`, None where columns cannot hold the values: as lines the others arrive."""
        try:
            return arrow_of(lines, self._arrow)
        except (ValueError, TypeError, AttributeError, ArithmeticError):
            return None


def arrow_of(lines: Sequence[bytes], arrow: Any) -> bytes | None:
    """The records of ``lines`` as an Arrow IPC stream; None with an event, or two types of one key."""
    columns: dict[str, list[object]] = {}
    for at, line in enumerate(lines):
        fields = json.loads(line)
        if "event" in fields:
            return None
        for key, value in fields.items():
            columns.setdefault(key, [None] * len(lines))[at] = value
    arrays = []
    for key, values in columns.items():
        array = _column(key, values, arrow)
        if array is None:
            return None
        arrays.append(array)
    table = arrow.RecordBatch.from_arrays(arrays, list(columns))
    out = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(out, table.schema) as writer:
        writer.write_batch(table)
    return bytes(out.getvalue())


def _column(key: str, values: Sequence[object], arrow: Any) -> Any:
    """The values of one key as an array, None where they are of two types."""
    if key in _INTEGERS:
        return arrow.array(values, arrow.int64())
    if key == "run" or is_checksum(key):
        return arrow.array(values, arrow.string()).dictionary_encode()
    numbers = [_number(value) for value in values]
    if not any(isinstance(value, str) for value in numbers):
        return arrow.array(numbers, arrow.float64())
    if any(isinstance(value, int | float) for value in numbers):
        return None
    return arrow.array(values, arrow.string()).dictionary_encode()


def _number(value: object) -> object:
    """A number as a double, integers that columns of doubles refuse included; other values as they are."""
    if isinstance(value, str):
        return NONFINITE_TEXT.get(value, value)
    return as_float(value) if isinstance(value, int | float) else value


def _gzip(body: bytes) -> bytes:
    return gzip.compress(body, 1, mtime=0)  # telemetry shrinks little more at higher levels


def _imported(name: str) -> Any:
    """The module ``name`` if it is installed and works."""
    try:
        return import_module(name)
    except Exception:  # a broken installation of something optional must not stop a training job
        return None
