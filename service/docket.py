"""Which runs wait for a verdict, in which order, and how many of them get one before the worker looks up.

A verdict costs milliseconds and a commit, so thousands of runs (or of made-up names) take minutes.
The worker must meanwhile read on, say how it is and stop when told to: it judges for a slice of time
and goes on where it was, the run that has waited longest first.

A run of which something alarming has just come (`urgency`) goes before all others and waits for no turn.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

from .urgency import Urgency


class Docket:
    """The runs whose newest verdict is not stored, and those whose stored one leaves something out."""

    def __init__(self, left_open: Iterable[str] = ()) -> None:
        self._due: dict[str, None] = {}
        self._open = dict.fromkeys(left_open)
        self.urgency = Urgency()
        """What came of the runs that must not wait."""

    @property
    def runs(self) -> AbstractSet[str]:
        """All that wait for something."""
        return self._due.keys() | self._open.keys()

    @property
    def has_due(self) -> bool:
        """Whether any run has news that no verdict knows."""
        return bool(self._due)

    def add(self, runs: Iterable[str]) -> None:
        """These have news; who waits already keeps its place, behind what is urgent."""
        for run in runs:
            self._due.setdefault(run)
        first = {run: None for run in self.urgency.runs if run in self._due}
        self._due = first | self._due

    def due(self, until_s: float) -> Iterator[str]:
        """Runs with news: one at least, and more until the monotonic clock is at ``until_s``."""
        yield from _while_time_lasts(self._due, until_s)

    def open(self, until_s: float) -> Iterator[str]:
        """Runs to be judged as if ended, in the same way."""
        yield from _while_time_lasts(self._open, until_s)

    def judged(self, run: str) -> None:
        """Its newest verdict is stored, without what is not complete."""
        del self._due[run]
        self.urgency.judged(run)
        self._open.setdefault(run)

    def settled(self, run: str) -> None:
        """Its newest verdict is stored, with all there is."""
        del self._open[run]


def _while_time_lasts(runs: Iterable[str], until_s: float) -> Iterator[str]:
    for run in list(runs):
        yield run
        if time.monotonic() >= until_s:
            return
