"""Losses and gradient norms that are as good as nothing: no fault by themselves, and worth a look.

A loss of 1e-6 is memorised data, labels that are not there, a benchmark on constants, or a model that found a
hole in the objective; a gradient norm of exactly 0 is a step that changes nothing, or was not computed. Each
is told once, as an annotation. Axes: K points of a curve.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from .base import State
from .curve import Curve
from .evidence import Annotation, Json

NOTHING = 1e-5
"""Loss per token or sample below which nothing real is left to learn."""
SOMETHING = 1e-2
"""Loss before it from which on a fall to exactly 0 is one; losses that begin at 0 are not computed yet."""


@dataclass(slots=True)
class Vanished:
    """Looks out for the first such value of one curve."""

    is_loss: bool
    greatest: float = 0.0
    """The greatest value before."""
    is_told: bool = False

    def update(self, curve: Curve, attempt: int) -> list[Annotation]:
        """Take the next points; the annotation, once."""
        if self.is_told or not len(curve):
            return []
        value_K = curve.value_K
        if np.fmin.reduce(value_K) >= NOTHING:  # mostly: then the greatest is all there is to learn
            self.greatest = max(self.greatest, float(np.fmax.reduce(value_K)))
            return []
        before_K = np.maximum.accumulate(np.concatenate(([self.greatest], np.nan_to_num(value_K, nan=0.0))))
        self.greatest = float(before_K[-1])
        if self.is_loss:
            gone_K = (value_K > 0) & (value_K < NOTHING) | (value_K == 0) & (before_K[:-1] >= SOMETHING)
        else:
            gone_K = value_K == 0
        if not gone_K.any():
            return []
        self.is_told = True
        at = int(gone_K.argmax())
        detail: dict[str, Json] = {
            "metric": curve.metric,
            "value": float(value_K[at]),
            "greatest_before": float(before_K[at]),
        }
        iteration = int(curve.iteration_K[at])
        told = Annotation(
            kind="vanished", key=curve.metric, attempt=attempt, iteration=iteration, detail=detail
        )
        return [told]

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return asdict(self)
