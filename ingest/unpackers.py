"""The packings that are read, each unpacked in bounded steps."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

from .errors import UnreadableInput

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
XZ_MAGIC = b"\xfd7zXZ\0"
BZIP2_MAGIC = b"BZh"
_MAX_XZ_BYTES = 128 << 20
"""Memory of the decompressor: its highest level needs 65 MiB."""
_GZIP_WINDOW = 31  # zlib: 15 bits of window, 16 = expect a gzip header
READ_BYTES = 1 << 16
# zstd cannot be told to stop: a kibibyte of it holds at most 256 blocks of 128 KiB, 32 MiB in all.
_ZSTD_BYTES = 1 << 10
_MAX_WINDOW_BYTES = 128 << 20  # what the zstd command writes at its highest level without extra options
_MAX_BODY_WINDOW_BYTES = (
    8 << 20
)  # RFC 9659: what a receiver of zstd over HTTP must take, and no sender exceeds


class _Decompressor(Protocol):
    """What the decompressors of ``lzma`` and ``bz2`` have in common."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class Codec(Protocol):
    """Unpacks one member (or frame) after the other."""

    @property
    def is_inside(self) -> bool:
        """Whether a member has begun and not ended."""
        ...

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """The output of the next input, in bounded steps; raises `DamagedError`."""
        ...


class DamagedError(Exception):
    """Bytes that the codec does not understand."""


class Plain:
    """Bytes that are not packed."""

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
        while data or (self._member is not None and len(piece) == READ_BYTES):
            if self._member is None:
                self._member = zlib.decompressobj(_GZIP_WINDOW)
            try:
                piece = self._member.decompress(data, READ_BYTES)
            except zlib.error as error:
                raise DamagedError(str(error)) from error
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
                raise DamagedError(str(error)) from error
            at += len(step)
            if self._frame.eof:
                at -= len(self._frame.unused_data)
                self._frame = None


class _Members:
    """xz and bzip2: decompressors of the standard library that stop where they are asked to."""

    def __init__(self, begin: Callable[[], _Decompressor], errors: tuple[type[Exception], ...]) -> None:
        self._begin, self._errors = begin, errors
        self._member: _Decompressor | None = None

    @property
    def is_inside(self) -> bool:
        return self._member is not None

    def unpack(self, data: bytes) -> Iterator[bytes]:
        """The decompressor keeps what it was not asked for, until it needs more input."""
        while data or (self._member is not None and not self._member.needs_input):
            if self._member is None:
                self._member = self._begin()
            try:
                piece = self._member.decompress(data, READ_BYTES)
            except self._errors as error:
                raise DamagedError(str(error)) from error
            yield piece
            data = b""
            if self._member.eof:
                data = self._member.unused_data.lstrip(b"\0")  # both pad with zeros
                self._member = None


def _xz() -> Codec:
    import lzma

    return _Members(lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, _MAX_XZ_BYTES), (lzma.LZMAError,))


def _bzip2() -> Codec:
    import bz2

    return _Members(bz2.BZ2Decompressor, (OSError, ValueError))


def codec_of(first: bytes) -> Codec:
    """The codec of a file that begins with ``first``."""
    if first.startswith(GZIP_MAGIC):
        return _Gzip()
    if first.startswith(XZ_MAGIC):
        return _xz()
    if first.startswith(BZIP2_MAGIC):
        return _bzip2()
    return _Zstd() if first.startswith(ZSTD_MAGIC) else Plain()


def codec_named(codec: str) -> Codec:
    """The codec of a body over HTTP.

    Raises:
        UnreadableInput: there is no such codec.
    """
    match codec:
        case "gzip":
            return _Gzip()
        case "zstd":
            return _Zstd(_MAX_BODY_WINDOW_BYTES)
        case "identity":
            return Plain()
    raise UnreadableInput(f"the body: codec must be gzip, zstd or identity, got {codec[:40]!r}")
