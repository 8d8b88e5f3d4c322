"""The checksums of an attempt that a later attempt may repeat: its first ones and its last ones.

A launch that goes on from a checkpoint repeats the last iterations of the one before it. What is kept is
bounded in values, whatever the run's length and width; of each checksum 32 bits, which is enough to see
that two differ (equal by chance once in 4e9). Axes: R ranks that reported.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from firstfault.telemetry import Kind
from ingest.blocks import ChecksumBlock, Flags, Ints, IterationBlock, Ranks

from .base import State

MAX_VALUES = 32_768
"""Values kept of the start of an attempt, and of its end likewise: 256 kB each. Eight ranks with four
checksums at every tenth iteration are ten thousand iterations; ten thousand ranks are three checks."""
ATTEMPT = "reference_attempt"
"""Key of the detail that names the attempt that an attempt was compared with."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Odd multiplier: its product's upper half depends on all bits of a word."""

Words32 = NDArray[np.uint32]


@dataclass(slots=True, eq=False)
class TrailRow:
    """One checksum metric at one position; never changed. Frozen ones take twice as long to make."""

    iteration: int
    microbatch: int
    metric: str
    ranks_R: Ranks
    words_R: Words32


@dataclass(slots=True)
class Trail:
    """Keeps the first and the last rows of an attempt, in order of position."""

    head: list[TrailRow] = field(default_factory=list)
    tail: list[TrailRow] = field(default_factory=list)
    head_values: int = 0
    tail_values: int = 0
    is_head_full: bool = False

    def update(self, block: IterationBlock) -> None:
        """Take the next settled positions."""
        sums = {
            metric: block.checksums[metric]
            for metric in sorted(block.checksums)
            if block.contracts.of(metric).kind in (Kind.CHECKSUM, Kind.REPEAT)
        }
        if not sums:
            return
        columns = [_Column.of(metric, each) for metric, each in sums.items()]
        used_T = np.logical_or.reduce([each.present_TR.any(axis=1) for each in sums.values()])
        needed = self._first_needed(sums, len(block))
        iterations, microbatches = block.iteration_T.tolist(), block.microbatch_T.tolist()
        for t in np.flatnonzero(used_T).tolist():
            if t >= needed or not self.is_head_full:  # what the tail would drop again is not built
                for column in columns:
                    if column.is_any[t]:
                        ranks_R, words_R = column.at(t, block.ranks_R)
                        self._keep(TrailRow(iterations[t], microbatches[t], column.metric, ranks_R, words_R))

    @property
    def first_iteration(self) -> int | None:
        """The iteration of the first row; None without one."""
        return self.head[0].iteration if self.head else None

    def rows_from(self, iteration: int) -> Iterator[TrailRow]:
        """All rows from ``iteration`` on, each once; costs as much as there are."""
        at = bisect_left(self.head, iteration, key=lambda row: row.iteration)
        yield from self.head[at:]
        last = _key(self.head[-1]) if self.head else (-1, -1, "")
        for row in self.tail[bisect_left(self.tail, iteration, key=lambda row: row.iteration) :]:
            if _key(row) > last:
                yield row

    def __deepcopy__(self, memo: object) -> Trail:
        # rows are never changed, and a live verdict copies every second
        return replace(self, head=list(self.head), tail=list(self.tail))

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "head": _to_plain(self.head),
            "tail": _to_plain(self.tail),
            "is_head_full": self.is_head_full,
        }

    @classmethod
    def restored(cls, state: State) -> Trail:
        """The trail that gave ``state``."""
        head, tail = list(_from_plain(state["head"])), list(_from_plain(state["tail"]))
        return cls(
            head=head,
            tail=tail,
            head_values=sum(len(row.ranks_R) for row in head),
            tail_values=sum(len(row.ranks_R) for row in tail),
            is_head_full=state["is_head_full"],
        )

    def _keep(self, row: TrailRow) -> None:
        size = len(row.ranks_R)
        self.is_head_full = self.is_head_full or self.head_values + size > MAX_VALUES
        if not self.is_head_full:
            self.head.append(row)
            self.head_values += size
        self.tail.append(row)
        self.tail_values += size
        while self.tail_values > MAX_VALUES:
            self.tail_values -= len(self.tail.pop(0).ranks_R)

    def _first_needed(self, sums: dict[str, ChecksumBlock], length: int) -> int:
        """The first row of a block that is still in the tail behind it."""
        values_T: Ints = np.zeros(length, np.int64)
        for each in sums.values():
            values_T += each.present_TR.sum(axis=1)
        from_end_T = np.cumsum(values_T[::-1])
        return length - min(length, int(np.searchsorted(from_end_T, MAX_VALUES, side="right")) + 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Column:
    """One checksum of a block, 32 bits of each value, to which all of its 128 bits contribute."""

    metric: str
    words_TR: Words32
    present_TR: Flags
    is_any: list[bool]
    is_all: list[bool]

    @classmethod
    def of(cls, metric: str, block: ChecksumBlock) -> _Column:
        mixed_TR = (block.high_TR * _GOLDEN) ^ block.low_TR
        any_T: Flags = np.asarray(block.present_TR.any(axis=1))
        all_T: Flags = np.asarray(block.present_TR.all(axis=1))
        return cls(
            metric=metric,
            words_TR=((mixed_TR * _GOLDEN) >> np.uint64(32)).astype(np.uint32),
            present_TR=block.present_TR,
            is_any=any_T.tolist(),
            is_all=all_T.tolist(),
        )

    def at(self, t: int, ranks_R: Ranks) -> tuple[Ranks, Words32]:
        """Who reported at a row, and what. Ranks are shared by rows; words are not, or one would keep all."""
        if self.is_all[t]:
            return ranks_R, self.words_TR[t].copy()
        return ranks_R[self.present_TR[t]], self.words_TR[t, self.present_TR[t]]


def _key(row: TrailRow) -> tuple[int, int, str]:
    return row.iteration, row.microbatch, row.metric


def _to_plain(rows: Sequence[TrailRow]) -> State:
    """Rows as flat arrays: thousands of small ones would take long to write."""
    metrics = sorted({row.metric for row in rows})
    ranks = [row.ranks_R for row in rows]
    words = [row.words_R for row in rows]
    return {
        "metrics": metrics,
        "metric": np.array([metrics.index(row.metric) for row in rows], np.int64),
        "iteration": np.array([row.iteration for row in rows], np.int64),
        "microbatch": np.array([row.microbatch for row in rows], np.int64),
        "values": np.array([len(each) for each in ranks], np.int64),
        "ranks": np.concatenate(ranks) if ranks else np.empty(0, np.int32),
        "words": np.concatenate(words) if words else np.empty(0, np.uint32),
    }


def _from_plain(plain: State) -> Iterator[TrailRow]:
    stops = np.cumsum(plain["values"])[:-1]
    ranks = np.split(np.array(plain["ranks"], np.int32), stops)
    words = np.split(np.array(plain["words"], np.uint32), stops)
    columns = (plain[name].tolist() for name in ("iteration", "microbatch", "metric"))
    for (iteration, microbatch, metric), ranks_R, words_R in zip(
        zip(*columns, strict=True), ranks, words, strict=False
    ):
        yield TrailRow(iteration, microbatch, plain["metrics"][metric], ranks_R, words_R)
