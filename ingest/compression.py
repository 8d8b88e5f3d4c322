"""Compressed files and bodies, unpacked in bounded pieces: a bomb costs its limit, not the machine.

gzip (any number of members), zstd (any number of frames) and plain bytes, told apart by how they begin.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from .errors import UnreadableInput

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_GZIP_WINDOW = 31  # zlib: 15 bits of window, 16 = expect a gzip header
_READ_BYTES = 1 << 16
# zstd cannot be told to stop: a kibibyte of it holds at most 256 blocks of 128 KiB, 32 MiB in all.
_ZSTD_BYTES = 1 << 10
_MAX_WINDOW_BYTES = 128 << 20  # what the zstd command writes at its highest level without extra options
_MAX_BODY_WINDOW_BYTES = (
    8 << 20
)  # RFC 9659: what a receiver of zstd over HTTP must take, and no sender exceeds


class TruncatedInput(UnreadableInput):
    """A compressed file that ends inside its stream: its writer was killed; what came before is good."""


class OversizedInput(UnreadableInput):
    """More than allowed once unpacked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionConfig:
    """How much a compressed file may unpack to."""

    piece_bytes: int = 1 << 20
    """Target size of a piece handed out: 1 MiB keeps the decoder busy and the memory small."""
    max_total_bytes: int = 1 << 40
    """1 TiB: beyond any log; pieces are bounded anyway, so this only ends an endless file."""
    max_ratio: int = 5_000
    """Unpacked to packed. Constant JSON lines reach about 1000 in gzip, a few thousand in zstd."""
    ratio_free_bytes: int = 64 << 20
    """The ratio is not asked of the first 64 MiB: a short constant log may pack better than any limit."""


DEFAULT_COMPRESSION = CompressionConfig()


def open_bounded(source: Path | BinaryIO, config: CompressionConfig = DEFAULT_COMPRESSION) -> Iterator[bytes]:
    """The unpacked bytes of a gzip, zstd or plain file in pieces; recognised by its bytes.

    Raises:
        TruncatedInput: the stream ends early; all good bytes were handed out before.
        UnreadableInput: it cannot be opened, is damaged, or unpacks beyond the limits; what was good
            was handed out before.
    """
    if isinstance(source, Path):
        try:
            with source.open("rb") as file:
                yield from _unpacked(file, str(source), config)
        except OSError as error:
            raise UnreadableInput(f"{source}: cannot be read: {error.strerror or error}") from error
    else:
        yield from _unpacked(source, str(getattr(source, "name", "the stream")), config)


def decompress_bounded(data: bytes, codec: str, limit: int) -> bytes:
    """``data`` unpacked, at most ``limit`` bytes; ``codec`` is gzip, zstd or identity.

    Raises:
        OversizedInput: more than ``limit`` bytes; what was unpacked until then is all the memory it took.
        UnreadableInput: damaged, truncated, or an unknown codec.

    >>> import gzip
    >>> decompress_bounded(gzip.compress(b"loss"), "gzip", limit=4)
    b'loss'
    """
    unpacked = bytearray()
    for piece in _unpack_pieces([data], _codec_named(codec), "the body"):
        unpacked += piece
        if len(unpacked) > limit:
            raise OversizedInput(f"the body: must unpack to at most {limit} bytes, got more")
    return bytes(unpacked)


def _unpacked(file: BinaryIO, name: str, config: CompressionConfig) -> Iterator[bytes]:
    """Pieces of at least ``piece_bytes`` until the end, each within the limits."""
    packed = _Counted(file)
    codec = _codec_of(packed.peek())
    waiting = bytearray()
    total = 0
    try:
        for piece in _unpack_pieces(packed.pieces(), codec, name):
            total += len(piece)
            _check_size(total, packed.count, name, config)
            waiting += piece
            if len(waiting) >= config.piece_bytes:
                yield bytes(waiting)
                waiting.clear()
    except UnreadableInput:
        if waiting:
            yield bytes(waiting)  # what was good comes before the error
        raise
    if waiting:
        yield bytes(waiting)


