"""What an Arrow stream asks for before it is read: rows and bytes, as its messages declare them.

Arrow's reader allocates what a compressed buffer says it unpacks to, so a few bytes could ask for the
whole memory. Only the few fields needed are read here, out of the FlatBuffers metadata by hand: the
message framing of the Arrow columnar format, "IPC Streaming Format", and Message.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

CONTINUATION = b"\xff\xff\xff\xff"
FILE_MAGIC = b"ARROW1\0\0"
FILE_END = b"ARROW1"
_RULE_WHOLE = "must hold its messages whole"
_DICTIONARY_BATCH, _RECORD_BATCH = 2, 3  # of the union MessageHeader; 1 is the schema
_BUFFER_BYTES = 16  # struct Buffer: offset and length, 64 bits each
_BLOCK_BYTES = 24  # struct Block: offset 64 bits, length 32, padding 32, length of the body 64
_KNOWN_BYTES, _KNOWN_MESSAGES = 1 << 14, 256  # 4 MiB at most: schemas of a hundred columns fit
_known: dict[bytes, tuple[int, int, int]] = {}
_MAX_BUFFERS = 1 << 20  # a schema of 4096 columns has at most 12 300


class ArrowRefused(ValueError):
    """The stream is not framed as Arrow, or asks for more than allowed: the rule and what came."""

    def __init__(self, rule: str, value: str) -> None:
        super().__init__(f"{rule}, got {value}")
        self.rule = rule
        self.value = value


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """How much a stream may ask for. Sums are over the stream if ``is_total``, else for each batch."""

    max_rows: int
    max_unpacked_bytes: int
    max_messages: int
    is_total: bool


def check_stream(data: memoryview, limits: FrameLimits) -> None:
    """Walk the messages of a stream and check what they declare.

    Raises:
        ArrowRefused: bad framing, more rows, bytes or messages than allowed, or more rows than bytes.
    """
    at = 0
    counts = _Counts(limits)
    try:
        while at < len(data):
            if data[at : at + 4] != CONTINUATION:
                raise ArrowRefused("must be Arrow messages", f"{bytes(data[at : at + 8])!r} at byte {at}")
            (size,) = struct.unpack_from("<i", data, at + 4)
            if size == 0:
                return
            body = at + 8 + size
            if size < 0 or body > len(data):
                raise ArrowRefused(_RULE_WHOLE, f"{size} bytes of metadata at byte {at}")
            asked = _declared(data[at + 8 : body], data[body:])
            counts.add(*asked[:2])
            at = body + asked[2]
    except (struct.error, IndexError) as error:
        raise ArrowRefused(_RULE_WHOLE, f"bad metadata at byte {at}") from error


def check_file(data: memoryview, limits: FrameLimits) -> None:
    """Walk the messages that the index at the end of an Arrow file names and check what they declare.

    Raises:
        ArrowRefused: as for a stream.
    """
    counts = _Counts(limits)
    try:
        if data[-len(FILE_END) :] != FILE_END:
            raise ArrowRefused(_RULE_WHOLE, f"an end of {bytes(data[-len(FILE_END) :])!r}")
        (size,) = struct.unpack_from("<i", data, len(data) - len(FILE_END) - 4)
        footer = data[len(data) - len(FILE_END) - 4 - size : len(data) - len(FILE_END) - 4]
        table = struct.unpack_from("<I", footer, 0)[0]
        for field in (2, 3):  # dictionaries, record batches
            for at, length in _blocks(footer, table, field):
                start = at + (8 if data[at : at + 4] == CONTINUATION else 4)
                if not 0 <= at < start < at + length <= len(data):
                    raise ArrowRefused(_RULE_WHOLE, f"{length} bytes of metadata at byte {at}")
                counts.add(*_declared(data[start : at + length], data[at + length :])[:2])
    except (struct.error, IndexError) as error:
        raise ArrowRefused(_RULE_WHOLE, "a bad index") from error


def _blocks(footer: memoryview, table: int, field: int) -> Iterator[tuple[int, int]]:
    """Place and length of the metadata of each block in a vector of the footer."""
    if not _field(footer, table, field):
        return
    vector = _table(footer, table, field)
    (count,) = struct.unpack_from("<I", footer, vector)
    for number in range(count):
        yield struct.unpack_from("<qi", footer, vector + 4 + number * _BLOCK_BYTES)


class _Counts:
    """What the messages asked for so far."""

    def __init__(self, limits: FrameLimits) -> None:
        self._limits = limits
        self._rows = self._unpacked = self._messages = 0

    def add(self, rows: int, unpacked: int) -> None:
        """Take what one more message declares, and check the limits."""
        is_total = self._limits.is_total
        self._rows = rows + self._rows * is_total
        self._unpacked = unpacked + self._unpacked * is_total
        self._messages += 1
        _check(self._rows, self._unpacked, self._messages, self._limits)


def _check(rows: int, unpacked: int, messages: int, limits: FrameLimits) -> None:
    if not 0 <= rows <= limits.max_rows:
        raise ArrowRefused(f"must have at most {limits.max_rows} rows", f"{rows}")
    if not 0 <= unpacked <= limits.max_unpacked_bytes:
        raise ArrowRefused(f"must unpack to at most {limits.max_unpacked_bytes} bytes", f"{unpacked}")
    if rows > unpacked:  # an iteration takes a byte at least; columns of nulls take none for any number
        raise ArrowRefused("must have a value in every row", f"{rows} rows in {unpacked} bytes")
    if messages > limits.max_messages:
        raise ArrowRefused(f"must have at most {limits.max_messages} batches", f"{messages} or more")


def _declared(metadata: memoryview, rest: memoryview) -> tuple[int, int, int]:
    """Rows, bytes once unpacked, and bytes of the body of one message.

    Messages of one sender mostly repeat their metadata byte for byte: what was read of it is remembered,
    unless sizes stand in the body.
    """
    if len(metadata) > _KNOWN_BYTES:
        return _read_declared(metadata, rest)[0]
    key = bytes(metadata)
    known = _known.get(key)
    if known is None:
        known, is_of_metadata_alone = _read_declared(metadata, rest)
        if is_of_metadata_alone:
            if len(_known) >= _KNOWN_MESSAGES:
                _known.clear()
            _known[key] = known
    elif known[2] > len(rest):
        raise ArrowRefused(_RULE_WHOLE, f"a body of {known[2]} bytes")
    return known


def _read_declared(metadata: memoryview, rest: memoryview) -> tuple[tuple[int, int, int], bool]:
    """What `_declared` gives, and whether it depends on the metadata alone."""
    message = struct.unpack_from("<I", metadata, 0)[0]
    body_size = _scalar(metadata, message, 3, "<q")
    if not 0 <= body_size <= len(rest):
        raise ArrowRefused(_RULE_WHOLE, f"a body of {body_size} bytes")
    kind = _scalar(metadata, message, 1, "<B")
    if kind not in (_DICTIONARY_BATCH, _RECORD_BATCH):
        return (0, 0, body_size), True
    batch = _table(metadata, message, 2)
    if kind == _DICTIONARY_BATCH:
        batch = _table(metadata, batch, 1)
    rows = _scalar(metadata, batch, 0, "<q") if kind == _RECORD_BATCH else 0
    if not _field(metadata, batch, 3):
        return (rows, body_size, body_size), True
    return (rows, _unpacked(metadata, batch, rest[:body_size]), body_size), False


def _unpacked(metadata: memoryview, batch: int, body: memoryview) -> int:
    """Sum of the sizes that the compressed buffers of a batch begin with; -1 there means as it is."""
    vector = _table(metadata, batch, 2)
    (count,) = struct.unpack_from("<I", metadata, vector)
    if count > _MAX_BUFFERS:
        raise ArrowRefused(f"must have at most {_MAX_BUFFERS} buffers", f"{count}")
    total = 0
    for number in range(count):
        offset, length = struct.unpack_from("<qq", metadata, vector + 4 + number * _BUFFER_BYTES)
        if length == 0:
            continue
        if offset < 0 or length < 8 or offset + length > len(body):
            raise ArrowRefused("must have its buffers inside its body", f"{length} bytes at {offset}")
        (size,) = struct.unpack_from("<q", body, offset)
        total += length if size == -1 else size
        if size < -1:
            raise ArrowRefused("must unpack to a number of bytes", f"{size}")
    return total


def _field(data: memoryview, table: int, number: int) -> int:
    """Place of a field of a FlatBuffers table, 0 if it is absent."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if vtable < 0:
        raise IndexError(vtable)
    (size,) = struct.unpack_from("<H", data, vtable)
    slot = 4 + 2 * number
    if slot >= size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + slot)
    return table + offset if offset else 0


def _scalar(data: memoryview, table: int, number: int, kind: str) -> int:
    place = _field(data, table, number)
    return int(struct.unpack_from(kind, data, place)[0]) if place else 0


def _table(data: memoryview, table: int, number: int) -> int:
    place = _field(data, table, number)
    if not place:
        raise IndexError(number)
    return int(place + struct.unpack_from("<I", data, place)[0])
