"""Bounded decompression for kafka-python, which unpacks a batch without any limit.

A compressed batch of 64 KiB can hold gigabytes. kafka-python looks its decoders up as module names,
so they are replaced by ones that stop at a limit; a batch beyond it raises `DecompressionBound`, which
the source turns into a rejected range like any other damaged batch.
"""

from __future__ import annotations

import importlib
import struct
import zlib
from collections.abc import Callable

from .errors import UnreadableInput

Decode = Callable[[bytes | memoryview], bytes]

_ALL = ("gzip_decode", "snappy_decode", "lz4_decode", "zstd_decode")
PATCHED = {
    "kafka.codec": _ALL,
    "kafka.record.default_records": _ALL,
    # the message formats before Kafka 0.11 know no zstd
    "kafka.record.legacy_records": _ALL[:3],
}
"""The names that kafka-python looks its decoders up by, per module."""
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16


class DecompressionBound(ValueError):
    """A compressed batch unpacks to more than the limit, or says that it would."""


def bound_codecs(limit_bytes: int) -> None:
    """Make every kafka-python consumer of this process refuse batches that unpack beyond ``limit_bytes``.

    Raises:
        UnreadableInput: this kafka-python has other names inside, so the bound would not hold.
    """
    decoders = bounded_decoders(limit_bytes)
    for module_name, names in PATCHED.items():
        module = importlib.import_module(module_name)
        for name in names:
            if not callable(getattr(module, name, None)):
                version = importlib.import_module("kafka.version").__version__
                raise UnreadableInput(f"kafka-python {version} has no {module_name}.{name} to bound")
            setattr(module, name, decoders[name])
    # pyarrow brings the snappy codec, so python-snappy is not needed to read.
    vars(importlib.import_module("kafka.codec"))["has_snappy"] = lambda: True


def bounded_decoders(limit_bytes: int) -> dict[str, Decode]:
    """Decoders by kafka-python's names for them; each raises `DecompressionBound` beyond the limit."""

    def bounded(unpack: Callable[[bytes | memoryview, int], bytes]) -> Decode:
        return lambda payload: unpack(payload, limit_bytes)

    return {
        "gzip_decode": bounded(_gunzip),
        "snappy_decode": bounded(_unsnappy),
        "lz4_decode": bounded(_unlz4),
        "zstd_decode": bounded(_unzstd),
    }


def _gunzip(payload: bytes | memoryview, limit_bytes: int) -> bytes:
    parts: list[bytes] = []
    left, rest = limit_bytes, bytes(payload)
    while rest:
        unpacker = zlib.decompressobj(wbits=31)  # 31: a gzip header, no raw or zlib stream
        part = unpacker.decompress(rest, left + 1)
        left -= len(part)
        if left < 0:
            raise _beyond("gzip", limit_bytes)
        if not unpacker.eof:
            raise ValueError("gzip batch is cut short")
        parts.append(part)
        rest = unpacker.unused_data
    return b"".join(parts)


def _unlz4(payload: bytes | memoryview, limit_bytes: int) -> bytes:
    import lz4.frame

    unpacker = lz4.frame.LZ4FrameDecompressor()
    unpacked: bytes = unpacker.decompress(bytes(payload), max_length=limit_bytes + 1)
    if len(unpacked) > limit_bytes:
        raise _beyond("lz4", limit_bytes)
    if not unpacker.eof:
        raise ValueError("lz4 batch is cut short")
    return unpacked


def _unzstd(payload: bytes | memoryview, limit_bytes: int) -> bytes:
    import zstandard

    parts: list[bytes] = []
    left = limit_bytes
    with zstandard.ZstdDecompressor().stream_reader(bytes(payload), read_across_frames=True) as reader:
        while part := reader.read(left + 1):
            left -= len(part)
            if left < 0:
                raise _beyond("zstd", limit_bytes)
            parts.append(part)
    return b"".join(parts)


def _unsnappy(payload: bytes | memoryview, limit_bytes: int) -> bytes:
    """Raw snappy (librdkafka) or the blocks of xerial (the Java client)."""
    data = bytes(payload)
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnappy_block(data, limit_bytes)
    parts: list[bytes] = []
    left, at = limit_bytes, _XERIAL_HEADER_BYTES
    while at < len(data):
        (size,) = struct.unpack_from("!I", data, at)
        part = _unsnappy_block(data[at + 4 : at + 4 + size], left)
        left -= len(part)
        parts.append(part)
        at += 4 + size
    return b"".join(parts)


def _unsnappy_block(data: bytes, limit_bytes: int) -> bytes:
    import pyarrow

    size = _snappy_size(data)
    if size > limit_bytes:
        raise _beyond("snappy", limit_bytes)
    if size == 0:
        return b""
    unpacked: bytes = pyarrow.Codec("snappy").decompress(data, size, asbytes=True)
    return unpacked


def _snappy_size(data: bytes) -> int:
    """The unpacked size that a snappy block begins with: a little-endian base-128 number, 32 bits."""
    size = 0
    for at, byte in enumerate(data[:5]):
        size |= (byte & 0x7F) << (7 * at)
        if byte < 0x80:
            return size
    raise ValueError("snappy block has no size")


def _beyond(codec: str, limit_bytes: int) -> DecompressionBound:
    return DecompressionBound(f"{codec} batch unpacks to more than {limit_bytes} bytes")
