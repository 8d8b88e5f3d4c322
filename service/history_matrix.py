"""One metric of every rank, iteration by iteration.

Axes: T positions, R ranks, K cells.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.blocks import Flags, Floats, Ints, Ranks, Words

from .history_access import Files
from .history_names import Claim, Segment, WindowFile, claims
from .history_parquet import Cells, read_cells

_UNBOUNDED = 1 << 62


@dataclass(frozen=True, slots=True)
class Matrix:
    """One metric of every rank: ``values_TR`` of a number, ``high_TR`` and ``low_TR`` of a checksum.

    NaN in ``values_TR`` is an observation where ``present_TR``; ``is_cut``: too large, so the first
    iterations of the range are missing.
    """

    metric: str
    iteration_T: Ints
    microbatch_T: NDArray[np.int32]
    ranks_R: Ranks
    present_TR: Flags
    values_TR: Floats | None = None
    high_TR: Words | None = None
    low_TR: Words | None = None
    is_cut: bool = False

    def checksum(self, position: int, rank: int) -> str | None:
        """The checksum at a position and place in ``ranks_R`` as hexadecimal text; None if not reported."""
        if self.high_TR is None or self.low_TR is None or not self.present_TR[position, rank]:
            return None
        return f"{int(self.high_TR[position, rank]) << 64 | int(self.low_TR[position, rank]):x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What is wanted: iterations ``start`` to ``last``, some ranks or all, so many cells at most."""

    start: int
    last: int
    ranks: Collection[int] | None
    max_cells: int


def read_matrix(
    files: Files, found: Sequence[Segment | WindowFile], metric: str, part: Part
) -> Matrix | None:
    """A metric out of files of values; None if none of them has any of it.

    Newest first, so that what is too much is cut at the front.
    """
    parts: list[Cells] = []
    held = 0
    for claim in reversed(claims(found)):
        if claim.last < part.start or claim.first > part.last:
            continue
        if held > part.max_cells:
            return _as_matrix(metric, parts, part.max_cells, is_cut=True)
        cells = _claimed_cells(files, claim, metric, part)
        if cells is not None and len(cells.rank_K):
            parts.insert(0, cells)
            held += len(cells.rank_K)
    return _as_matrix(metric, parts, part.max_cells) if held else None


def matrices(
    files: Files, found: Sequence[Segment | WindowFile], metric: str, part: Part
) -> Iterator[Matrix]:
    """A metric out of files of values, piece by piece, the newest iterations first.

    ``part.max_cells`` is what a piece holds at most, gaps and all, but for one position alone: so much is in
    memory at once, however long the run.
    """
    parts: list[Cells] = []
    rows, ranks_R = 0, np.empty(0, np.int64)
    for claim in reversed(claims(found)):
        if claim.last < part.start or claim.first > part.last:
            continue
        cells = _claimed_cells(files, claim, metric, part)
        for piece in () if cells is None else _pieces(cells, part.max_cells):
            mine_R = _ranks_in(piece)
            all_R = np.union1d(ranks_R, mine_R)
            if parts and (rows + _rows(piece)) * len(all_R) > part.max_cells:
                yield _as_matrix(metric, parts, _UNBOUNDED)
                parts, rows, all_R = [], 0, mine_R
            parts.insert(0, piece)
            rows, ranks_R = rows + _rows(piece), all_R
    if parts:
        yield _as_matrix(metric, parts, _UNBOUNDED)


