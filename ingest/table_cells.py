"""Cells of text become numbers, labels or rejections, a column at a time.

Axes: N rows.

An empty cell is *not reported*; ``nan``, ``inf`` and their spellings in C runtimes are values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firstfault.telemetry import FOLDED_BITS
from firstfault.wire_values import is_label_text, parse_checksum

from .blocks import ChecksumColumn, Flags, Floats, NumberColumn
from .table_text import TextColumn
from .written_numbers import THOUSANDS

# Microsoft's C runtime before 2015 prints 1.#QNAN, -1.#IND, 1.#INF; others print nan(ind) and the like.
_SPELLED = {"#qnan": np.nan, "#snan": np.nan, "#ind": np.nan, "#inf": np.inf}
_TRUTH = {"true": 1.0, "false": 0.0}
MAX_LABEL_CHANGES = 1000
"""A text column that changes more often is free text (dates, messages), no label: it is not kept."""


@dataclass(frozen=True, slots=True)
class BadCell:
    """Row and text of a cell that a rule refuses."""

    row: int
    text: str


@dataclass(frozen=True, slots=True)
class Cells:
    """One column as numbers: ``text_N`` marks filled cells that are no number."""

    values_N: Floats
    present_N: Flags
    text_N: Flags


def numbers_of(column: TextColumn) -> Cells:
    """The column as float64; text is NaN and marked in ``text_N``."""
    values_N, text_N = column.floats()
    values_N[np.isnan(values_N)] = np.nan  # one bit pattern: "-nan" and "nan" are the same report
    for row in np.flatnonzero(text_N):
        value = _special(column.text(int(row)))
        if value is not None:
            values_N[row] = value
            text_N[row] = False
    return Cells(values_N, column.is_filled(), text_N)


def number_column(cells: Cells, scale: float = 1.0) -> NumberColumn:
    """The cells that are numbers, times ``scale``; text is not reported (its caller rejects it)."""
    values_N = cells.values_N if scale == 1.0 else cells.values_N * scale
    return NumberColumn(values_N, cells.present_N & ~cells.text_N)


def checksum_column(column: TextColumn) -> tuple[ChecksumColumn, list[BadCell]]:
    """Hexadecimal text of up to 512 bits, with or without 0x, as 128 bits; what is none is given back."""
    present_N = column.is_filled()
    high_N = np.zeros(len(column), np.uint64)
    low_N = np.zeros(len(column), np.uint64)
    bad: list[BadCell] = []
    known: dict[str, int | None] = {}
    for row in np.flatnonzero(present_N):
        text = column.text(int(row))
        if text not in known:
            known = known if len(known) < 4096 else {}  # values repeat over ranks, not over time
            known[text] = parse_checksum(text)
        value = known[text]
        if value is None:
            present_N[row] = False
            bad.append(BadCell(int(row), text))
            continue
        high_N[row] = value >> (FOLDED_BITS // 2)
        low_N[row] = value & ((1 << (FOLDED_BITS // 2)) - 1)
    return ChecksumColumn(high_N, low_N, present_N), bad


class LabelColumn:
    """A text column: a label is handed out where its text changes, up to `MAX_LABEL_CHANGES` times."""

    def __init__(self) -> None:
        self._last: str | None = None
        self._changes = 0

    @property
    def is_free_text(self) -> bool:
        """Whether it changed too often to be a label."""
        return self._changes > MAX_LABEL_CHANGES

    def take(self, column: TextColumn) -> list[tuple[int, str]]:
        """(row, text) of each change in the next rows."""
        if self.is_free_text:
            return []
        found: list[tuple[int, str]] = []
        for row in column.changes():
            text = column.text(row)
            if text == self._last or not is_label_text(text):
                continue
            self._last = text
            self._changes += 1
            if self.is_free_text:
                break
            found.append((row, text))
        return found


def whole_numbers(cells: Cells, greatest: int) -> tuple[NDArray[np.int64], Flags]:
    """The cells as integers, and which of them are whole numbers from 0 to ``greatest``."""
    values_N = cells.values_N
    with np.errstate(invalid="ignore"):
        good_N = cells.present_N & ~cells.text_N & (values_N >= 0) & (values_N <= greatest)
        good_N &= values_N == np.floor(values_N)
    return np.where(good_N, values_N, 0).astype(np.int64), good_N


def _special(text: str) -> float | None:
    word = text.strip().lower()
    if word in _TRUTH:
        return _TRUTH[word]
    sign, bare = (-1.0 if word.startswith("-") else 1.0), word.lstrip("+-")
    head, mark, tail = bare.partition("#")
    if mark and head.rstrip(".").isdigit():
        value = _SPELLED.get("#" + tail.rstrip("0"))
        return None if value is None else sign * value
    if bare.startswith("nan(") and bare.endswith(")"):
        return float("nan")
    if THOUSANDS.fullmatch(bare):
        return sign * float(bare.replace(",", ""))
    return None
