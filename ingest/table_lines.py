"""Cut the bytes of a text table into lines and count their cells, quotes respected.

Axes: L lines.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .blocks import Flags, Ints

QUOTE = ord('"')
NEWLINE = ord("\n")
MAX_QUOTED_LINES = 64
"""Lines that one quoted cell may span. A longer one is a stray quote, and its line is taken as it is:
else one lost quote would swallow the rest of the file."""


@dataclass(frozen=True, slots=True)
class Lines:
    """L records of a table as byte ranges of ``data`` (line end excluded).

    ``cells_L`` counts the cells of each, ``number_L`` is the physical line on which each begins,
    from 0 at the first byte of ``data``.
    """

    data: bytes
    start_L: Ints
    stop_L: Ints
    cells_L: Ints
    number_L: Ints
    physical_lines: int

    def raw(self, at: int) -> bytes:
        """The bytes of one record."""
        return self.data[int(self.start_L[at]) : int(self.stop_L[at])]

    def only(self, keep_L: Flags) -> bytes:
        """The bytes of the records of ``keep_L``, each ended by a newline."""
        if keep_L.all() and len(keep_L) and self.data.endswith(b"\n"):
            return self.data[int(self.start_L[0]) :]
        return b"".join(self.raw(int(at)) + b"\n" for at in np.flatnonzero(keep_L))


def cut_lines(data: bytes, delimiter: str) -> Lines:
    """The records of ``data``: newlines and delimiters inside quotes do not count."""
    bytes_N = np.frombuffer(data, np.uint8)
    newline_L = np.flatnonzero(bytes_N == NEWLINE)
    delimiters = np.flatnonzero(bytes_N == ord(delimiter))
    ends_L = newline_L
    if b'"' in data:
        quotes = _effective_quotes(np.flatnonzero(bytes_N == QUOTE), newline_L)
        ends_L = newline_L[_outside(quotes, newline_L)]
        delimiters = delimiters[_outside(quotes, delimiters)]
    if len(data) and (not len(ends_L) or ends_L[-1] != len(data) - 1):
        ends_L = np.append(ends_L, len(data))
    start_L = (
        np.concatenate([[0], ends_L[:-1] + 1]).astype(np.int64) if len(ends_L) else np.empty(0, np.int64)
    )
    cells_L = np.diff(np.searchsorted(delimiters, ends_L), prepend=0) + 1
    number_L = np.arange(len(ends_L)) if ends_L is newline_L else np.searchsorted(newline_L, start_L)
    return Lines(data, start_L, ends_L.astype(np.int64), cells_L, number_L.astype(np.int64), len(newline_L))


def last_record_end(data: bytes) -> int:
    """Where the last complete record of ``data`` ends (behind its newline); 0 if none does."""
    if b'"' not in data:
        return data.rfind(b"\n") + 1
    bytes_N = np.frombuffer(data, np.uint8)
    newline_L = np.flatnonzero(bytes_N == NEWLINE)
    quotes = _effective_quotes(np.flatnonzero(bytes_N == QUOTE), newline_L)
    outside = newline_L[_outside(quotes, newline_L)]
    return int(outside[-1]) + 1 if len(outside) else 0


def _outside(quotes: NDArray[np.intp], places: NDArray[np.intp]) -> Flags:
    outside: Flags = np.searchsorted(quotes, places) % 2 == 0
    return outside


def _effective_quotes(quotes: NDArray[np.intp], newline_L: NDArray[np.intp]) -> NDArray[np.intp]:
    """The quotes without those that open a cell which does not end within `MAX_QUOTED_LINES`.

    An opening quote stands at an even place. When its closing partner is too far, it is dropped and
    the pairing of all behind it shifts, so they are looked at again.
    """
    kept = quotes
    for _ in range(len(quotes)):
        opening, closing = kept[0::2], kept[1::2]
        far = np.searchsorted(newline_L, closing) - np.searchsorted(newline_L, opening[: len(closing)])
        stray = np.flatnonzero(far > MAX_QUOTED_LINES)
        if len(stray):
            kept = np.delete(kept, 2 * stray[0])
        elif len(kept) % 2 and len(newline_L) - np.searchsorted(newline_L, opening[-1]) > MAX_QUOTED_LINES:
            kept = kept[:-1]
        else:
            break
    return kept


def rows_of(lines: Sequence[bytes], delimiter: str) -> list[list[str]]:
    """The cells of each record by the csv module; one that it refuses has none, and spoils no other."""
    return [_cells(line, delimiter) for line in lines]


def _cells(line: bytes, delimiter: str) -> list[str]:
    text = line.decode("utf-8", "replace").replace("\r", " ")
    try:
        return next(csv.reader((part + "\n" for part in text.split("\n")), delimiter=delimiter), [])
    except csv.Error:  # a cell over its limit of 128 KiB
        return []
