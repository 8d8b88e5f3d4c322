"""What of arriving records must not wait: the first value that is no number, the first sums that differ.

A look at what comes, and no judgement: whatever is found here, detectors decide. All that depends on it is
how soon they are asked. A run is urgent once for each kind, since one that has gone wrong brings more with
every record; and only when every rank has reached the iteration, since a verdict looks at no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView
from typing import Protocol

import numpy as np

from ingest.blocks import ChecksumColumn, RecordBatch

_MOST = 100_000
"""Runs and metrics remembered; beyond, made-up names have come, and all are forgotten."""

Place = tuple[int, int]
"""Attempt and iteration."""
Sum = tuple[int, int]


class Aligner(Protocol):
    """What is asked of an attempt that is being aligned."""

    @property
    def attempt(self) -> int:
        """Its number."""
        ...

    def frontier(self) -> int | None:
        """The last iteration that every rank has reached."""
        ...


class Urgency:
    """The runs that should be judged before it is their turn."""

    def __init__(self) -> None:
        self._waiting: dict[str, Place] = {}
        self._ripe: set[str] = set()
        self._had: set[tuple[str, str]] = set()
        """Runs that were urgent, and why."""
        self._sums: dict[tuple[str, str], tuple[Place, Sum]] = {}
        """Of each run and checksum the newest iteration, and what its first rank reported there."""
        self._agreed: set[tuple[str, str]] = set()
        """Checksums that were the same on all ranks of an iteration; others may be those of shards."""
        self._differ: set[tuple[str, str]] = set()

    @property
    def runs(self) -> KeysView[str]:
        """Those that wait to be judged, the first one first."""
        return self._waiting.keys()

    def hear(self, batch: RecordBatch) -> None:
        """Records came."""
        if len(self._had) + len(self._sums) > _MOST:
            for one in (self._had, self._sums, self._agreed, self._differ):
                one.clear()
        for run, place in _not_numbers(batch):
            self._alarm(run, "number", place)
        for name, column in batch.checksums.items():
            for run, place in self._differing(batch, name, column):
                self._alarm(run, "checksum", place)

    def is_ripe(self, aligners: Callable[[str], Iterable[Aligner]]) -> bool:
        """Whether a run can be judged now; ``aligners`` gives its attempts, a KeyError where it has none."""
        for run, (attempt, iteration) in list(self._waiting.items()):
            try:
                fronts = {one.attempt: one.frontier() for one in aligners(run)}
            except KeyError:
                del self._waiting[run]  # it was let go, or never let in
                continue
            front = fronts.get(attempt)
            if front is not None and front >= iteration:
                self._ripe.add(run)
        return bool(self._ripe)

    def judged(self, run: str) -> None:
        """The run has a new verdict."""
        if run in self._ripe:
            self._ripe.discard(run)
            self._waiting.pop(run, None)

    def _alarm(self, run: str, why: str, place: Place) -> None:
        if (run, why) not in self._had:
            self._had.add((run, why))
            self._waiting.setdefault(run, place)

    def _differing(
        self, batch: RecordBatch, name: str, column: ChecksumColumn
    ) -> Iterator[tuple[str, Place]]:
        """Runs of which a rank reports another sum than the first one did, where all agreed before."""
        rows_N = np.flatnonzero(column.present_N)
        if not len(rows_N):
            return
        keys = (batch.iteration_N[rows_N], batch.attempt_N[rows_N], batch.run_N[rows_N])
        rows_N = rows_N[np.lexsort(keys)]
        run_N, attempt_N, iteration_N = (
            one[rows_N] for one in (batch.run_N, batch.attempt_N, batch.iteration_N)
        )
        is_new_N = np.ones(len(rows_N), bool)
        is_new_N[1:] = (np.diff(run_N) != 0) | (np.diff(attempt_N) != 0) | (np.diff(iteration_N) != 0)
        starts = np.flatnonzero(is_new_N)
        high_N, low_N = column.high_N[rows_N], column.low_N[rows_N]
        group_N = np.cumsum(is_new_N) - 1
        odd_N = (high_N != high_N[starts][group_N]) | (low_N != low_N[starts][group_N])
        is_odd = np.add.reduceat(odd_N, starts) > 0
        for at, start in enumerate(starts):
            key = batch.runs[int(run_N[start])], name
            place = int(attempt_N[start]), int(iteration_N[start])
            if self._is_news(key, place, (int(high_N[start]), int(low_N[start])), is_odd=bool(is_odd[at])):
                yield key[0], place

    def _is_news(self, key: tuple[str, str], place: Place, first: Sum, *, is_odd: bool) -> bool:
        """Whether the sums of an iteration differ where those before were the same."""
        if key in self._differ:
            return False
        known = self._sums.get(key)
        if known is None or place > known[0]:
            if known is not None:
                self._agreed.add(key)  # that iteration is over, and all of it was the same
            self._sums[key] = place, first
        elif place == known[0]:
            is_odd |= first != known[1]
        if is_odd:
            self._differ.add(key)
        return is_odd and key in self._agreed


def _not_numbers(batch: RecordBatch) -> Iterator[tuple[str, Place]]:
    """Runs with a value that is no number, or a count of such that is not zero, and where."""
    for name, column in batch.numbers.items():
        is_bad_N = column.values_N > 0 if name.startswith("nonfinite_") else ~np.isfinite(column.values_N)
        is_bad_N &= column.present_N
        if is_bad_N.any():
            rows_N = np.flatnonzero(is_bad_N)
            for run in np.unique(batch.run_N[rows_N]):
                row = rows_N[np.flatnonzero(batch.run_N[rows_N] == run)[0]]
                yield batch.runs[int(run)], (int(batch.attempt_N[row]), int(batch.iteration_N[row]))
