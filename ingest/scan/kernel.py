r"""Lines to shapes and numbers at the speed of memory: what `tokens` does line by line, compiled.

Axes: B bytes, L lines, T numbers of all lines.

One pass over the bytes finds lines, marks numbers, hashes what is left of each line (its shape) and parses
the numbers. The hash stands for the shape: lines of one hash are of one shape, and the shape itself is taken
from the first of them by `tokens.tokenize`, which says what a shape is. ``tests/test_scan_kernel.py`` holds
the two equal. A number is parsed here where that is exact: up to 2^53 without its point, times or divided by
a power of ten up to 10^22, one rounding (Clinger, How to Read Floating Point Numbers Accurately, PLDI 1990).
Others are left to Python.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.compiled import compile_function

from .tokens import MAX_SHAPE_BYTES

# What a byte is; the classes are those of the regular expressions in `tokens`.
_PLAIN, _DIGIT, _WORD, _JOINED, _CLOSING, _PUNCTUATION, _BLANK = range(7)
_POWERS = np.array([10.0**power for power in range(23)])
_EXACT = np.uint64(1 << 53)
_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_MAX_DIGITS = 18
"""Digits that fit 64 bits whatever they are."""


def _classes() -> NDArray[np.uint8]:
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


_KIND = _classes()


def scan_lines(
    bytes_B: NDArray[np.uint8],
    hash_L: NDArray[np.uint64],
    first_L: NDArray[np.int64],
    value_T: NDArray[np.float64],
    hard_T: NDArray[np.int32],
) -> tuple[int, int, int]:
    """Fill in the lines and numbers of ``bytes_B``, whose lines are all ended.

    ``hash_L`` is 0 for a blank line, ``first_L`` the number of numbers before a line. ``hard_T`` gets three
    cells for each number that is left to Python: its place in ``value_T``, start and stop.

    Returns:
        Lines, numbers, and cells of ``hard_T``; numbers is -1 where ``value_T`` is too short.
    """
    size = len(bytes_B)
    line = tokens = hard = 0
    start = 0
    while start < size:
        if tokens + MAX_SHAPE_BYTES > len(value_T):
            return line, -1, hard
        stop = start
        first_L[line] = tokens
        # -- one line ----------------------------------------------------------------------------
        limit = start + MAX_SHAPE_BYTES
        code = _OFFSET
        last = -1  # the byte that the shape has last; 0 is the mark
        blanks = -1  # where the run of blanks in front of here begins
        before = _BLANK  # the kind of the byte in front of here
        at = start
        while True:
            if at >= limit:
                stop = at
                while bytes_B[stop] != 10:
                    stop += 1
                break
            byte = bytes_B[at]
            if byte == 10:
                stop = at
                break
            kind = _KIND[byte]
            if kind == _BLANK:
                if blanks < 0:
                    blanks = at
                before = kind
                at += 1
                continue
            # -- a number? -----------------------------------------------------------------------
            end = at
            if before != _DIGIT and before != _WORD and before != _JOINED:
                digit = at
                is_negative = byte == 45
                if (byte == 43 or byte == 45) and before != _CLOSING:
                    digit = at + 1
                end = _end_of_number(bytes_B, digit, limit)
                if end > digit:
                    value, is_exact = _parse(bytes_B, digit, end)
                    value_T[tokens] = -value if is_negative else value
                    if not is_exact:
                        hard_T[hard], hard_T[hard + 1], hard_T[hard + 2] = tokens, at, end
                        hard += 3
                    tokens += 1
                else:
                    end = at
            if end > at:
                if blanks >= 0:
                    code = (code ^ np.uint64(32)) * _PRIME
                code = (code ^ np.uint64(0)) * _PRIME
                last, blanks = 0, -1
                before = _DIGIT if bytes_B[end - 1] != 46 else _JOINED
                at = end
                continue
            # -- text ----------------------------------------------------------------------------
            if blanks >= 0:
                run = 0
                for place in range(blanks, at):
                    run = run + 1 if bytes_B[place] == 32 else 0
                    if run <= 2:
                        code = (code ^ np.uint64(bytes_B[place])) * _PRIME
                blanks, last = -1, 32
            if byte == 0xE2 and at + 2 < limit and 0x94 <= bytes_B[at + 1] <= 0x96 and bytes_B[at + 2] >= 0x80:
                if bytes_B[at + 2] <= 0xBF:
                    if last != 124:
                        code = (code ^ np.uint64(124)) * _PRIME
                    last = 124
                    before = _WORD
                    at += 3
                    continue
            is_punctuation = kind == _PUNCTUATION or kind == _JOINED or kind == _CLOSING
            if not (is_punctuation and last == byte):
                code = (code ^ np.uint64(byte)) * _PRIME
            last = byte
            before = kind
            at += 1
        # -- its end -----------------------------------------------------------------------------
        code = (code ^ (code >> np.uint64(29))) * _MIX
        if last == -1:
            hash_L[line] = 0
        else:
            hash_L[line] = code | np.uint64(1)
        line += 1
        start = stop + 1
    first_L[line] = tokens
    return line, tokens, hard


def _end_of_number(bytes_B: NDArray[np.uint8], at: int, limit: int) -> int:
    """Where the number that begins at ``at``, behind its sign, ends; ``at`` if none does."""
    end = _end_of_digits(bytes_B, at, limit)
    if end == at:
        if bytes_B[at] != 46 or at >= limit:
            return at
        end = _end_of_digits(bytes_B, at + 1, limit)
        if end == at + 1:
            return at
    else:
        if end - at <= 3:
            groups = end
            while groups < limit and bytes_B[groups] == 44:
                group = _end_of_digits(bytes_B, groups + 1, min(groups + 4, limit))
                if group != groups + 4:
                    break
                groups = group
            if groups > end and not _goes_on(bytes_B, groups, limit):
                end = groups
        if end < limit and bytes_B[end] == 46:
            fraction = _end_of_digits(bytes_B, end + 1, limit)
            if fraction > end + 1:
                end = fraction
            elif end + 1 < limit and (
                bytes_B[end + 1] == 35 or _end_of_exponent(bytes_B, end + 1, limit) > end + 1
            ):
                end += 1
    return _end_of_exponent(bytes_B, end, limit)


def _goes_on(bytes_B: NDArray[np.uint8], at: int, limit: int) -> bool:
    """Whether a digit or a comma and a digit stand here, so that no thousands end here."""
    if at >= limit:
        return False
    if 48 <= bytes_B[at] <= 57:
        return True
    return bytes_B[at] == 44 and at + 1 < limit and 48 <= bytes_B[at + 1] <= 57


def _end_of_digits(bytes_B: NDArray[np.uint8], at: int, limit: int) -> int:
    while at < limit and 48 <= bytes_B[at] <= 57:
        at += 1
    return at


def _end_of_exponent(bytes_B: NDArray[np.uint8], at: int, limit: int) -> int:
    """Where ``e-05`` ends; ``at`` if there is none."""
    if at >= limit or (bytes_B[at] != 101 and bytes_B[at] != 69):
        return at
    digits = at + 1
    if digits < limit and (bytes_B[digits] == 43 or bytes_B[digits] == 45):
        digits += 1
    end = _end_of_digits(bytes_B, digits, limit)
    return end if end > digits else at


def _parse(bytes_B: NDArray[np.uint8], at: int, end: int) -> tuple[float, bool]:
    """The value of a number without its sign, and whether it is exact."""
    mantissa, power, digits = np.uint64(0), 0, 0
    is_fraction = False
    while at < end:
        byte = bytes_B[at]
        if 48 <= byte <= 57:
            if digits > 0 or byte != 48:
                digits += 1
            if digits > _MAX_DIGITS:
                return 0.0, False
            mantissa = mantissa * np.uint64(10) + np.uint64(byte - 48)
            if is_fraction:
                power -= 1
        elif byte == 46:
            is_fraction = True
        elif byte != 44:
            break
        at += 1
    if at < end:
        at += 1
        is_down = bytes_B[at] == 45
        if is_down or bytes_B[at] == 43:
            at += 1
        exponent = 0
        while at < end:
            exponent = exponent * 10 + np.int64(bytes_B[at] - 48)
            if exponent > 10_000:
                return 0.0, False
            at += 1
        power += -exponent if is_down else exponent
    if mantissa == 0:
        return 0.0, True
    if mantissa > _EXACT or power < -22 or power > 22:
        return 0.0, False
    if power < 0:
        return np.float64(mantissa) / _POWERS[-power], True
    return np.float64(mantissa) * _POWERS[power], True


def group_lines(
    hash_L: NDArray[np.uint64], group_L: NDArray[np.int32], table: NDArray[np.int32], first_G: NDArray[np.int64]
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
def compiled() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """`scan_lines` and `group_lines`, compiled."""
    parts = (_end_of_digits, _end_of_exponent, _goes_on, _end_of_number, _parse)
    return compile_function(scan_lines, parts), compile_function(group_lines)
