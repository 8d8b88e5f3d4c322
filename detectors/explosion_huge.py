"""Losses that no objective reaches: finite in name only, because the type still holds them.

Such a value is no matter of baselines or of signs: an objective that is maximised may fall to -3e29 at one
step, and a fit that diverged at once stands at 6e24 from its first record on. Axes: K points of a curve.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from .base import State
from .curve import Curve
from .evidence import Certainty, Direction, Evidence, Pattern
from .explosion_stream import DETECTOR

HUGE = 1e18
"""Magnitude beyond any sum of losses: a billion tokens of a nat each are 1e9, squared 1e18."""
FROM_START = 3
"""Points in a row from the first one on: one alone may be what a loop prints before it has a loss."""


@dataclass(slots=True)
class HugeLoss:
    """Looks out for the first huge value of one loss."""

    last_clean: int | None = None
    first: int = 0
    run: int = 0
    is_told: bool = False

    def update(self, curve: Curve, attempt: int) -> list[Evidence]:
        """Take the next points; the evidence, once."""
        huge_K = np.abs(curve.value_K) >= HUGE
        if self.is_told or not (self.run or huge_K.any()):
            clean_K = np.isfinite(curve.value_K)
            if clean_K.any():
                self.last_clean = int(curve.iteration_K[len(clean_K) - 1 - int(clean_K[::-1].argmax())])
            return []
        points = zip(curve.iteration_K.tolist(), curve.value_K.tolist(), huge_K.tolist(), strict=True)
        for iteration, value, is_huge in points:
            if not is_huge:
                self.run = 0
                self.last_clean = iteration if np.isfinite(value) else self.last_clean
                continue
            self.first = self.first if self.run else iteration
            self.run += 1
            if self.last_clean is not None or self.run >= FROM_START:
                self.is_told = True
                return [self._evidence(curve.metric, value, iteration, attempt)]
        return []

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return asdict(self)

    def _evidence(self, metric: str, value: float, now: int, attempt: int) -> Evidence:
        return Evidence(
            detector=DETECTOR,
            key=f"{metric}/huge",
            pattern=Pattern.SHARP_DEGRADE,
            certainty=Certainty.CONFIRMED,
            metric=metric,
            attempt=attempt,
            iteration=self.first,
            first_bad=self.first,
            last_clean=self.last_clean,
            alarm_iteration=now,
            statistic=abs(value),
            threshold=HUGE,
            direction=Direction.UP if value > 0 else Direction.DOWN,
            detail={"peak": value},
        )
