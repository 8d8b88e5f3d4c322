"""Compressed files and bodies, unpacked in bounded pieces: a bomb costs its limit, not the machine.

gzip, xz and bzip2 (any number of members), zstd (any number of frames) and plain bytes, told apart by
how they begin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from .errors import UnreadableInput
from .unpackers import READ_BYTES, Codec, DamagedError, Plain, codec_named, codec_of


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
    """The unpacked bytes of a packed or plain file in pieces; recognised by its bytes.

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
    for piece in _unpack_pieces([data], codec_named(codec), "the body"):
        unpacked += piece
        if len(unpacked) > limit:
            raise OversizedInput(f"the body: must unpack to at most {limit} bytes, got more")
    return bytes(unpacked)


def _unpacked(file: BinaryIO, name: str, config: CompressionConfig) -> Iterator[bytes]:
    """Pieces of at least ``piece_bytes`` until the end, each within the limits."""
    packed = _Counted(file)
    codec = codec_of(packed.peek())
    if isinstance(codec, Plain):
        packed.read_by(config.piece_bytes)  # handed on as it is read, without a copy
    waiting: list[bytes] = []
    total = told = 0
    try:
        for piece in _unpack_pieces(packed.pieces(), codec, name):
            total += len(piece)
            _check_size(total, packed.count, name, config)
            waiting.append(piece)
            if total - told >= config.piece_bytes:
                yield b"".join(waiting)
                waiting, told = [], total
    except UnreadableInput:
        if waiting:
            yield b"".join(waiting)  # what was good comes before the error
        raise
    if waiting:
        yield b"".join(waiting)


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
        self._piece_bytes = READ_BYTES
        self._first = file.read(READ_BYTES)
        self.count = 0

    def read_by(self, piece_bytes: int) -> None:
        """Read so much at once from now on."""
        self._piece_bytes = piece_bytes

    def peek(self) -> bytes:
        return self._first

    def pieces(self) -> Iterator[bytes]:
        piece = self._first
        while piece:
            self.count += len(piece)
            yield piece
            piece = self._file.read(self._piece_bytes)


def _unpack_pieces(packed: Iterable[bytes], codec: Codec, name: str) -> Iterator[bytes]:
    try:
        for data in packed:
            yield from codec.unpack(data)
    except DamagedError as error:
        raise UnreadableInput(f"{name}: damaged compressed data: {error}") from error
    if codec.is_inside:
        raise TruncatedInput(f"{name}: ends inside its compressed data")
