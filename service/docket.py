"""Which runs wait for a verdict, in which order, and how many of them get one before the worker looks up.

A verdict costs milliseconds and a commit, so thousands of runs (or of made-up names) take minutes.
The worker must meanwhile read on, say how it is and stop when told to: it judges for a slice of time
and goes on where it was, the run that has waited longest first.

A run whose first value that is no number has just come goes before all others and waits for no turn: it is
what people are woken for. Once only, since a run that has turned NaN brings more with every record.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

import numpy as np

from ingest.blocks import RecordBatch

_MAX_ALARMED = 100_000
"""Runs remembered as having had their turn; beyond, made-up names have come, and they are forgotten."""


class Docket:
    """The runs whose newest verdict is not stored, and those whose stored one leaves something out."""

    def __init__(self, left_open: Iterable[str] = ()) -> None:
        self._due: dict[str, None] = {}
        self._open = dict.fromkeys(left_open)
        self._urgent: dict[str, None] = {}
        self._alarmed: set[str] = set()

    @property
    def runs(self) -> AbstractSet[str]:
        """All that wait for something."""
        return self._due.keys() | self._open.keys()

    @property
    def has_due(self) -> bool:
        """Whether any run has news that no verdict knows."""
        return bool(self._due)

    @property
    def is_urgent(self) -> bool:
        """Whether a run should not wait until it is time."""
        return bool(self._urgent)

    def hear(self, batch: RecordBatch) -> None:
        """Records came; a run that has its first value that is no number is urgent."""
        for run in sorted(_alarming(batch) - self._alarmed):
            if len(self._alarmed) >= _MAX_ALARMED:
                self._alarmed.clear()
            self._alarmed.add(run)
            self._urgent[run] = None

    def add(self, runs: Iterable[str]) -> None:
        """These have news; who waits already keeps its place, behind what is urgent."""
        for run in runs:
            self._due.setdefault(run)
        first = {run: None for run in self._urgent if run in self._due}
        self._due, self._urgent = first | self._due, {}

    def due(self, until_s: float) -> Iterator[str]:
        """Runs with news: one at least, and more until the monotonic clock is at ``until_s``."""
        yield from _while_time_lasts(self._due, until_s)

    def open(self, until_s: float) -> Iterator[str]:
        """Runs to be judged as if ended, in the same way."""
        yield from _while_time_lasts(self._open, until_s)

    def judged(self, run: str) -> None:
        """Its newest verdict is stored, without what is not complete."""
        del self._due[run]
        self._open.setdefault(run)

    def settled(self, run: str) -> None:
        """Its newest verdict is stored, with all there is."""
        del self._open[run]


def _alarming(batch: RecordBatch) -> set[str]:
    """Runs of which a number is none, or of which a count of such numbers is not zero."""
    found: set[str] = set()
    for name, column in batch.numbers.items():
        is_bad_N = column.values_N > 0 if name.startswith("nonfinite_") else ~np.isfinite(column.values_N)
        is_bad_N &= column.present_N
        if is_bad_N.any():
            found.update(batch.runs[at] for at in np.unique(batch.run_N[is_bad_N]))
    return found


def _while_time_lasts(runs: Iterable[str], until_s: float) -> Iterator[str]:
    for run in list(runs):
        yield run
        if time.monotonic() >= until_s:
            return
