"""The lines of one piece of a log, by shape: which lines have it, and the numbers in its slots.

Axes: L lines of the piece, T numbers of all of them, S lines of one shape, K slots.

A large piece is scanned by a compiled kernel, a small one line by line; both give the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.blocks import Floats, Ints

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

    def by_shape(self, compiled_from_bytes: int = COMPILED_FROM_BYTES) -> list[ShapeLines]:
        """The lines that are not blank, grouped by shape, in the order in which shapes appear."""
        if len(self._data) >= compiled_from_bytes:
            from .kernel import compiled  # small logs must not pay for numba

            return self.by_kernel(*compiled())
        return self.by_line()

    def by_line(self) -> list[ShapeLines]:
        """The groups, line by line."""
        lines = self._data.split(b"\n")
        lines.pop()
        return group_lines(lines)

    def by_kernel(self, scan: Callable[..., Any], group: Callable[..., Any]) -> list[ShapeLines]:
        """The groups by the two functions of the kernel."""
        size = len(self)
        hash_L, first_L = np.empty(size, np.uint64), np.empty(size + 1, np.int64)
        value_T = self._scan(scan, hash_L, first_L)
        group_L = np.empty(size, np.int32)
        table = np.full(1 << max(4, (2 * size).bit_length()), -1, np.int32)
        line_G = np.empty(size, np.int64)
        groups = int(group(hash_L, group_L, table, line_G))
        order_L = np.argsort(group_L, kind="stable")
        bounds = np.searchsorted(group_L[order_L], np.arange(groups + 1)).tolist()
        found: list[ShapeLines] = []
        for at, line in enumerate(line_G[:groups].tolist()):
            line_S = order_L[bounds[at] : bounds[at + 1]]
            example = self[line]
            slots = int(first_L[line + 1] - first_L[line])
            values_SK = _taken(value_T, first_L[line_S], slots)
            found.append(ShapeLines(tokenize(example).shape, example, line_S, values_SK))
        return found

    def _scan(self, scan: Callable[..., Any], hash_L: NDArray[np.uint64], first_L: Ints) -> Floats:
        """The numbers of all lines, those too long for the kernel read by Python."""
        bytes_B = np.frombuffer(self._data, np.uint8)
        room = len(self._data) // 6
        while True:
            value_T, hard_T = (
                np.empty(room + MAX_SHAPE_BYTES),
                np.empty(3 * (room + MAX_SHAPE_BYTES), np.int32),
            )
            _, tokens, hard = scan(bytes_B, hash_L, first_L, value_T, hard_T)
            if tokens >= 0:
                break
            room *= 2
        places, starts, stops = hard_T[:hard].reshape(-1, 3).T.tolist()
        for place, start, stop in zip(places, starts, stops, strict=True):
            value_T[place] = number_of(self._data[start:stop])
        return value_T


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
