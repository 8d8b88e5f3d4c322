r"""Lines to shapes and numbers at the speed of memory: what `tokens` does line by line, compiled.

Axes: B bytes, L lines, T numbers of all lines.

One pass over the bytes finds lines, marks numbers, hashes what is left of each line (its shape) and parses
the numbers (`kernel_numbers`). The hash stands for the shape: lines of one hash are of one shape, and the
shape itself is taken from the first of them by `tokens.tokenize`, which says what a shape is.
``tests/test_scan_kernel.py`` holds the two equal.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ingest.compiled import Compiled

from .kernel_numbers import PARTS, end_of_signed, parse
from .tokens import MAX_SHAPE_BYTES

# What a byte is, for the regular expressions in `tokens`; in this order each of their classes is a range.
_BLANK, _PLAIN, _PUNCTUATION, _CLOSING, _JOINED, _WORD, _DIGIT = range(7)
_NEWLINE, _SPACE, _BAR = 10, 32, 124
_SEED, _PRIME, _MIX = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3), np.uint64(0x9E3779B97F4A7C15)
"""Of the hash: FNV-1a, mixed once more at its end."""


def _kinds() -> NDArray[np.uint8]:
    kinds = np.full(256, _PLAIN, np.uint8)
    for byte in (*range(33, 48), *range(58, 65), *range(91, 95), 96, *range(123, 127)):
        kinds[byte] = _PUNCTUATION
    for byte in (*b"_", *range(65, 91), *range(97, 123), *range(128, 256)):
        kinds[byte] = _WORD
    kinds[list(b".@#")] = _JOINED
    kinds[list(b")]}")] = _CLOSING
    kinds[list(b"0123456789")] = _DIGIT
    kinds[list(b" \t")] = _BLANK
    return kinds


_KIND = _kinds()


def scan_lines(  # noqa: PLR0917  # a compiled function takes arrays by position
    bytes_B: NDArray[np.uint8],
    hash_L: NDArray[np.uint64],
    first_L: NDArray[np.int64],
    value_T: NDArray[np.float64],
    hard_T: NDArray[np.int32],
    count: NDArray[np.int64],
) -> int:
    """Fill in the lines and numbers of ``bytes_B``, whose lines are all ended.

    ``hash_L`` is 0 for a blank line, ``first_L`` the number of numbers before a line. ``hard_T`` gets three
    cells for each number that is left to Python: its place in ``value_T``, start and stop. ``count``, zeros,
    gets how many numbers there are, and cells of ``hard_T``.

    Returns:
        Lines; -1 where ``value_T`` is too short.
    """
    line = start = 0
    while start < len(bytes_B):
        if count[0] + MAX_SHAPE_BYTES > len(value_T):
            return -1
        first_L[line] = count[0]
        start, hash_L[line] = _scan_line(bytes_B, start, value_T, hard_T, count)
        line += 1
    first_L[line] = count[0]
    return line


def _scan_line(
    bytes_B: NDArray[np.uint8],
    at: int,
    value_T: NDArray[np.float64],
    hard_T: NDArray[np.int32],
    count: NDArray[np.int64],
) -> tuple[int, np.uint64]:
    """Where the next line begins, and the hash of this one; ``count``: numbers, and cells of ``hard_T``."""
    limit = at + MAX_SHAPE_BYTES
    code, last, blanks, before = _SEED, -1, -1, _BLANK  # last: of the shape, 0 is the mark
    while at < limit and bytes_B[at] != _NEWLINE:
        kind = _KIND[bytes_B[at]]
        if kind == _BLANK:
            blanks = at if blanks < 0 else blanks
            before = _BLANK
            at += 1
            continue
        end = end_of_signed(bytes_B, at, limit, before == _CLOSING) if before < _JOINED else at
        if end > at:
            if blanks >= 0:
                code = (code ^ np.uint64(_SPACE)) * _PRIME
            code *= _PRIME
            _put(bytes_B, (at, end), value_T, hard_T, count)
            before, last, blanks, at = _KIND[bytes_B[end - 1]], 0, -1, end
            continue
        if blanks >= 0:
            code, last, blanks = _hash_blanks(bytes_B, blanks, at, code), _SPACE, -1
        if _is_drawn(bytes_B, at, limit):
            code = code if last == _BAR else (code ^ np.uint64(_BAR)) * _PRIME
            before, last, at = _WORD, _BAR, at + 3
        elif kind < _WORD:
            is_repeated = kind >= _PUNCTUATION and last == bytes_B[at]
            code = code if is_repeated else (code ^ np.uint64(bytes_B[at])) * _PRIME
            before, last, at = kind, bytes_B[at], at + 1
        else:
            code, end = _hash_word(bytes_B, at, limit, code)
            before, last, at = _WORD, bytes_B[end - 1], end
    while bytes_B[at] != _NEWLINE:
        at += 1
    code = (code ^ (code >> np.uint64(29))) * _MIX | np.uint64(1)
    return at + 1, np.uint64(0) if last < 0 else code


def _hash_word(bytes_B: NDArray[np.uint8], at: int, limit: int, code: np.uint64) -> tuple[np.uint64, int]:
    """The hash with a byte and the letters and digits behind it, and where they end."""
    code = (code ^ np.uint64(bytes_B[at])) * _PRIME
    at += 1
    while at < limit and bytes_B[at] < 0x80 and _KIND[bytes_B[at]] >= _WORD:
        code = (code ^ np.uint64(bytes_B[at])) * _PRIME
        at += 1
    return code, at


def _hash_blanks(bytes_B: NDArray[np.uint8], at: int, end: int, code: np.uint64) -> np.uint64:
    """The hash with a run of blanks in front of text: of spaces in a row two."""
    if at + 1 == end:
        return (code ^ np.uint64(bytes_B[at])) * _PRIME
    run = 0
    while at < end:
        run = run + 1 if bytes_B[at] == _SPACE else 0
        if run <= 2:
            code = (code ^ np.uint64(bytes_B[at])) * _PRIME
        at += 1
    return code


def _is_drawn(bytes_B: NDArray[np.uint8], at: int, limit: int) -> bool:
    """Whether one of the characters stands here that bars and boxes are drawn with, U+2500 to U+259F."""
    if bytes_B[at] != 0xE2 or at + 2 >= limit:
        return False
    return bool(0x94 <= bytes_B[at + 1] <= 0x96 and 0x80 <= bytes_B[at + 2] <= 0xBF)


def _put(
    bytes_B: NDArray[np.uint8],
    span: tuple[int, int],
    value_T: NDArray[np.float64],
    hard_T: NDArray[np.int32],
    count: NDArray[np.int64],
) -> None:
    """Keep the number of a span."""
    at, end = span
    is_signed = bytes_B[at] < 46  # + and -, below the point and the digits
    value, is_exact = parse(bytes_B, at + 1 if is_signed else at, end)
    value_T[count[0]] = -value if bytes_B[at] == 45 else value
    if not is_exact:
        hard_T[count[1]], hard_T[count[1] + 1], hard_T[count[1] + 2] = count[0], at, end
        count[1] += 3
    count[0] += 1


def group_lines(
    hash_L: NDArray[np.uint64],
    group_L: NDArray[np.int32],
    table: NDArray[np.int32],
    first_G: NDArray[np.int64],
) -> int:
    """Number the shapes of lines in the order in which they appear; -1 for a blank line.

    ``table`` is open addressing over a power of two of at least twice as many cells as lines, filled with -1;
    ``first_G`` gets the first line of each shape.
    """
    mask = np.uint64(len(table) - 1)
    groups = 0
    for line in range(len(hash_L)):
        code = hash_L[line]
        if code == 0:
            group_L[line] = -1
            continue
        cell = (code >> np.uint64(20)) & mask
        while table[cell] >= 0 and hash_L[first_G[table[cell]]] != code:
            cell = (cell + np.uint64(1)) & mask
        if table[cell] < 0:
            table[cell] = groups
            first_G[groups] = line
            groups += 1
        group_L[line] = table[cell]
    return groups


@cache
def compiled() -> tuple[Compiled, Compiled]:
    """`scan_lines` and `group_lines`, compiled."""
    parts = (*PARTS, _put, _hash_word, _hash_blanks, _is_drawn, _scan_line)
    return Compiled(scan_lines, parts, inlines=True), Compiled(group_lines)
