"""Which lines hold words that tell something, at the speed of memory; compiled."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ingest.compiled import Compiled

from .tokens import MAX_SHAPE_BYTES

_NEWLINE, _POINT, _GAP, _E, _NUMERAL, _LETTERS = 10, 46, 0, 5, 28, 26
_NAMES, _TELLS = 1, 2


def mark_lines(
    bytes_B: NDArray[np.uint8],
    class_B: NDArray[np.uint8],
    next_SC: NDArray[np.int16],
    means_S: NDArray[np.uint8],
    told_L: NDArray[np.uint8],
) -> int:
    """Fill in for each line of ``bytes_B``, all of which are ended, what it is for its words (`sieve`).

    Of signs in a row that are no letters one counts, as in a shape. Gives the number of lines.
    """
    line = at = 0
    while at < len(bytes_B):
        limit = at + MAX_SHAPE_BYTES
        state = next_SC[0, _GAP]
        told, before, has_letter = 0, _GAP, False
        last = 0
        while bytes_B[at] != _NEWLINE and at < limit:
            byte = bytes_B[at]
            what = class_B[byte]
            if what != _GAP or before != _GAP:
                state = next_SC[state, what]
                told = max(told, means_S[state])
            if 1 <= what <= _LETTERS and (what != _E or not (before == _NUMERAL or last == _POINT)):
                has_letter = True
            if what == _LETTERS + 1:
                told = max(told, _NAMES)
            before, last = what, byte
            at += 1
        told = max(told, means_S[next_SC[state, _GAP]])
        told_L[line] = told if has_letter else max(told, _TELLS)
        while bytes_B[at] != _NEWLINE:
            at += 1
        at += 1
        line += 1
    return line


@cache
def compiled_words() -> Compiled:
    """`mark_lines`, compiled."""
    return Compiled(mark_lines)
