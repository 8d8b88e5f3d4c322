"""A log too short to know its pace, in which the last steps all take longer than the first ones.

The pace of a run is known after 64 steps (`pace_fold`); an excerpt of a dozen records, cut out because steps
had become slow, never gets there. Where every later step takes longer than every earlier one, by more than
either side spreads, that is told as a note: too little for an incident. Axes: K step times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from ingest.blocks import Floats, Ints

from . import pace_fold as pace
from .base import State
from .evidence import Annotation, Finding, Json
from .medians import median

LONGEST = pace.WARM * pace.MINI
"""Steps from which on the pace is known, and judged there."""
LEAST_SIDE = 2
"""Steps on either side: one slow step alone is an evaluation or a checkpoint."""
LEAST_STEPS = 5
"""Of four in a row each third falls apart into two and two by chance."""
LEAST_RISE = 1.04
"""The ratio of their medians: below lies what placement and a neighbour's traffic do."""
GAP_TO_SPREAD = 2.0
"""The gap between the sides over what the wider of them spans: Gaussian noise of any size gets there in 0.8 %
of logs of 5 steps and 0.03 % of 8."""


@dataclass(slots=True)
class ShortPace:
    """The step times of one run, until there are too many."""

    times_s: list[float] = field(default_factory=list)
    iterations: list[int] = field(default_factory=list)

    def take(self, time_T: Floats, iteration_T: Ints, marked_T: Ints) -> None:
        """Keep the next step times (NaN is none), anew from the last mark on: it explains another pace."""
        marks = np.flatnonzero(marked_T)
        if len(marks):
            self.times_s, self.iterations = [], []
            time_T, iteration_T = time_T[marks[-1] :], iteration_T[marks[-1] :]
        if len(self.times_s) <= LONGEST:
            at_K = np.flatnonzero(np.isfinite(time_T))[: LONGEST + 1 - len(self.times_s)]
            self.times_s += time_T[at_K].tolist()
            self.iterations += iteration_T[at_K].tolist()

    def slower(self, attempt: int) -> list[Finding]:
        """The note that steps became slower, if they did."""
        if not LEAST_STEPS <= len(self.times_s) < LONGEST:
            return []
        time_K = np.array(self.times_s)
        highest_K, lowest_K = np.maximum.accumulate(time_K), np.minimum.accumulate(time_K[::-1])[::-1]
        gap_K = lowest_K[LEAST_SIDE : 1 - LEAST_SIDE] - highest_K[LEAST_SIDE - 1 : -LEAST_SIDE]
        at = int(gap_K.argmax()) + LEAST_SIDE
        before_K, after_K = time_K[:at], time_K[at:]
        spread = max(float(np.ptp(before_K)), float(np.ptp(after_K)))
        before, after = median(before_K), median(after_K)
        if not before > 0 or after < LEAST_RISE * before or gap_K[at - LEAST_SIDE] < GAP_TO_SPREAD * spread:
            return []
        detail: dict[str, Json] = {
            "metric": "step_time_s",
            "before_s": before,
            "after_s": after,
            "relative_shift": math.expm1(math.log(after / before)),
        }
        iteration = self.iterations[at]
        return [
            Annotation(kind="slower_steps", key="short", attempt=attempt, iteration=iteration, detail=detail)
        ]

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {"times_s": list(self.times_s), "iterations": list(self.iterations)}

    @classmethod
    def restored(cls, state: State) -> ShortPace:
        """Continue from what `snapshot` gave."""
        return cls(list(state["times_s"]), list(state["iterations"]))
