"""Whether records come later than alignment can wait for them.

Axes: N records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .blocks import Ints, RecordBatch
from .columns import distinct


@dataclass(slots=True)
class _Attempt:
    """First and furthest iteration of one attempt so far."""

    first: int
    furthest: int


class LatenessWatch:
    """Follows records in their order and tells which batches hold one that comes too late.

    A record is late when it is more than the bound behind the furthest of its run and attempt, or
    when a later attempt is already further than the bound from its start.
    """

    def __init__(self, lateness_iterations: int) -> None:
        self._bound = lateness_iterations
        self._attempts: dict[tuple[str, int], _Attempt] = {}
        self._latest: dict[str, int] = {}

    def is_late(self, batch: RecordBatch) -> bool:
        """Take the next batch; whether a record in it is late."""
        late = False
        for code in distinct(batch.run_N):
            run_N = np.flatnonzero(batch.run_N == code)
            for attempt in distinct(batch.attempt_N[run_N]):
                at_N = run_N[batch.attempt_N[run_N] == attempt]
                late |= self._take(batch.runs[code], attempt, batch.iteration_N[at_N])
        return late

    def _take(self, run: str, attempt: int, iteration_N: Ints) -> bool:
        known = self._attempts.setdefault((run, attempt), _Attempt(int(iteration_N[0]), int(iteration_N[0])))
        late, furthest = False, max(known.furthest, int(iteration_N.max()))
        if iteration_N[0] < known.furthest or (np.diff(iteration_N) < 0).any():
            furthest_N = np.maximum(np.maximum.accumulate(iteration_N), known.furthest)
            late = bool((iteration_N < furthest_N - self._bound).any())
        latest = self._latest.get(run, attempt)
        if attempt < latest:
            later = self._attempts[run, latest]
            late |= later.furthest > later.first + self._bound
        known.furthest = furthest
        self._latest[run] = max(latest, attempt)
        return late
