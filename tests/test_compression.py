"""gzip and zstd files and bodies: all members, nothing beyond the limits, what was good comes first."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.compression import CompressionConfig, TruncatedInput, decompress_bounded, open_bounded
from ingest.errors import UnreadableInput

PACK: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}
CODECS = pytest.mark.parametrize("codec", PACK)
LINES = b"".join(b'{"iteration":%d}\n' % at for at in range(20_000))
SMALL = CompressionConfig(piece_bytes=1000, max_ratio=100, ratio_free_bytes=1 << 20)


def unpacked(data: bytes, config: CompressionConfig = SMALL) -> tuple[bytes, UnreadableInput | None]:
    """What came out, and what was raised then."""
    pieces: list[bytes] = []
    try:
        pieces.extend(open_bounded(io.BytesIO(data), config))
    except UnreadableInput as error:
        return b"".join(pieces), error
    return b"".join(pieces), None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=3000), min_size=1, max_size=4), st.sampled_from(sorted(PACK)))
def test_unpacking_inverts_packing_over_any_number_of_members(parts: list[bytes], codec: str) -> None:
    packed = b"".join(PACK[codec](part) for part in parts)
    assert unpacked(packed) == (b"".join(parts), None)
    assert decompress_bounded(packed, codec, limit=12_000) == b"".join(parts)


def test_plain_bytes_pass_through_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "job.jsonl"
    path.write_bytes(LINES)
    pieces = list(open_bounded(path, CompressionConfig(piece_bytes=1 << 16)))
    assert b"".join(pieces) == LINES and len(pieces) > 2
    assert unpacked(b"") == (b"", None)


@CODECS
def test_pieces_stay_small_however_well_the_data_packs(codec: str) -> None:
    packed = PACK[codec](bytes(40 << 20))
    config = CompressionConfig(piece_bytes=1 << 20, max_ratio=10**6)
    sizes = [len(piece) for piece in open_bounded(io.BytesIO(packed), config)]
    assert sum(sizes) == 40 << 20 and max(sizes) <= 34 << 20


@CODECS
def test_a_bomb_is_refused_by_ratio_and_names_rule_and_value(codec: str) -> None:
    good, error = unpacked(PACK[codec](bytes(100 << 20)))
    assert "must unpack to at most 100 times its size, got" in str(error)
    assert len(good) < 40 << 20


@CODECS
def test_a_file_is_refused_beyond_the_total(codec: str) -> None:
    _, error = unpacked(PACK[codec](LINES), CompressionConfig(max_total_bytes=1000))
    assert "must unpack to at most 1000 bytes" in str(error)


@CODECS
def test_a_truncated_file_gives_its_good_bytes_and_says_so(codec: str) -> None:
    packed = PACK[codec](LINES[:1000]) + PACK[codec](LINES)
    good, error = unpacked(packed[:-20])
    assert isinstance(error, TruncatedInput)
    assert LINES[:1000] == good[:1000] and len(good) >= 1000


@CODECS
def test_damage_gives_the_good_bytes_before_it_and_says_so(codec: str) -> None:
    good, error = unpacked(PACK[codec](LINES) + b"not a member")
    assert good == LINES
    assert error is not None and not isinstance(error, TruncatedInput)


def test_gzip_padded_with_zeros_is_whole() -> None:
    assert unpacked(gzip.compress(LINES) + b"\0" * 512) == (LINES, None)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="nowhere"):
        list(open_bounded(tmp_path / "nowhere"))


@CODECS
def test_a_body_beyond_its_limit_or_damaged_is_refused(codec: str) -> None:
    packed = PACK[codec](LINES)
    for data, limit in (
        (packed, 1000),
        (PACK[codec](bytes(100 << 20)), 1 << 20),
        (packed[:-4], 10**6),
        (b"x", 9),
    ):
        with pytest.raises(UnreadableInput, match="the body"):
            decompress_bounded(data, codec, limit)


def test_an_unknown_codec_is_refused_and_identity_is_bounded() -> None:
    assert decompress_bounded(b"abc", "identity", 3) == b"abc"
    with pytest.raises(UnreadableInput, match="must unpack to at most 2"):
        decompress_bounded(b"abc", "identity", 2)
    with pytest.raises(UnreadableInput, match="gzip, zstd or identity"):
        decompress_bounded(b"abc", "br", 3)
