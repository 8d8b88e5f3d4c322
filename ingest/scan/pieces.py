"""The lines of one piece of a log, by shape: which lines have it, and the numbers in its slots.

Axes: L lines of the piece, S lines of one shape, K slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingest.blocks import Floats, Ints

from .tokens import number_of, tokenize


@dataclass(frozen=True, slots=True)
class ShapeLines:
    """The lines of one shape, in order; ``example`` is the first of them."""

    shape: bytes
    example: bytes
    line_S: Ints
    values_SK: Floats


def split_lines(data: bytes) -> list[bytes]:
    """The lines of clean text whose lines are all ended."""
    lines = data.split(b"\n")
    lines.pop()
    return lines


def by_shape(lines: list[bytes]) -> list[ShapeLines]:
    """The lines that are not blank, grouped by shape, in the order in which shapes appear."""
    places: dict[bytes, list[int]] = {}
    numbers: dict[bytes, list[list[bytes]]] = {}
    for at, line in enumerate(lines):
        if not line or line.isspace():
            continue
        shape, found = tokenize(line)
        places.setdefault(shape, []).append(at)
        numbers.setdefault(shape, []).append(found)
    return [
        ShapeLines(
            shape,
            lines[at_S[0]],
            np.array(at_S, np.int64),
            np.array([[number_of(text) for text in row] for row in numbers[shape]], np.float64).reshape(
                len(at_S), -1
            ),
        )
        for shape, at_S in places.items()
    ]
