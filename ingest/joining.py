"""Record batches joined: one after the other, and into no more cells than one may have.

Axes: N records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from .blocks import ChecksumColumn, Flags, NumberColumn, RecordBatch
from .columns import MAX_CELLS, admit
from .labels import Labels, labels_from_rows

Scalar = TypeVar("Scalar", bound=np.generic)
Keys = NDArray[np.int32]


def concatenate(batches: Sequence[RecordBatch], max_cells: int = MAX_CELLS) -> RecordBatch:
    """The batches one after the other as one batch; of none, the empty batch.

    Metrics beyond the cell budget are left out, the last seen first, each counted as rejected.
    """
    if len(batches) == 1:
        return batches[0]
    sizes = [len(batch) for batch in batches]
    starts = [0, *accumulate(sizes)]
    runs = {name: at for at, name in enumerate(dict.fromkeys(n for batch in batches for n in batch.runs))}
    names = dict.fromkeys(name for batch in batches for name in batch.numbers)
    checksum_names = dict.fromkeys(name for batch in batches for name in batch.checksums)
    admitted, refused = admit([*names, *checksum_names], starts[-1], max_cells)
    keys = run_N, attempt_N, rank_N, iteration_N, microbatch_N = _join_keys(batches, runs)
    return RecordBatch(
        runs=tuple(runs),
        run_N=run_N,
        attempt_N=attempt_N,
        rank_N=rank_N,
        iteration_N=iteration_N,
        microbatch_N=microbatch_N,
        time_N=_join([batch.time_N for batch in batches], np.float64),
        numbers={
            name: _join_numbers([batch.numbers.get(name) for batch in batches], sizes)
            for name in names
            if name in admitted
        },
        checksums={
            name: _join_checksums([batch.checksums.get(name) for batch in batches], sizes)
            for name in checksum_names
            if name in admitted
        },
        labels=_join_labels(batches, starts, keys),
        events=tuple(
            (before + start, event)
            for start, batch in zip(starts[:-1], batches, strict=True)
            for before, event in batch.events
        ),
        rejected=(*(why for batch in batches for why in batch.rejected), *refused),
        origins=_join_origins(batches),
    )


def joined(parts: Iterable[RecordBatch], max_cells: int = MAX_CELLS) -> list[RecordBatch]:
    """``parts`` in their order as few batches, none of which has more cells than allowed; at least one.

    A part that has too many by itself stays alone, as it is.
    """
    groups: list[list[RecordBatch]] = [[]]
    names: set[str] = set()
    rows = 0
    for part in parts:
        own = {*part.numbers, *part.checksums}
        if groups[-1] and (rows + len(part)) * len(names | own) > max_cells:
            groups.append([])
            names, rows = set(), 0
        groups[-1].append(part)
        names |= own
        rows += len(part)
    return [concatenate(group, max_cells) for group in groups]


def _join(parts: Sequence[NDArray[Scalar]], dtype: type[Scalar]) -> NDArray[Scalar]:
    return np.concatenate(parts, dtype=dtype) if parts else np.empty(0, dtype)


def _join_keys(
    batches: Sequence[RecordBatch], runs: Mapping[str, int]
) -> tuple[Keys, Keys, Keys, NDArray[np.int64], Keys]:
    """Run, attempt, rank, iteration and microbatch of all; a run by its place among all ``runs``."""
    own = [np.array([runs[name] for name in batch.runs], np.int32)[batch.run_N] for batch in batches]
    return (
        _join(own, np.int32),
        _join([batch.attempt_N for batch in batches], np.int32),
        _join([batch.rank_N for batch in batches], np.int32),
        _join([batch.iteration_N for batch in batches], np.int64),
        _join([batch.microbatch_N for batch in batches], np.int32),
    )


def _join_origins(batches: Sequence[RecordBatch]) -> frozenset[tuple[str, str]] | None:
    known = [batch.origins for batch in batches if batch.origins is not None]
    return frozenset().union(*known) if known else None


def _join_labels(
    batches: Sequence[RecordBatch], starts: Sequence[int], keys: Sequence[NDArray[np.integer]]
) -> Labels:
    """Labels of all, thinned again: a stretch may go on in the next batch."""
    found: dict[str, tuple[list[int], list[str]]] = {}
    for start, batch in zip(starts[:-1], batches, strict=True):
        for at, name, text in batch.labels:
            rows, texts = found.setdefault(name, ([], []))
            rows.append(at + start)
            texts.append(text)
    return labels_from_rows(found, keys)


def _join_numbers(parts: Sequence[NumberColumn | None], sizes: Sequence[int]) -> NumberColumn:
    pairs = list(zip(parts, sizes, strict=True))
    has_inferred = any(part is not None and part.inferred_N is not None for part in parts)
    return NumberColumn(
        np.concatenate([np.full(n, np.nan) if part is None else part.values_N for part, n in pairs]),
        _flags([(None if part is None else part.present_N, n) for part, n in pairs]),
        _flags([(None if part is None else part.inferred_N, n) for part, n in pairs])
        if has_inferred
        else None,
    )


def _join_checksums(parts: Sequence[ChecksumColumn | None], sizes: Sequence[int]) -> ChecksumColumn:
    pairs = list(zip(parts, sizes, strict=True))
    return ChecksumColumn(
        np.concatenate([np.zeros(n, np.uint64) if part is None else part.high_N for part, n in pairs]),
        np.concatenate([np.zeros(n, np.uint64) if part is None else part.low_N for part, n in pairs]),
        _flags([(None if part is None else part.present_N, n) for part, n in pairs]),
    )


def _flags(parts: Sequence[tuple[Flags | None, int]]) -> Flags:
    return np.concatenate([np.zeros(n, np.bool_) if part is None else part for part, n in parts])