def _check_size(total: int, packed: int, name: str, config: CompressionConfig) -> None:
    if total > config.max_total_bytes:
        raise UnreadableInput(f"{name}: must unpack to at most {config.max_total_bytes} bytes, got {total}")
    if total > max(config.ratio_free_bytes, packed * config.max_ratio):
        rule = f"must unpack to at most {config.max_ratio} times its size"
        raise UnreadableInput(f"{name}: {rule}, got {total} bytes from {packed}")


class _Counted:
    """Reads a file in pieces and counts the bytes; the first piece can be looked at before."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._first = file.read(_READ_BYTES)
        self.count = 0

    def peek(self) -> bytes:
        return self._first

    def pieces(self) -> Iterator[bytes]:
        piece = self._first
        while piece:
            self.count += len(piece)
            yield piece
            piece = self._file.read(_READ_BYTES)


class _Codec(Protocol):
    """Unpacks one member (or frame) after the other."""

    @property
    def is_inside(self) -> bool:
        """Whether a member has begun and not ended."""
        ...

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """The output of the next input, in bounded steps; raises `_DamagedError`."""
        ...


class _DamagedError(Exception):
    """Bytes that the codec does not understand."""


class _Plain:
    is_inside = False

    def unpack(self, data: bytes) -> Iterator[bytes]:
        yield data


class _Gzip:
    def __init__(self) -> None:
        self._member: zlib._Decompress | None = None

    @property
    def is_inside(self) -> bool:
        return self._member is not None

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """zlib keeps back what it was not asked for."""
        piece = b""
        while data or (self._member is not None and len(piece) == _READ_BYTES):
            if self._member is None:
                self._member = zlib.decompressobj(_GZIP_WINDOW)
            try:
                piece = self._member.decompress(data, _READ_BYTES)
            except zlib.error as error:
                raise _DamagedError(str(error)) from error
            yield piece
            data = self._member.unconsumed_tail
            if self._member.eof:
                data = self._member.unused_data.lstrip(b"\0")  # tape blocks are padded with zeros
                self._member = None


class _Zstd:
    def __init__(self, max_window_bytes: int = _MAX_WINDOW_BYTES) -> None:
        import zstandard

        self._decompressor = zstandard.ZstdDecompressor(max_window_size=max_window_bytes)
        self._error = zstandard.ZstdError
        self._frame: zstandard.ZstdDecompressionObj | None = None

    @property
    def is_inside(self) -> bool:
        return self._frame is not None

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """Input in small steps, since the output of a step cannot be bounded."""
        at = 0
        while at < len(data):
            step = data[at : at + _ZSTD_BYTES]
            if self._frame is None:
                self._frame = self._decompressor.decompressobj()
            try:
                yield self._frame.decompress(step)
            except self._error as error:
                raise _DamagedError(str(error)) from error
            at += len(step)
            if self._frame.eof:
                at -= len(self._frame.unused_data)
                self._frame = None


def _unpack_pieces(packed: Iterable[bytes], codec: _Codec, name: str) -> Iterator[bytes]:
    try:
        for data in packed:
            yield from codec.unpack(data)
    except _DamagedError as error:
        raise UnreadableInput(f"{name}: damaged compressed data: {error}") from error
    if codec.is_inside:
        raise TruncatedInput(f"{name}: ends inside its compressed data")


def _codec_of(first: bytes) -> _Codec:
    if first.startswith(GZIP_MAGIC):
        return _Gzip()
    return _Zstd() if first.startswith(ZSTD_MAGIC) else _Plain()


def _codec_named(codec: str) -> _Codec:
    match codec:
        case "gzip":
            return _Gzip()
        case "zstd":
            return _Zstd(_MAX_BODY_WINDOW_BYTES)
        case "identity":
            return _Plain()
    raise UnreadableInput(f"the body: codec must be gzip, zstd or identity, got {codec[:40]!r}")
