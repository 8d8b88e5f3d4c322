"""Which cell each record claims, and whose value stands where several claim one.

Axes: N records, P positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .blocks import Flags, Ints


@dataclass(frozen=True, slots=True)
class Cells:
    """Where N records belong: the row of each, and the flat cell in live rows × R ranks."""

    cell_N: Ints
    row_N: Ints
    has_repeats: bool
    """Whether two of the records claim one cell."""
    span: Ints | slice
    """The cells, as a slice where each record has the one behind that of the record before."""

    @classmethod
    def of(cls, cell_N: Ints, row_N: Ints, *, cells: int) -> Cells:
        """What N > 0 records claim of so many cells."""
        first, stop = int(cell_N[0]), int(cell_N[-1]) + 1
        if stop - first == len(cell_N) and bool((np.diff(cell_N) == 1).all()):
            return cls(cell_N, row_N, False, slice(first, stop))
        return cls(cell_N, row_N, has_repeats(cell_N, cells), cell_N)


@dataclass(frozen=True, slots=True)
class Winners:
    """Each claimed cell once, with the words of the value that stands."""

    cell_N: Ints
    words: tuple[NDArray[Any], ...]
    contested: Ints
    """Cells that were claimed with several values."""


def settle_claims(cell_N: Ints, words: Sequence[NDArray[Any]]) -> Winners:
    """Of all values claimed for a cell: a non-finite one, else that of the greater bit pattern.

    ``words`` is one array for a number, two for a checksum. The rule is a total order over values, so
    no order of arrival can change who wins.
    """
    bits = [word.view(np.uint64) for word in words]
    keys: list[NDArray[Any]] = [*reversed(bits), cell_N]  # the last key is the first to sort by
    if len(words) == 1:
        keys.insert(1, ~np.isfinite(words[0]))
    order = np.lexsort(keys)
    cell_N = cell_N[order]
    last_N = np.append(cell_N[1:] != cell_N[:-1], True)
    differs_N = np.zeros(len(order), np.bool_)
    for bit in bits:
        ordered = bit[order]
        differs_N[1:] |= (ordered[1:] != ordered[:-1]) & ~last_N[:-1]
    return Winners(cell_N[last_N], tuple(word[order][last_N] for word in words), cell_N[differs_N])


def has_repeats(cell_N: Ints, cells: int) -> bool:
    """Whether a cell occurs twice: write each record's number, see whose stayed; few records are sorted."""
    steps = np.diff(cell_N)
    if (steps > 0).all():
        return False
    if 16 * len(cell_N) < cells:  # a fresh array of all cells costs more than sorting a few records
        return bool((np.diff(np.sort(cell_N)) == 0).any())
    number_N = np.arange(len(cell_N), dtype=np.int32)
    owner = np.empty(cells, np.int32)
    owner[cell_N] = number_N
    return bool((owner[cell_N] != number_N).any())


def distinct(key_N: Ints) -> Ints:
    """The distinct keys, ascending; a pass without a sort where they come in order."""
    steps = np.diff(key_N)
    if (steps > 0).all():
        return key_N
    if (steps >= 0).all():
        return np.asarray(key_N[np.append(True, steps > 0)])
    return np.unique(key_N)


def is_in(fresh: Ints, key_P: Ints) -> Flags:
    """Which of ``fresh`` are among the ascending, non-empty ``key_P``."""
    at = np.minimum(np.searchsorted(key_P, fresh), len(key_P) - 1)
    return np.asarray(key_P[at] == fresh)
