"""The rows of a batch arranged by rank, for `attempts`.

Axes: N rows (records and events) in file order, J judged rows arranged by rank, K metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from firstfault.telemetry import MAX_RANK, EventKind

from .blocks import Flags, Ints, RecordBatch

_ACTIVE_EVENTS = (EventKind.RUN_START, EventKind.RESUME)
"""Events that speak for the moment they stand at; a checkpoint or hardware event may tell of the past."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A row at which a rank begins an attempt, or first appears (``is_new``)."""

    place: int
    group: int
    iteration: int
    is_new: bool = False
    attempt: int = 0


@dataclass(frozen=True)
class Rows:
    """Records and events of one batch in file order.

    ``group_N`` indexes ``keys``, the (run, rank) pairs; ``record_N`` is the record's index, -1 for
    an event; ``is_judged_N`` leaves out events that may tell of the past.
    """

    keys: tuple[tuple[str, int], ...]
    group_N: Ints
    iteration_N: Ints
    record_N: Ints
    is_judged_N: Flags

    @classmethod
    def of(cls, batch: RecordBatch) -> Rows:
        """Arrange a batch."""
        run_N, rank_N, iteration_N = (
            batch.run_N.astype(np.int64),
            batch.rank_N.astype(np.int64),
            batch.iteration_N,
        )
        record_N = np.arange(len(batch), dtype=np.int64)
        judged_N = np.ones(len(batch), np.bool_)
        runs = list(batch.runs)
        if batch.events:
            runs += [
                run for run in dict.fromkeys(event.run for _, event in batch.events) if run not in batch.runs
            ]
            at = np.array([before for before, _ in batch.events])
            events = [event for _, event in batch.events]
            run_N = np.insert(run_N, at, [runs.index(event.run) for event in events])
            rank_N = np.insert(rank_N, at, [event.rank for event in events])
            iteration_N = np.insert(iteration_N, at, [event.iteration for event in events])
            record_N = np.insert(record_N, at, -1)
            judged_N = np.insert(judged_N, at, [event.kind in _ACTIVE_EVENTS for event in events])
        # rank -1 is the unnamed one
        codes, group_N = _compact(run_N * (MAX_RANK + 2) + rank_N + 1)
        keys = tuple(
            (runs[code // (MAX_RANK + 2)], int(code % (MAX_RANK + 2)) - 1) for code in codes.tolist()
        )
        return cls(keys, group_N, iteration_N, record_N, judged_N)

    @cached_property
    def _order(self) -> Ints:
        small = self.group_N.astype(np.uint16) if len(self.keys) <= 1 << 16 else self.group_N
        return np.argsort(small, kind="stable")  # a radix sort where groups fit 16 bits

    def judged(self) -> tuple[Ints, Ints, Ints]:
        """Places, groups and iterations of the judged rows, arranged by group, in file order inside."""
        if len(self.keys) == 1 and self.is_judged_N.all():
            return np.arange(len(self.group_N)), self.group_N, self.iteration_N
        order_J = self._order
        order_J = order_J[self.is_judged_N[order_J]]
        return order_J, self.group_N[order_J], self.iteration_N[order_J]

    def places_of(self, group: int) -> Ints:
        """All places of one group, ascending."""
        if len(self.keys) == 1:
            return np.arange(len(self.group_N))
        sorted_N = self.group_N[self._order]
        start, stop = np.searchsorted(sorted_N, [group, group + 1])
        return self._order[start:stop]

    def before(self, place: int, run: str) -> tuple[int, tuple[str, int]] | None:
        """Iteration and key of the last judged row of ``run`` before ``place``."""
        for at in range(place - 1, max(place - 1 - 256, -1), -1):  # rows of other runs in between
            key = self.keys[self.group_N[at]]
            if key[0] == run and self.is_judged_N[at]:
                return int(self.iteration_N[at]), key
        return None

    def first_iterations(self) -> Iterator[tuple[str, int]]:
        """Each run with the iteration of its first judged row."""
        seen: dict[str, int] = {}
        firsts = (
            np.unique(self.group_N[self.is_judged_N], return_index=True)[1] if len(self.keys) > 1 else [0]
        )
        iteration_J = self.iteration_N[self.is_judged_N]
        group_J = self.group_N[self.is_judged_N]
        for at in sorted(int(first) for first in firsts if first < len(iteration_J)):
            seen.setdefault(self.keys[group_J[at]][0], int(iteration_J[at]))
        yield from seen.items()


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some rows of one rank with their values.

    ``values`` maps a metric to (bits, bits, present): two words a value, so that checksums and
    numbers compare alike, and every NaN equals every other.
    """

    iteration_N: Ints
    microbatch_N: NDArray[np.int32]
    values: dict[str, tuple[NDArray[np.uint64], NDArray[np.uint64], Flags]]

    @classmethod
    def empty(cls) -> RowBlock:
        """No rows."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int32), {})

    @classmethod
    def of(cls, batch: RecordBatch, record_N: Ints, iteration_N: Ints) -> RowBlock:
        """The rows ``record_N`` of ``batch``; -1 (an event) has no values."""
        is_record_N = record_N >= 0
        values: dict[str, tuple[NDArray[np.uint64], NDArray[np.uint64], Flags]] = {}
        if not is_record_N.any():
            return cls(iteration_N, np.full(len(record_N), -1, np.int32), values)
        at_N = np.where(is_record_N, record_N, 0)
        for name, number in batch.numbers.items():
            present_N = number.present_N[at_N] & is_record_N
            if present_N.any():
                value_N = number.values_N[at_N] + 0.0
                value_N[np.isnan(value_N)] = np.nan
                values[name] = value_N.view(np.uint64), np.zeros(len(at_N), np.uint64), present_N
        for name, checksum in batch.checksums.items():
            present_N = checksum.present_N[at_N] & is_record_N
            if present_N.any():
                values[name] = checksum.high_N[at_N], checksum.low_N[at_N], present_N
        microbatch_N = np.where(is_record_N, batch.microbatch_N[at_N], -1).astype(np.int32)
        return cls(iteration_N, microbatch_N, values)

    def upto(self, stop: int) -> RowBlock:
        """The rows before ``stop``, the others made to have no values."""
        before_N = np.arange(len(self.iteration_N)) < stop
        values = {name: (high, low, present & before_N) for name, (high, low, present) in self.values.items()}
        return RowBlock(self.iteration_N, self.microbatch_N, values)

    def part(self, start: int) -> RowBlock:
        """The rows from ``start`` on, as views."""
        if not start:
            return self
        values = {name: (a[start:], b[start:], c[start:]) for name, (a, b, c) in self.values.items()}
        return RowBlock(self.iteration_N[start:], self.microbatch_N[start:], values)

    def joined(self, after: RowBlock) -> RowBlock:
        """These rows, then those."""
        if not len(self.iteration_N):
            return after
        names = dict.fromkeys([*self.values, *after.values])
        return RowBlock(
            np.concatenate([self.iteration_N, after.iteration_N]),
            np.concatenate([self.microbatch_N, after.microbatch_N]),
            {name: _joined_values(self, after, name) for name in names},
        )

    def near(self, furthest: int, window_iterations: int, rows: int) -> RowBlock:
        """The last rows not more than the window behind ``furthest``."""
        near_N = np.flatnonzero(self.iteration_N >= furthest - window_iterations)[-rows:]
        values = {name: (a[near_N], b[near_N], c[near_N]) for name, (a, b, c) in self.values.items()}
        return RowBlock(self.iteration_N[near_N], self.microbatch_N[near_N], values)


def conflicts(earlier: RowBlock, rows: RowBlock) -> Flags:
    """Which of ``rows`` report another value than the last one reported for the same iteration."""
    both = earlier.joined(rows)
    found_N = np.zeros(len(both.iteration_N), np.bool_)
    order_N = np.lexsort((both.microbatch_N, both.iteration_N))
    for high_N, low_N, present_N in both.values.values():
        at_N = order_N[present_N[order_N]]
        same_N = np.diff(both.iteration_N[at_N]) == 0
        same_N &= np.diff(both.microbatch_N[at_N]) == 0
        other_N = (high_N[at_N][1:] != high_N[at_N][:-1]) | (low_N[at_N][1:] != low_N[at_N][:-1])
        found_N[at_N[1:][same_N & other_N]] = True
    return found_N[len(earlier.iteration_N) :]


def _joined_values(
    first: RowBlock, second: RowBlock, name: str
) -> tuple[NDArray[np.uint64], NDArray[np.uint64], Flags]:
    parts = [block.values.get(name) or _no_values(len(block.iteration_N)) for block in (first, second)]
    (high_a, low_a, present_a), (high_b, low_b, present_b) = parts
    return (
        np.concatenate([high_a, high_b]),
        np.concatenate([low_a, low_b]),
        np.concatenate([present_a, present_b]),
    )


def _no_values(length: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64], Flags]:
    return np.zeros(length, np.uint64), np.zeros(length, np.uint64), np.zeros(length, np.bool_)


def _compact(code_N: Ints) -> tuple[Ints, Ints]:
    """The distinct codes, ascending, and each code as its place among them."""
    if not len(code_N):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    low, high = int(code_N.min()), int(code_N.max())
    if low == high:
        return np.array([low]), np.zeros(len(code_N), np.int64)
    if high - low > 4 * len(code_N) + 65536:
        codes, place_N = np.unique(code_N, return_inverse=True)
        return codes, place_N.astype(np.int64)
    is_used = np.zeros(high - low + 1, np.bool_)
    is_used[code_N - low] = True
    return np.flatnonzero(is_used) + low, (np.cumsum(is_used) - 1)[code_N - low]
