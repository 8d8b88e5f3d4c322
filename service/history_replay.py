"""What the flight recorder holds of an attempt, as blocks that detectors can judge again.

History has values, checksums and the newest layout; it has no events, no record times, and not which NaN a
reader concluded. Whoever judges from it compares with the stored verdict first (`what_if_history`).

Axes: T positions, R ranks, K cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstfault.mesh import Layout
from ingest.blocks import ChecksumBlock, IterationBlock, NumberBlock

from .history_access import Files
from .history_names import Claim
from .history_parquet import ValueNames, value_names, value_tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """What is kept of single ranks of one attempt, in order of iterations."""

    first: int
    last: int
    blocks: tuple[IterationBlock, ...]


class TooManyValuesError(Exception):
    """More is kept than may be judged at once."""


def read_blocks(
    files: Files, claims: Sequence[Claim], about: tuple[str, int, Layout | None], max_cells: int
) -> Recorded | None:
    """All blocks of the claimed files; ``about`` is run, attempt and layout. None where nothing is kept.

    Raises:
        TooManyValuesError: more than ``max_cells`` values.
    """
    blocks: list[IterationBlock] = []
    cells = 0
    for claim in claims:
        names = files.read(claim.path, value_names)
        for table in files.read(claim.path, partial(_tables, claim)) or ():
            assert names is not None
            cells += len(table) * max(1, len(names.numbers) + len(names.checksums))
            if cells > max_cells:
                raise TooManyValuesError(f"more than {max_cells} values are kept of it")
            blocks += _blocks_of(table, names, about)
    if not blocks:
        return None
    return Recorded(
        first=int(blocks[0].iteration_T[0]), last=int(blocks[-1].iteration_T[-1]), blocks=tuple(blocks)
    )


def _tables(claim: Claim, file: Any) -> list[Any]:
    return value_tables(file, claim.first, claim.last)


def _blocks_of(
    table: Any,  # a table of pyarrow's
    names: ValueNames,
    about: tuple[str, int, Layout | None],
) -> Iterator[IterationBlock]:
    if not len(table):
        return
    run, attempt, layout = about
    iteration_K, microbatch_K, rank_K = (
        np.asarray(table.column(name).to_numpy()) for name in ("iteration", "microbatch", "rank")
    )
    is_new_K = np.append(True, (np.diff(iteration_K) != 0) | (np.diff(microbatch_K) != 0))
    row_K = np.cumsum(is_new_K) - 1
    ranks_R, column_K = np.unique(rank_K, return_inverse=True)
    grid = _Grid((int(row_K[-1]) + 1, len(ranks_R)), row_K, column_K, table)
    yield IterationBlock(
        run=run,
        attempt=attempt,
        iteration_T=iteration_K[is_new_K],
        microbatch_T=microbatch_K[is_new_K],
        ranks_R=ranks_R.astype(np.int32),
        numbers={name: grid.number(*names.columns_of(name)) for name in names.numbers},
        checksums={name: grid.checksum(*names.columns_of(name)) for name in names.checksums},
        layout=layout,
        time_T=np.full(grid.shape[0], np.nan),
    )


class _Grid:
    """Spreads cells over positions and ranks."""

    def __init__(
        self, shape: tuple[int, int], row_K: NDArray[np.int64], column_K: NDArray[np.int64], table: Any
    ) -> None:
        self.shape, self._at, self._table = shape, (row_K, column_K), table

    def number(self, column: str) -> NumberBlock:
        return NumberBlock(self._values(column, np.nan, np.float64), self._present(column))

    def checksum(self, high: str, low: str) -> ChecksumBlock:
        high_TR, low_TR = (self._values(name, 0, np.uint64) for name in (high, low))
        return ChecksumBlock(high_TR, low_TR, self._present(high))

    def _values(self, column: str, filler: float, dtype: type) -> NDArray[Any]:
        full_TR: NDArray[Any] = np.full(self.shape, filler, dtype)
        full_TR[self._at] = self._table.column(column).fill_null(dtype(filler).item()).to_numpy()
        return full_TR

    def _present(self, column: str) -> NDArray[np.bool_]:
        full_TR = np.zeros(self.shape, np.bool_)
        full_TR[self._at] = self._table.column(column).is_valid().to_numpy(zero_copy_only=False)
        return full_TR
