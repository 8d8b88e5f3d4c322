"""Rows of nothing but numbers to columns, at the speed of memory; compiled.

Axes: B bytes, C columns, N rows, H cells left to Python.

Most tables are that: a number or nothing in each cell, and as many cells in each row. A piece of a table with
anything else in it, a quote, a word, a blank line, is left as a whole to those who know the rules
(`tables`); ``tests/test_number_cells.py`` holds the two equal.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from .blocks import Flags, Floats
from .compiled import Compiled
from .decimals import PARTS, nearest_double
from .table_lines import rows_of
from .table_text import PlainColumn, TextColumn

_TAB, _NEWLINE, _SPACE, _PLUS, _MINUS, _POINT = 9, 10, 32, 43, 45, 46
_ZERO, _NINE, _CAPITAL_E, _E = 48, 57, 69, 101
_NAN, _INF = (int.from_bytes(word) for word in (b"nan", b"inf"))
_TEN = np.uint64(10)
_MAX_DIGITS = 18
"""Digits that fit 64 bits whatever they are."""
_MAX_EXPONENT = 10_000
_HARD_SHARE = 16
"""Of so many rows one may hold a number that is left to Python; else the piece is."""


class NumberColumn:
    """A column of numbers, whose text is looked up where somebody asks for it."""

    def __init__(self, data: bytes, delimiter: str, at: int, values_N: Floats, filled_N: Flags) -> None:
        self._data, self._delimiter, self._at = data, delimiter, at
        self._values_N, self._filled_N = values_N, filled_N
        self._plain: PlainColumn | None = None

    def __len__(self) -> int:
        return len(self._values_N)

    def text(self, row: int) -> str:
        return self._as_text().text(row)

    def is_filled(self) -> Flags:
        return self._filled_N

    def floats(self) -> tuple[Floats, Flags]:
        return self._values_N.copy(), np.zeros(len(self._values_N), np.bool_)

    def changes(self) -> list[int]:
        return self._as_text().changes()

    def codes(self) -> tuple[list[str], NDArray[np.int32]]:
        return self._as_text().codes()

    def _as_text(self) -> PlainColumn:
        if self._plain is None:
            rows = rows_of(self._data.removesuffix(b"\n").split(b"\n"), self._delimiter)
            self._plain = PlainColumn([row[self._at] for row in rows])
        return self._plain


def number_columns(data: bytes, delimiter: str, width: int, *, compiles: bool) -> list[TextColumn] | None:
    """The cells of lines, all of which are ended; None where one is no number, or a line has not ``width``.

    ``compiles``: also where no process compiled what reads them before.
    """
    bytes_B = np.frombuffer(data, np.uint8)
    rows = int(np.count_nonzero(bytes_B == _NEWLINE))
    value_CN, filled_CN = np.empty((width, rows)), np.empty((width, rows), np.bool_)
    hard_H = np.empty(4 * (rows // _HARD_SHARE + 16), np.int64)
    arrays = (bytes_B, np.array([ord(delimiter)]), value_CN, filled_CN, hard_H, np.zeros(1, np.int64))
    reads = compiled()
    if not (compiles or reads.is_kept(arrays)) or reads(*arrays) != rows:
        return None
    for column, row, start, stop in hard_H[: 4 * arrays[-1][0]].reshape(-1, 4).tolist():
        value_CN[column, row] = float(data[start:stop])
    return [
        NumberColumn(data, delimiter, at, values_N, filled_N)
        for at, (values_N, filled_N) in enumerate(zip(value_CN, filled_CN, strict=True))
    ]


def read_cells(  # noqa: PLR0917  # a compiled function takes arrays by position
    bytes_B: NDArray[np.uint8],
    delimiter: NDArray[np.int64],
    value_CN: Floats,
    filled_CN: Flags,
    hard_H: NDArray[np.int64],
    hard: NDArray[np.int64],
) -> int:
    """Fill in the columns; rows read, -1 where something is no number.

    ``hard_H`` gets four cells for each number that is left to Python: its column and row, start and stop.
    """
    at, column, row, width, end = 0, 0, 0, len(value_CN), delimiter[0]
    while at < len(bytes_B):
        at = _behind_blanks(bytes_B, at, end)
        start = at
        value, at, is_hard = _read_number(bytes_B, at)
        if column >= width:
            return -1
        filled_CN[column, row] = at > start
        value_CN[column, row] = value
        if is_hard:
            place = 4 * hard[0]
            if place + 4 > len(hard_H):
                return -1
            hard_H[place], hard_H[place + 1], hard_H[place + 2], hard_H[place + 3] = column, row, start, at
            hard[0] += 1
        is_empty = at == start
        at = _behind_blanks(bytes_B, at, end)
        column += 1
        if bytes_B[at] == _NEWLINE:
            if column != width or (width == 1 and is_empty):
                return -1
            column, row = 0, row + 1
        elif bytes_B[at] != end:
            return -1
        at += 1
    return row


def _behind_blanks(bytes_B: NDArray[np.uint8], at: int, end: int) -> int:
    while bytes_B[at] == _SPACE or (bytes_B[at] == _TAB and end != _TAB):
        at += 1
    return at


def _read_number(bytes_B: NDArray[np.uint8], at: int) -> tuple[float, int, bool]:
    """The number that begins here, where it ends, and whether Python has to read it; not a number if none."""
    start = at
    is_signed = bytes_B[at] == _PLUS or bytes_B[at] == _MINUS
    is_negative = bytes_B[at] == _MINUS
    if is_signed:
        at += 1
    mantissa, first = np.uint64(0), at
    while _ZERO <= bytes_B[at] <= _NINE:
        mantissa = mantissa * _TEN + np.uint64(bytes_B[at] - _ZERO)
        at += 1
    digits, power = at - first, 0
    if bytes_B[at] == _POINT:
        at += 1
        fraction = at
        while _ZERO <= bytes_B[at] <= _NINE:
            mantissa = mantissa * _TEN + np.uint64(bytes_B[at] - _ZERO)
            at += 1
        power = fraction - at
        digits += at - fraction
    if digits == 0:
        return _read_word(bytes_B, start, first, is_negative)
    exponent, at = _read_exponent(bytes_B, at)
    power += exponent
    if digits > _MAX_DIGITS and digits - _leading(bytes_B, first) > _MAX_DIGITS:
        return 0.0, at, True
    value = nearest_double(mantissa, power)
    return (-value if is_negative else value), at, value < 0.0


def _read_word(bytes_B: NDArray[np.uint8], start: int, at: int, is_negative: bool) -> tuple[float, int, bool]:
    """``nan`` or ``inf`` in any case, behind a sign that is none of its own."""
    word = 0
    for place in range(at, min(at + 3, len(bytes_B))):
        word = word * 256 + (int(np.int64(bytes_B[place])) | 32)
    if word == _NAN:
        return np.nan, at + 3, False
    if word == _INF:
        return (-np.inf if is_negative else np.inf), at + 3, False
    return np.nan, start, False


def _read_exponent(bytes_B: NDArray[np.uint8], at: int) -> tuple[int, int]:
    """A power of ten and where it ends; 0 where there is none."""
    if bytes_B[at] != _E and bytes_B[at] != _CAPITAL_E:
        return 0, at
    is_down = bytes_B[at + 1] == _MINUS
    digit = at + 2 if is_down or bytes_B[at + 1] == _PLUS else at + 1
    exponent, end = 0, digit
    while _ZERO <= bytes_B[end] <= _NINE:
        exponent = min(exponent * 10 + int(np.int64(bytes_B[end])) - _ZERO, _MAX_EXPONENT)
        end += 1
    if end == digit:
        return 0, at
    return (-exponent if is_down else exponent), end


def _leading(bytes_B: NDArray[np.uint8], at: int) -> int:
    """Zeros in front of the first digit that is none."""
    zeros = 0
    while bytes_B[at] == _ZERO or bytes_B[at] == _POINT:
        zeros += bytes_B[at] == _ZERO
        at += 1
    return zeros


@cache
def compiled() -> Compiled:
    """`read_cells`, compiled."""
    parts = (*PARTS, _leading, _read_exponent, _read_word, _read_number, _behind_blanks)
    return Compiled(read_cells, parts, inlines=True)
