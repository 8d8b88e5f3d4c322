"""What settled of one attempt and is not on disk yet.

Axes: T positions, R ranks, N summary rows.

Blocks are only collected here: summaries are made of many iterations at once, since a hundred numpy calls
for a hundred iterations cost as much as for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingest.blocks import ChecksumBlock, Flags, Ints, IterationBlock, NumberBlock

from .history_parquet import Slab, ValueNames
from .history_summary import Columns, joined, names_in, summarise

_MOST_PINNED = 4
"""A view may keep this many times its own size in memory; what would keep more is copied."""
_SLAB_CELLS = 1 << 22
"""Positions × ranks summarised at once: 32 MB for each of the few arrays that it takes."""
_Scalar = TypeVar("_Scalar", bound=np.generic)


class Pending:
    """Settled blocks of one attempt in order, and the bytes they hold."""

    def __init__(self) -> None:
        self.blocks: list[IterationBlock] = []
        self.bytes = 0

    def add(self, block: IterationBlock) -> None:
        """Take the next block; one without values says nothing."""
        if not len(block) or not (block.numbers or block.checksums):
            return
        own = IterationBlock(
            run=block.run,
            attempt=block.attempt,
            iteration_T=_own(block.iteration_T),
            microbatch_T=_own(block.microbatch_T),
            ranks_R=block.ranks_R,
            numbers={
                name: NumberBlock(_own(one.values_TR), _own(one.present_TR))
                for name, one in block.numbers.items()
            },
            checksums={
                name: ChecksumBlock(_own(one.high_TR), _own(one.low_TR), _own(one.present_TR))
                for name, one in block.checksums.items()
            },
            time_T=_own(block.time_T) if len(block.time_T) else np.full(len(block), np.nan),
        )
        self.blocks.append(own)
        self.bytes += block_bytes(own)

    @property
    def iterations(self) -> int:
        """Positions held."""
        return sum(len(block) for block in self.blocks)

    def clear(self) -> None:
        """Forget them."""
        self.blocks, self.bytes = [], 0


def block_bytes(block: IterationBlock) -> int:
    """Memory of a block: its values, 64 for the objects around each metric, 200 for those of the block."""
    cells = len(block) * len(block.ranks_R)
    metrics = len(block.numbers) + len(block.checksums)
    return 200 + 64 * metrics + cells * (9 * len(block.numbers) + 17 * len(block.checksums))


def after(blocks: Sequence[IterationBlock], iteration: int) -> list[IterationBlock]:
    """What lies behind ``iteration``: records read again after a crash settle as they did before."""
    kept: list[IterationBlock] = []
    for block in blocks:
        at = int(np.searchsorted(block.iteration_T, iteration, side="right"))
        if at < len(block):
            kept.append(block if not at else _rows(block, slice(at, None)))
    return kept


def latest(blocks: Sequence[IterationBlock], iterations: int, most_bytes: int) -> list[IterationBlock]:
    """The last blocks: ``iterations`` positions, more while they take less than ``most_bytes``."""
    positions = size = 0
    for at in range(len(blocks) - 1, -1, -1):
        if positions >= iterations and size + block_bytes(blocks[at]) > most_bytes:
            return list(blocks[at + 1 :])
        positions += len(blocks[at])
        size += block_bytes(blocks[at])
    return list(blocks)


def summary_rows(blocks: Sequence[IterationBlock]) -> tuple[Columns, Ints, list[str]]:
    """The summaries of the blocks, ascending by metric and iteration; the metric of each row; their names."""
    names = names_in(block.numbers for block in blocks)
    parts: list[Columns] = []
    metrics: list[Ints] = []
    slabs = list(_slabs(blocks))
    for at, name in enumerate(names):
        for slab in slabs:
            having = [block for block in slab if name in block.numbers]
            if having:
                parts.append(_summary(having, name))
                metrics.append(np.full(len(parts[-1]["iteration"]), at))
    return joined(parts), np.concatenate([np.empty(0, np.int64), *metrics]), names


def value_slabs(blocks: Sequence[IterationBlock]) -> Iterator[Slab]:
    """The blocks as slabs of every metric."""
    for slab in _slabs(blocks):
        yield Slab(
            iteration_T=np.concatenate([block.iteration_T for block in slab]),
            microbatch_T=np.concatenate([block.microbatch_T for block in slab]),
            ranks_R=slab[0].ranks_R,
            numbers={name: _number(slab, name) for name in names_in(b.numbers for b in slab)},
            checksums={name: _checksum(slab, name) for name in names_in(b.checksums for b in slab)},
        )


def names_of(blocks: Sequence[IterationBlock]) -> ValueNames:
    """Every metric of the blocks."""
    return ValueNames(names_in(b.numbers for b in blocks), names_in(b.checksums for b in blocks))


def _slabs(blocks: Sequence[IterationBlock]) -> Iterator[list[IterationBlock]]:
    """Consecutive blocks of the same ranks, cut where they would grow too large."""
    for _, same in groupby(blocks, key=lambda block: block.ranks_R.tobytes()):
        slab: list[IterationBlock] = []
        cells = 0
        for block in same:
            size = len(block) * len(block.ranks_R)
            if slab and cells + size > _SLAB_CELLS:
                yield slab
                slab, cells = [], 0
            slab.append(block)
            cells += size
        yield slab


def _summary(slab: Sequence[IterationBlock], name: str) -> Columns:
    values_TR, present_TR = _number(slab, name)
    return summarise(
        np.concatenate([block.iteration_T for block in slab]),
        np.concatenate([block.microbatch_T for block in slab]),
        np.concatenate([block.time_T for block in slab]),
        ranks_R=slab[0].ranks_R,
        values_TR=values_TR,
        present_TR=present_TR,
    )


def _number(slab: Sequence[IterationBlock], name: str) -> tuple[NDArray[np.float64], Flags]:
    values, present = [], []
    for block in slab:
        one = block.numbers.get(name)
        shape = len(block), len(block.ranks_R)
        values.append(np.full(shape, np.nan) if one is None else one.values_TR)
        present.append(np.zeros(shape, np.bool_) if one is None else one.present_TR)
    return np.concatenate(values), np.concatenate(present)


def _checksum(
    slab: Sequence[IterationBlock], name: str
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], Flags]:
    parts: list[tuple[Any, Any, Any]] = []
    for block in slab:
        one = block.checksums.get(name)
        shape = len(block), len(block.ranks_R)
        nothing = np.zeros(shape, np.uint64), np.zeros(shape, np.uint64), np.zeros(shape, np.bool_)
        parts.append(nothing if one is None else (one.high_TR, one.low_TR, one.present_TR))
    high, low, present = (np.concatenate(words) for words in zip(*parts, strict=True))
    return high, low, present


def _rows(block: IterationBlock, part: slice) -> IterationBlock:
    return IterationBlock(
        run=block.run,
        attempt=block.attempt,
        iteration_T=block.iteration_T[part],
        microbatch_T=block.microbatch_T[part],
        ranks_R=block.ranks_R,
        numbers={name: one.rows(part) for name, one in block.numbers.items()},
        checksums={name: one.rows(part) for name, one in block.checksums.items()},
        time_T=block.time_T[part],
    )


def _own(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """The array, or a copy where it is a small view of something large."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    return array.copy() if base.nbytes > _MOST_PINNED * array.nbytes else array
