"""The lines of one piece of a log, by shape: which lines have it, and the numbers in its slots.

Axes: L lines of the piece, T numbers of all of them, S lines of one shape, K slots.

A large piece is scanned by a compiled kernel, a small one line by line; both give the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.blocks import Floats, Ints

from .sieve import IGNORED, NAMES, TELLS, Sieve, class_of_bytes, names_value, states
from .tokens import MAX_SHAPE_BYTES, number_of, tokenize

COMPILED_FROM_BYTES = 1 << 21
"""2 MiB: from here on loading the compiled kernel (about a second) takes less than going line by line."""


@dataclass(frozen=True, slots=True)
class ShapeLines:
    """The lines of one shape, in order; ``example`` is the first of them."""

    shape: bytes
    example: bytes
    line_S: Ints
    values_SK: Floats


class Piece:
    """Clean text whose lines are all ended."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._end_L = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))

    def __len__(self) -> int:
        return len(self._end_L)

    def __getitem__(self, at: int) -> bytes:
        """The text of a line."""
        start = int(self._end_L[at - 1]) + 1 if at else 0
        return self._data[start : int(self._end_L[at])]

    def by_shape(self, sieve: Sieve, compiled_from_bytes: int = COMPILED_FROM_BYTES) -> list[ShapeLines]:
        """The lines that are not blank, grouped by shape, in the order in which shapes appear.

        Those that are not looked at come last, as one group without a shape.
        """
        if len(self._data) >= compiled_from_bytes or not sieve.is_open:
            from .kernel import compiled  # small logs must not pay for numba
            from .kernel_words import compiled_words

            return self.by_kernel(sieve, *compiled(), compiled_words())
        return self.by_line(sieve)

    def by_line(self, sieve: Sieve) -> list[ShapeLines]:
        """The groups, line by line."""
        lines = self._data.split(b"\n")
        lines.pop()
        groups = group_lines(lines)
        passed = [sieve.passes(group.shape, group.example) for group in groups]
        held = [group.line_S for group, passes in zip(groups, passed, strict=True) if not passes]
        found = [group for group, passes in zip(groups, passed, strict=True) if passes]
        return [*found, _passed_over(np.sort(np.concatenate(held)))] if held else found

    def by_kernel(
        self, sieve: Sieve, scan: Callable[..., Any], group: Callable[..., Any], mark: Callable[..., Any]
    ) -> list[ShapeLines]:
        """The groups by the functions of the kernel."""
        size = len(self)
        hash_L, first_L, value_T = self._scan(scan)
        group_L = np.empty(size, np.int32)
        table = np.full(1 << max(4, (2 * size).bit_length()), -1, np.int32)
        line_G = np.empty(size, np.int64)
        groups = int(group(hash_L, group_L, table, line_G))
        line_G = line_G[:groups]
        told_G = self._told(mark, line_G)
        looked_at = self._looked_at(told_G, line_G, sieve, partial(_hashes, scan), hash_L)
        order_L = np.argsort(group_L, kind="stable")
        bounds = np.searchsorted(group_L[order_L], np.arange(groups + 1))
        found: list[ShapeLines] = []
        for at in looked_at.tolist():
            line, line_S = int(line_G[at]), order_L[bounds[at] : bounds[at + 1]]
            slots = int(first_L[line + 1] - first_L[line])
            values_SK = _taken(value_T, first_L[line_S], slots)
            found.append(ShapeLines(tokenize(self[line]).shape, self[line], line_S, values_SK))
        if len(looked_at) < groups:
            is_held_G = np.ones(groups + 1, np.bool_)  # the last for blank lines, whose group is -1
            is_held_G[[*looked_at.tolist(), groups]] = False
            found.append(_passed_over(np.flatnonzero(is_held_G[group_L])))
        return found

    def _told(self, mark: Callable[..., Any], line_G: Ints) -> NDArray[np.uint8]:
        """What each group is for the words on its first line; few shapes are few lines to go through."""
        few = 4 * len(line_G) < len(self)
        data = b"".join(self[line] + b"\n" for line in line_G.tolist()) if few else self._data
        told = np.empty(len(line_G) if few else len(self), np.uint8)
        mark(np.frombuffer(data, np.uint8), class_of_bytes(), *states(), told)
        return told if few else told[line_G]

    def _looked_at(
        self,
        told_G: NDArray[np.uint8],
        line_G: Ints,
        sieve: Sieve,
        hashes_of: Callable[[list[bytes]], NDArray[np.uint64]],
        hash_L: NDArray[np.uint64],
    ) -> Ints:
        """The groups that are looked at, each of which begins on a line of ``line_G``."""
        kept: list[int] = []
        for at in np.flatnonzero(told_G != IGNORED).tolist():
            if not sieve.is_open:
                is_known = np.isin(hash_L[line_G[at:]], sieve.hashes(hashes_of))
                is_wanted = (told_G[at:] == TELLS) | (is_known & (told_G[at:] != IGNORED))
                named = np.flatnonzero((told_G[at:] == NAMES) & ~is_known)
                shapes = (tokenize(self[line]).shape for line in line_G[at:][named].tolist())
                is_wanted[named] = [names_value(shape) for shape in shapes]
                return np.concatenate([np.array(kept, np.int64), np.flatnonzero(is_wanted) + at])
            example = self[int(line_G[at])]
            sieve.passes(tokenize(example).shape, example)
            kept.append(at)
        return np.array(kept, np.int64)

    def _scan(self, scan: Callable[..., Any]) -> tuple[NDArray[np.uint64], Ints, Floats]:
        """The shape of each line as a hash, its first number, and the numbers, hard ones read by Python."""
        hash_L, first_L = np.empty(len(self), np.uint64), np.empty(len(self) + 1, np.int64)
        bytes_B = np.frombuffer(self._data, np.uint8)
        room = len(self._data) // 6
        while True:
            value_T, hard_T = (
                np.empty(room + MAX_SHAPE_BYTES),
                np.empty(3 * (room + MAX_SHAPE_BYTES), np.int32),
            )
            count = np.zeros(2, np.int64)
            if scan(bytes_B, hash_L, first_L, value_T, hard_T, count) >= 0:
                break
            room *= 2
        places, starts, stops = hard_T[: count[1]].reshape(-1, 3).T.tolist()
        for place, start, stop in zip(places, starts, stops, strict=True):
            value_T[place] = number_of(self._data[start:stop])
        return hash_L, first_L, value_T


