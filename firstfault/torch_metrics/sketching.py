"""A linear checksum of a gradient: a number that a reduction must reduce as it reduces the gradient.

``s = sum_i w_i g_i`` with pseudo-random signs ``w_i`` of the global position i alone, the same on every rank:
the sketch of a sum is the sum of the sketches, and the sketches of shards add up to that of the whole. A
changed value cannot hide, and two changes cancel only if they are equal in size. Rows are added in single
precision at least, and their sums in double: the rounding is below that of the reduction itself.

Source: the tug-of-war sketch of Alon, Matias and Szegedy, The space complexity of approximating the
frequency moments, STOC 1996, section 2.2, with one row of signs. We differ in that ``w_i`` is the product
of a sign of the column and one of the row of i in a table of `COLUMNS` columns, so that a row is one step of
a matrix-vector product.

Axes: R rows, C columns, N elements.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from .hashing import mixed_places

COLUMNS = 4096
"""Elements of a row: long enough that a matrix-vector product runs at the bandwidth of memory, short enough
that its sums in single precision err by less than 1e-6 of the row's norm."""
_ROWS = 1024
"""Rows turned into single precision at a time, where they are of a smaller type: 16 MiB."""


def rows_of(count: int) -> int:
    """How many rows of signs ``count`` elements take."""
    return -(-count // COLUMNS)


def sketch(values: torch.Tensor, row: int = 0, offset: int = 0) -> torch.Tensor:
    """The sketch as a double on the device of ``values``, which start ``offset`` elements behind row ``row``.

    Not finite where a value is not. Does not synchronize.

    >>> whole = torch.arange(10000.0)
    >>> parts = sketch(whole[:3000]) + sketch(whole[3000:], offset=3000)
    >>> bool(torch.isclose(parts, sketch(whole)))
    True
    """
    with torch.no_grad():
        flat_N = values.detach().contiguous().view(-1)
        start = row * COLUMNS + offset
        first, column = divmod(start, COLUMNS)
        parts = []
        head = min(len(flat_N), -column % COLUMNS)
        if head:
            parts.append(_part(flat_N[:head], first, column))
            first += 1
        full = (len(flat_N) - head) // COLUMNS
        if full:
            rows_RC = flat_N[head : head + full * COLUMNS].view(full, COLUMNS)
            signs_R = _row_signs(flat_N.device, first + full)[first : first + full]
            parts.append(torch.dot(_row_sums(rows_RC).double(), signs_R))
        tail_N = flat_N[head + full * COLUMNS :]
        if len(tail_N):
            parts.append(_part(tail_N, first + full, 0))
        if not parts:
            return torch.zeros((), dtype=torch.float64, device=flat_N.device)
        return parts[0] if len(parts) == 1 else torch.stack(parts).sum()


def _part(values_N: torch.Tensor, row: int, column: int) -> torch.Tensor:
    """What a piece of one row adds."""
    signs_N = _column_signs(values_N.device, torch.float32)[column : column + len(values_N)]
    sign = _row_signs(values_N.device, row + 1)[row]
    return torch.dot(values_N.to(_wide(values_N.dtype)), signs_N.to(_wide(values_N.dtype))).double() * sign


def _row_sums(rows_RC: torch.Tensor) -> torch.Tensor:
    wide = _wide(rows_RC.dtype)
    signs_C = _column_signs(rows_RC.device, wide)
    if rows_RC.dtype == wide:
        return torch.mv(rows_RC, signs_C)
    # a matrix-vector product in a small type would round its sums to that type
    return torch.cat([torch.mv(part.to(wide), signs_C) for part in torch.split(rows_RC, _ROWS)])


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


@lru_cache(maxsize=32)
def _column_signs(device: torch.device, dtype: torch.dtype) -> torch.Tensor:
    return _signs(0, COLUMNS).to(device=device, dtype=dtype)


def _row_signs(device: torch.device, rows: int) -> torch.Tensor:
    """At least ``rows`` signs as doubles, a power of two so that they are seldom made."""
    return _row_signs_of(device, max(1024, 1 << (rows - 1).bit_length()))


@lru_cache(maxsize=64)
def _row_signs_of(device: torch.device, rows: int) -> torch.Tensor:
    return _signs(COLUMNS, rows).to(device)


def _signs(start: int, count: int) -> torch.Tensor:
    return 1.0 - 2.0 * (mixed_places(start, count) & 1).double()
