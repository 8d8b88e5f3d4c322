"""Skipped steps close to each other: one annotation, and a count of those at which the scale did not fall."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .evidence import Annotation, Json


@dataclass(slots=True)
class SkipSeries:
    """Explained skips of one kind, each at most some iterations after the one before."""

    kind: str
    first: int
    last: int
    last_ordinal: int
    skips: int = 0
    stuck: int = 0
    """Skips since the scale last moved."""
    scale_before: float = math.nan
    scale_after: float = math.nan
    told: int = 0

    def add(self, iteration: int, ordinal: int, scale: float, next_scale: float, *, may_stick: bool) -> None:
        """Another skip, at ``scale``; ``may_stick`` says that a fall was due and did not come."""
        is_stuck = may_stick and (self.skips == 0 or scale == self.scale_after)
        self.stuck = self.stuck + 1 if is_stuck else 0
        self.skips += 1
        self.last, self.last_ordinal = iteration, ordinal
        self.scale_after = scale if math.isnan(next_scale) else next_scale

    def annotation(self, attempt: int) -> Annotation:
        """The series as a verdict tells it."""
        detail: dict[str, Json] = {
            "skips": self.skips,
            "last_iteration": self.last,
            "scale_before": _known(self.scale_before),
            "scale_after": _known(self.scale_after),
        }
        return Annotation(
            kind=self.kind, key=str(self.first), attempt=attempt, iteration=self.first, detail=detail
        )


def _known(scale: float) -> float | None:
    return None if math.isnan(scale) else scale