def _hashes(scan: Callable[..., Any], lines: list[bytes]) -> NDArray[np.uint64]:
    """The shapes of lines, as the kernel writes them."""
    return Piece(b"".join(line + b"\n" for line in lines))._scan(scan)[0]


def _passed_over(line_S: Ints) -> ShapeLines:
    """Lines that are not looked at."""
    return ShapeLines(b"", b"", line_S, np.empty((len(line_S), 0)))


def _taken(value_T: Floats, first_S: Ints, slots: int) -> Floats:
    """The numbers of lines from ``first_S`` on; without a copy where no other line has any between them."""
    first, rows = int(first_S[0]), len(first_S)
    if int(first_S[-1]) - first == slots * (rows - 1):
        return value_T[first : first + slots * rows].reshape(rows, slots)
    taken: Floats = value_T[first_S[:, np.newaxis] + np.arange(slots)]
    return taken


def group_lines(lines: list[bytes]) -> list[ShapeLines]:
    """Lines that are not blank, grouped by shape."""
    places: dict[bytes, list[int]] = {}
    numbers: dict[bytes, list[list[bytes]]] = {}
    for at, line in enumerate(lines):
        shape, found = tokenize(line)
        if shape:
            places.setdefault(shape, []).append(at)
            numbers.setdefault(shape, []).append(found)
    return [
        ShapeLines(shape, lines[at_S[0]], np.array(at_S, np.int64), _values(numbers[shape]))
        for shape, at_S in places.items()
    ]


def _values(rows: list[list[bytes]]) -> Floats:
    values_SK = np.array([[number_of(text) for text in row] for row in rows], np.float64)
    return values_SK.reshape(len(rows), -1)