def _pieces(cells: Cells, max_cells: int) -> Iterator[Cells]:
    """The cells in parts of whole positions, the newest first, that hold no more even with every gap filled.

    Ranks come and go: a position of all of them beside a million of one would make a matrix of almost nothing
    but gaps, which no memory holds.
    """
    if not len(cells.rank_K):
        return
    rows = _rows(cells)
    if rows == 1 or rows * len(_ranks_in(cells)) <= max_cells:
        yield cells
        return
    middle = int(np.flatnonzero(_is_new(cells))[rows // 2])
    for half in (slice(middle, None), slice(middle)):
        place = cells.iteration_K[half], cells.microbatch_K[half], cells.rank_K[half]
        words = tuple(word_K[half] for word_K in cells.words_K)
        yield from _pieces(Cells(*place, words, cells.present_K[half]), max_cells)


def _is_new(cells: Cells) -> NDArray[np.bool_]:
    """Where a position begins; cells are in the order of their positions."""
    steps_K = (np.diff(cells.iteration_K) != 0) | (np.diff(cells.microbatch_K) != 0)
    return np.append(True, steps_K)


def _rows(cells: Cells) -> int:
    return int(_is_new(cells).sum())


def _claimed_cells(files: Files, claim: Claim, metric: str, part: Part) -> Cells | None:
    first, last = max(part.start, claim.first), min(part.last, claim.last)
    cells = files.read(claim.path, lambda file: read_cells(file, metric, first, last))
    if cells is None or part.ranks is None:
        return cells
    kept_K = np.isin(cells.rank_K, np.array(sorted(part.ranks), np.int64))
    words = tuple(word_K[kept_K] for word_K in cells.words_K)
    place = cells.iteration_K[kept_K], cells.microbatch_K[kept_K], cells.rank_K[kept_K]
    return Cells(*place, words, cells.present_K[kept_K])


def _as_matrix(metric: str, parts: Sequence[Cells], max_cells: int, *, is_cut: bool = False) -> Matrix:
    """Cells in order of position as T × R, the last positions if all would be too many."""
    keys = [np.concatenate([getattr(one, name) for one in parts]) for name in ("iteration_K", "microbatch_K")]
    rank_K = np.concatenate([one.rank_K for one in parts])
    present_K = np.concatenate([one.present_K for one in parts])
    words = [np.concatenate(word) for word in zip(*(one.words_K for one in parts), strict=True)]
    is_new_K = np.append(True, (np.diff(keys[0]) != 0) | (np.diff(keys[1]) != 0))
    row_K = np.cumsum(is_new_K) - 1
    ranks_R, column_K = _ranks_of(rank_K, is_new_K)
    skipped = max(0, int(row_K[-1]) + 1 - max(1, max_cells // len(ranks_R)))
    kept_K = row_K >= skipped
    shape = int(row_K[-1]) + 1 - skipped, len(ranks_R)
    at = row_K[kept_K] - skipped, column_K[kept_K]

    def spread(cell_K: NDArray[Any], filler: float) -> NDArray[Any]:
        full_TR = np.full(shape, filler, cell_K.dtype)
        full_TR[at] = cell_K[kept_K]
        return full_TR

    named: Mapping[str, NDArray[Any]] = (
        {"values_TR": spread(words[0], np.nan)}
        if len(words) == 1
        else {"high_TR": spread(words[0], 0), "low_TR": spread(words[1], 0)}
    )
    return Matrix(
        metric=metric,
        iteration_T=keys[0][is_new_K][skipped:],
        microbatch_T=keys[1][is_new_K][skipped:],
        ranks_R=ranks_R,
        present_TR=spread(present_K, False),
        is_cut=is_cut or skipped > 0,
        **named,
    )


def _ranks_in(cells: Cells) -> Ranks:
    regular_R = _regular(cells.rank_K, _is_new(cells))
    return np.unique(cells.rank_K) if regular_R is None else regular_R


def _ranks_of(rank_K: Ranks, is_new_K: Flags) -> tuple[Ranks, NDArray[np.intp]]:
    """The ranks, ascending, and the place of each cell's among them."""
    regular_R = _regular(rank_K, is_new_K)
    if regular_R is not None:
        return regular_R, np.tile(np.arange(len(regular_R)), len(rank_K) // len(regular_R))
    return np.unique(rank_K, return_inverse=True)


def _regular(rank_K: Ranks, is_new_K: Flags) -> Ranks | None:
    """The ranks, ascending, where every position has the same: to sort millions would be most of the work."""
    size = int(is_new_K[1:].argmax()) + 1 if is_new_K[1:].any() else len(rank_K)
    if len(rank_K) % size == 0 and (rank_K.reshape(-1, size) == rank_K[:size]).all():
        return rank_K[:size]
    return None
