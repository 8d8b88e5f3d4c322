"""The compiled kernel of the scanner reads what the plain one reads, bit for bit."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ingest.scan import kernel
from ingest.scan.kernel_words import compiled_words, mark_lines
from ingest.scan.pieces import Piece, ShapeLines
from ingest.scan.sieve import Sieve
from ingest.scan.tokens import MAX_SHAPE_BYTES

PARTS_OF_LINES = (
    *(
        b"loss",
        b"NCCL INFO",
        b"nan",
        b"e",
        b"E",
        b".",
        b",",
        b"+",
        b"-",
        b"#QNAN",
        b"@",
        b"_",
        b":",
        b"=",
        b"|",
        b"||",
        b"(",
    ),
    *(
        b")",
        b"]",
        b" ",
        b"  ",
        b"\t",
        b"0",
        b"7",
        b"12",
        b"1,234",
        b"123,456,7",
        b"2.5",
        b"1e-05",
        b"1E+400",
        b".5",
    ),
    *(
        b"9007199254740993",
        b"0.1234567890123456789",
        b"\xe2\x94\x80",
        b"\xe2\x96\x88",
        b"\xe2\x94",
        b"\xc3\xa9",
        b"\n",
    ),
)


def assert_same(found: list[ShapeLines], expected: list[ShapeLines]) -> None:
    assert [group.shape for group in found] == [group.shape for group in expected]
    for group, wanted in zip(found, expected, strict=True):
        assert group.example == wanted.example
        assert group.line_S.tolist() == wanted.line_S.tolist()
        assert group.values_SK.tobytes() == wanted.values_SK.tobytes()


@given(st.lists(st.sampled_from(PARTS_OF_LINES), max_size=40).map(b"".join))
@example(b"1" * 400)
@example(b" " * (MAX_SHAPE_BYTES + 9) + b"x 1")
@example(b"a 1 " * MAX_SHAPE_BYTES)
def test_the_kernel_finds_the_shapes_and_numbers_that_the_plain_scanner_finds(text: bytes) -> None:
    piece = Piece(text + b"\n")

    with np.errstate(over="ignore"):  # the hash wraps around
        found = piece.by_kernel(Sieve(), kernel.scan_lines, kernel.group_lines, mark_lines)

    assert_same(found, piece.by_line(Sieve()))


def test_compiled_the_kernel_finds_the_same() -> None:
    rng = random.Random(3)
    text = b"".join(rng.choice(PARTS_OF_LINES) for _ in range(40_000)) + b"\n"
    piece = Piece(text)

    assert_same(piece.by_kernel(Sieve(), *kernel.compiled(), compiled_words()), piece.by_line(Sieve()))


@pytest.mark.parametrize("lines", [1, 2, 7, 300])
def test_lines_are_grouped_by_hash_in_the_order_in_which_hashes_appear(lines: int) -> None:
    hashes = np.random.default_rng(lines).integers(0, 9, lines).astype(np.uint64)  # 0 is a blank line
    group_L, line_G = np.empty(lines, np.int32), np.empty(lines, np.int64)

    groups = kernel.group_lines(hashes, group_L, np.full(1024, -1, np.int32), line_G)

    wanted = list(dict.fromkeys(code for code in hashes.tolist() if code))
    assert hashes[line_G[:groups]].tolist() == wanted
    assert [wanted[at] if at >= 0 else 0 for at in group_L.tolist()] == hashes.tolist()
