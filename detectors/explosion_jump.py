"""Jumps of a few points that recover, told from noise about a detrended baseline.

While a loss falls fast, the spread about its median of 32 points is mostly the fall itself, and a spike of a
third of the level hides in it. Here the baseline is the median of the 8 points before, over which no curve
falls far, and the noise comes from differences of neighbours, which a trend hardly touches. A jump is a note
and no more: growth that stays is watched by `explosion_fold`. Axes: K points of a curve, C candidates.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ingest.blocks import Floats, Ints

from .base import State
from .curve import Curve
from .evidence import Annotation, Json
from .medians import median, row_medians

RISE = 0.3
"""Of the level: the least spikes that people remark on in their logs reach 1.3 times it."""
SIGMAS = 10.0
"""Of the noise: with Student t noise of 4 degrees one point in 10 000 passes 8, one in 30 000 this."""
BASE = 8
"""Points whose median is the level."""
KNOWN = 32
"""Points before anything is judged, whose differences are the noise."""
BACK = 3
"""Points in a row below a third of the rise that are a recovery."""
LONGEST = 16
"""Points within which it must come; what lasts longer is growth, and suspected as such."""
LEAST_LEVEL = 0.1
"""A loss nearer to zero is judged as if it stood here: a third of nothing is nothing."""
NORMAL = 0.9539
"""Median difference of two neighbours under Gaussian noise, in its standard deviations."""
MAX_TOLD = 20
"""Jumps told of one curve: a curve that goes on jumping is noisy, and saying so once is enough."""


@dataclass(slots=True)
class Jumps:
    """Looks out for jumps of one loss."""

    values: list[float] = field(default_factory=list)
    """The last `KNOWN` finite values."""
    start: int = 0
    base: float = 0.0
    rise: float = 0.0
    """The rise of the jump that is open; 0 without one."""
    peak: float = 0.0
    points: int = 0
    lows: int = 0
    told: list[list[int]] = field(default_factory=list)
    """Where each jump that was told began, and where it was told."""

    def update(self, curve: Curve, attempt: int) -> list[tuple[int, Annotation]]:
        """Take the next points; the jumps that are over, each with the iteration that says so."""
        finite_K = np.isfinite(curve.value_K)
        value_K, iteration_K = curve.value_K, curve.iteration_K
        if not finite_K.all():
            value_K, iteration_K = value_K[finite_K], iteration_K[finite_K]
        if len(self.told) == MAX_TOLD or not len(value_K):
            return []
        kept = len(self.values)
        all_K = np.concatenate((np.array(self.values), value_K))
        candidate_C = np.append(_candidates(all_K), len(all_K))
        found: list[tuple[int, Annotation]] = []
        at = kept
        while len(self.told) < MAX_TOLD:
            if not self.rise:
                at = int(candidate_C[np.searchsorted(candidate_C, at)])
            if at >= len(all_K):
                break
            if not self.rise:
                self._open(all_K, at, int(iteration_K[at - kept]))
            elif self._is_over(float(all_K[at])):
                found += self._close(curve.metric, attempt, int(iteration_K[at - kept]))
            at += 1
        self.values = all_K[-KNOWN:].tolist()
        return found

    def has_told(self, iteration: int, now: int) -> bool:
        """Whether a spike that began at ``iteration`` was told as a jump by the time of ``now``."""
        return any(start <= iteration <= told_at <= now for start, told_at in self.told)

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return asdict(self)

    @classmethod
    def restored(cls, state: State) -> Jumps:
        """Continue from what `snapshot` gave."""
        return cls(**{**state, "values": list(state["values"]), "told": [list(one) for one in state["told"]]})

    def _open(self, all_K: Floats, at: int, iteration: int) -> None:
        self.base = median(all_K[at - BASE : at])
        self.start, self.peak, self.points, self.lows = iteration, float(all_K[at]), 1, 0
        self.rise = self.peak - self.base

    def _is_over(self, value: float) -> bool:
        """Whether the open jump ends with this point, back or not."""
        self.points += 1
        self.peak = max(self.peak, value)
        self.lows = self.lows + 1 if 3 * (value - self.base) < self.rise else 0
        return self.lows == BACK or self.points >= LONGEST

    def _close(self, metric: str, attempt: int, now: int) -> list[tuple[int, Annotation]]:
        self.rise = 0.0
        if self.lows < BACK:
            return []
        self.told.append([self.start, now])
        detail: dict[str, Json] = {
            "metric": metric,
            "baseline": self.base,
            "peak": self.peak,
            "peak_ratio": self.peak / self.base if self.base > 0 else None,
            "duration_points": self.points - BACK,
        }
        key = f"{metric}/jump/{len(self.told)}"
        note = Annotation(
            kind="spike_recovered", key=key, attempt=attempt, iteration=self.start, detail=detail
        )
        return [(now, note)]


def _candidates(value_K: Floats) -> Ints:
    """The points that stand out of those before them."""
    if len(value_K) <= KNOWN:
        return np.empty(0, np.int64)
    point_K = value_K[KNOWN:]
    least_K = np.full(len(point_K), np.inf)
    for back in range(1, BASE + 1):  # a value that does not stand out of the least does not of the median
        np.minimum(least_K, value_K[KNOWN - back : len(value_K) - back], out=least_K)
    at_C = np.flatnonzero(point_K - least_K > RISE * np.maximum(np.abs(least_K), LEAST_LEVEL)) + KNOWN
    if not len(at_C):
        return at_C
    base_C = row_medians(sliding_window_view(value_K, BASE)[at_C - BASE])
    rise_C = value_K[at_C] - base_C
    is_high_C = rise_C > RISE * np.maximum(np.abs(base_C), LEAST_LEVEL)
    at_C, rise_C = at_C[is_high_C], rise_C[is_high_C]
    step_CK = np.abs(np.diff(sliding_window_view(value_K, KNOWN)[at_C - KNOWN], axis=1))
    return at_C[rise_C > SIGMAS * row_medians(step_CK) / NORMAL]
