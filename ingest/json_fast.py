"""JSON lines straight to columns, for pieces that prove uniform; anything else is left to the reference.

A piece qualifies if every line is one flat object of known keys and nothing in it could be read in two
ways. The proof is a handful of scans over its bytes, the parse is Arrow's, and the columns go through
the same rules as Arrow messages: whatever would be rejected there sends the piece to the reference.
No Python object is made for a record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
from pydantic_core import from_json

from firstfault.telemetry import is_checksum
from firstfault.wire import Defaults
from firstfault.wire_values import NONFINITE_TEXT

from .blocks import RecordBatch
from .columns import BatchBuilder
from .joining import concatenate
from .json_reference import FilePlaces, LineLimits, LinePlaces, ReferenceDecoder, plain_line_ends

if TYPE_CHECKING:
    import pyarrow as pa

# An integer -0 is 0 for the reference and -0.0 for Arrow.
_BLOCK_BYTES = 1 << 20
"""What Arrow parses as one task: a piece of several such blocks keeps every core busy."""
_BYTES_A_CELL = 4
"""A value with its key takes twice as many; where a cell of the table has fewer, most cells are empty, and
filling them costs more than the parse: 90 times with 4000 names of somebody else."""
_SAMPLED_LINES = 16
_NEGATIVE_ZERO = re.compile(rb"-0(?![0-9.eE])")
_QUOTED = tuple(
    (b'%s"%s"%s' % (gap, text.encode(), end), b"%s%s%s" % (gap, text.encode(), end))
    for text in ("NaN", "Infinity", "-Infinity")
    for gap in (b":", b": ")
    for end in (b",", b"}")
)
_NOWHERE = FilePlaces("", 0)  # what is rejected here is read again by the reference
_NONFINITE_WORDS = ("NaN", "Infinity")


class _Shape(Enum):
    """What was seen under a key; a key seen in two shapes is never read fast."""

    NUMBER = "number"
    FLAG = "flag"
    TEXT = "text"
    SIGNED = "signed"
    UNSIGNED = "unsigned"
    MIXED = "mixed"


class FastDecoder:
    """Reads uniform pieces with the schema that the reference's clean records taught it."""

    def __init__(self, limits: LineLimits, defaults: Defaults) -> None:
        self._limits = limits
        self._defaults = defaults
        self._reference = ReferenceDecoder(limits, defaults)
        self._shapes: dict[str, _Shape] = {}

    @property
    def has_learned(self) -> bool:
        """Whether any record was seen yet."""
        return bool(self._shapes)

    def learn(self, lines: Iterable[Mapping[str, object]]) -> None:
        """Take note of the keys of clean records and of the shape of their values.

        The last ones count: a sender of odd shapes or of ever new names must not slow down all others for
        good, so a shape seen later replaces one seen before, and the keys not seen for longest are let go.
        """
        seen: dict[str, _Shape] = {}
        for line in lines:
            for key, value in line.items():
                known = seen.get(key)
                if value is None or (known is _Shape.NUMBER and type(value) is float):
                    continue
                shape = _shape_of(key, value)
                seen[key] = shape if known in (None, shape) else _merged(known, shape)
        for key, shape in seen.items():
            known = self._shapes.pop(key, shape)
            merged = _merged(known, shape)
            self._shapes[key] = shape if merged is _Shape.MIXED else merged
        while len(self._shapes) > self._limits.max_keys:
            del self._shapes[next(iter(self._shapes))]

    def decode(self, data: bytes, first_line: int, places: LinePlaces) -> RecordBatch | None:
        """The records of ``data``, which ends with a line end; None if it must go to the reference."""
        data = plain_line_ends(data)
        found = BatchBuilder()
        taken: tuple[bytes, list[int], list[int]] | None = (data, [], [])
        if b'"event"' in data:
            taken = self._take_events(data, first_line, places, found)
        batch = None if taken is None else self._decode_uniform(taken[0])
        if taken is None or batch is None:
            return None
        told = found.build()
        placed = tuple((at, event) for at, (_, event) in zip(taken[1], told.events, strict=True))
        batch = replace(batch, events=placed, rejected=told.rejected, origins=told.origins)
        return _with_origins(batch, first_line, taken[2], places) if places.is_mixed else batch

    def _take_events(
        self, data: bytes, first_line: int, places: LinePlaces, found: BatchBuilder
    ) -> tuple[bytes, list[int], list[int]] | None:
        """The lines without events, how many of them stand before each event given to ``found``, and the
        numbers of the lines taken out.

        None if a line that looked like an event is a record.
        """
        kept: list[bytes] = []
        before: list[int] = []
        out: list[int] = []
        start = line = taken = 0
        while (hit := data.find(b'"event"', start)) >= 0:
            begin = data.rfind(b"\n", start, hit) + 1 or start
            end = data.index(b"\n", hit)
            kept.append(data[start:begin])
            line += kept[-1].count(b"\n")
            self._reference.decode_line(data[begin:end], first_line + line, places, found)
            if found.record_count:
                return None
            if found.event_count > len(before):
                before.append(line - taken)
            out.append(line)
            start, line, taken = end + 1, line + 1, taken + 1
        kept.append(data[start:])
        return b"".join(kept), before, out

    def _decode_uniform(self, data: bytes) -> RecordBatch | None:
        """The records of lines that are all flat objects of known keys, else None."""
        import pyarrow as pa
        from pyarrow import json as arrow_json

        from .arrow_columns import batch_from_columns

        if not data:
            return concatenate([])
        proven = self._proven_lines(data)
        # One byte is found many times faster than a word, and most data has no N and no I.
        is_quoted = (b"N" in data and b'NaN"' in data) or (b"I" in data and b'Infinity"' in data)
        if proven is None or (is_quoted and (b"\\" in data or _names_nonfinite(self._shapes))):
            return None
        lines, longest = proven
        keys = self._keys_of(data, lines)
        if keys is None:
            return None
        for quoted, bare in _QUOTED if is_quoted else ():
            data = data.replace(quoted, bare)
        try:
            table = arrow_json.read_json(
                pa.BufferReader(data),
                read_options=arrow_json.ReadOptions(block_size=max(longest + 2, _BLOCK_BYTES)),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=self._schema(keys),
                    newlines_in_values=False,
                    unexpected_field_behavior="error",
                ),
            )
        except pa.ArrowException:
            return None
        parts = table.combine_chunks().to_batches()
        if len(parts) != 1 or parts[0].num_rows != lines:
            return None
        batch = batch_from_columns(parts[0], self._defaults, _NOWHERE)
        if batch.rejected or (is_quoted and (_names_nonfinite(batch.runs) or _labels_nonfinite(parts[0]))):
            return None
        return batch

    def _proven_lines(self, data: bytes) -> tuple[int, int] | None:
        """Number of lines and bytes of the longest, if each is one flat object that reads in one way only."""
        byte_B = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(byte_B == ord("\n"))
        starts = np.append(0, ends[:-1] + 1)
        lines = len(ends)
        if (
            np.count_nonzero(byte_B == ord("{")) != lines
            or np.count_nonzero(byte_B == ord("}")) != lines
            or not (byte_B[starts] == ord("{")).all()
            or not (byte_B[ends - 1] == ord("}")).all()
        ):
            return None
        longest = int((ends - starts).max())
        if longest > self._limits.max_line_bytes:
            return None
        if b"\0" in data or not (data.isascii() or _is_utf8(data)):
            return None
        # Arrow also reads Inf and -NaN.
        if b"N" in data and b"-NaN" in data:
            return None
        if b"I" in data and data.count(b"Inf") != data.count(b"Infinity"):
            return None
        if b"-" in data and b"-0" in data and _NEGATIVE_ZERO.search(data):
            return None
        return lines, longest

    def _keys_of(self, data: bytes, lines: int) -> Collection[str] | None:
        """The keys to read ``data`` with: all that are known or, where most would be empty, those of a few
        of its lines; None if one of these is unknown."""
        if lines * len(self._shapes) * _BYTES_A_CELL <= len(data):
            return self._shapes
        found: dict[str, None] = {}
        for place in range(_SAMPLED_LINES):
            begin = data.rfind(b"\n", 0, len(data) * place // _SAMPLED_LINES) + 1
            try:
                found.update(dict.fromkeys(from_json(data[begin : data.index(b"\n", begin)])))
            except ValueError:
                return None
        return found if found.keys() <= self._shapes.keys() else None

    def _schema(self, keys: Collection[str]) -> pa.Schema:
        import pyarrow as pa

        kinds = {
            _Shape.NUMBER: pa.float64(),  # also identities: exact up to the greatest iteration
            _Shape.FLAG: pa.bool_(),
            _Shape.TEXT: pa.string(),
            _Shape.SIGNED: pa.int64(),
            _Shape.UNSIGNED: pa.uint64(),
        }
        known = ((key, self._shapes[key]) for key in keys)
        return pa.schema([(key, kinds[shape]) for key, shape in known if shape in kinds])


def _with_origins(batch: RecordBatch, first_line: int, out: list[int], places: LinePlaces) -> RecordBatch:
    """The batch with the sources of its runs; its rows are the lines from ``first_line`` but for ``out``."""
    line_N = np.delete(np.arange(len(batch) + len(out)), out) + first_line
    sources, source_N = places.sources(line_N)
    found = np.unique(batch.run_N.astype(np.int64) * len(sources) + source_N).tolist()
    pairs = {(batch.runs[pair // len(sources)], sources[pair % len(sources)]) for pair in found}
    return replace(batch, origins=frozenset(pairs | (batch.origins or set())))


def _shape_of(key: str, value: object) -> _Shape:
    if isinstance(value, bool):
        return _Shape.FLAG
    if isinstance(value, str):
        is_number = value in NONFINITE_TEXT and key != "run" and not is_checksum(key)
        return _Shape.NUMBER if is_number else _Shape.TEXT
    if isinstance(value, int) and is_checksum(key):
        return _Shape.SIGNED if value < 1 << 63 else _Shape.UNSIGNED
    return _Shape.NUMBER if isinstance(value, int | float) else _Shape.MIXED


def _merged(known: _Shape, shape: _Shape) -> _Shape:
    if known is shape:
        return shape
    return _Shape.UNSIGNED if {known, shape} == {_Shape.SIGNED, _Shape.UNSIGNED} else _Shape.MIXED


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _names_nonfinite(names: Iterable[str]) -> bool:
    """Whether taking quotes off NaN could have reached inside one of these texts."""
    return any(word in name for name in names for word in _NONFINITE_WORDS)


def _labels_nonfinite(table: pa.RecordBatch) -> bool:
    """Whether a text column holds one of the words."""
    import pyarrow as pa
    from pyarrow import compute

    return any(
        bool(compute.any(compute.match_substring(column, word)).as_py())
        for column in table.columns
        if pa.types.is_string(column.type)
        for word in _NONFINITE_WORDS
    )
