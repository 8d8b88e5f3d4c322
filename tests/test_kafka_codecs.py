"""Bounded decompression inside kafka-python."""

from __future__ import annotations

import gzip
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import UnreadableInput
from ingest.kafka_codecs import PATCHED, DecompressionBound, bound_codecs, bounded_decoders

MEGABYTE = 1 << 20
CODECS = ("gzip", "lz4", "zstd", "snappy")


def packed(codec: str, data: bytes) -> bytes:
    """As the clients pack a batch; snappy in its raw form."""
    import kafka.codec
    import pyarrow

    if codec == "snappy":
        return bytes(pyarrow.Codec("snappy").compress(data, asbytes=True))
    return bytes(getattr(kafka.codec, f"{codec}_encode")(data))


def xerial(*blocks: bytes) -> bytes:
    """The framing that the Java client puts around snappy blocks."""
    header = b"\x82SNAPPY\x00" + struct.pack("!ii", 1, 1)
    return header + b"".join(struct.pack("!i", len(block)) + block for block in blocks)


@pytest.mark.parametrize("codec", CODECS)
@given(data=st.binary(max_size=2000), repeats=st.integers(1, 50))
def test_a_batch_within_the_limit_comes_back_as_it_was(codec: str, data: bytes, repeats: int) -> None:
    decode = bounded_decoders(len(data) * repeats)[f"{codec}_decode"]
    assert decode(memoryview(packed(codec, data * repeats))) == data * repeats


@pytest.mark.parametrize("codec", CODECS)
def test_one_byte_beyond_the_limit_is_refused(codec: str) -> None:
    decode = bounded_decoders(999)[f"{codec}_decode"]
    assert decode(packed(codec, bytes(999))) == bytes(999)
    with pytest.raises(DecompressionBound, match="more than 999 bytes"):
        decode(packed(codec, bytes(1000)))


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused_before_it_takes_memory(codec: str) -> None:
    bomb = packed(codec, bytes(200 * MEGABYTE))
    tracemalloc.start()
    with pytest.raises(DecompressionBound):
        bounded_decoders(MEGABYTE)[f"{codec}_decode"](bomb)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < len(bomb) + 8 * MEGABYTE


def test_members_and_blocks_share_one_limit() -> None:
    decoders = bounded_decoders(1500)
    block = packed("snappy", bytes(1000))
    assert decoders["snappy_decode"](xerial(block)) == bytes(1000)
    for name, payload in (
        ("snappy_decode", xerial(block, block)),
        ("gzip_decode", gzip.compress(bytes(1000)) * 2),
    ):
        with pytest.raises(DecompressionBound):
            decoders[name](payload)


@pytest.mark.parametrize("codec", CODECS)
@given(junk=st.binary(max_size=200))
def test_junk_raises_an_ordinary_exception_or_gives_bytes(codec: str, junk: bytes) -> None:
    try:
        unpacked = bounded_decoders(MEGABYTE)[f"{codec}_decode"](junk)
    except Exception as error:
        assert not isinstance(error, MemoryError)
    else:
        assert len(unpacked) <= MEGABYTE


def test_the_bound_stands_in_every_module_that_unpacks() -> None:
    import importlib

    bound_codecs(4096)
    for module_name, names in PATCHED.items():
        for name in names:
            codec = name.removesuffix("_decode")
            decode = getattr(importlib.import_module(module_name), name)
            with pytest.raises(DecompressionBound, match="4096"):
                decode(packed(codec, bytes(5000)))


def test_a_client_with_other_names_inside_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    import kafka.record.default_records  # noqa: F401  # the module must be there to take the name from

    monkeypatch.delattr("kafka.record.default_records.zstd_decode")
    with pytest.raises(UnreadableInput, match=r"has no kafka\.record\.default_records\.zstd_decode"):
        bound_codecs(MEGABYTE)
