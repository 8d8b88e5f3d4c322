"""Where a learning rate comes back to a height that the run has trained well at: the next cycle of it.

A loss that goes up with it by less than its own level is that cycle, and comes down with it. A rate that goes
higher than ever before explains nothing: it is what makes runs explode.

Axes: T positions of a block, K points of the rate, U of them that rise, D that fall.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from ingest.blocks import Flags, IterationBlock

from .curve import curve_of

RISES = 1.5
"""By how much a rate must have risen over the trough before: less is rounding, or a smaller batch."""


@dataclass(slots=True)
class RateReturns:
    """Learns the highest rate so far and the last trough."""

    top: float = -np.inf
    trough: float = np.inf
    last: float = np.nan

    def of(self, block: IterationBlock) -> Flags:
        """At which of the T positions the rate rises, out of a trough, to where it has been before."""
        is_back_T = np.zeros(len(block), np.bool_)
        curve = curve_of(block, "lr")
        if curve is None:
            return is_back_T
        value_K, at_K = curve.finite
        if not len(value_K):
            return is_back_T
        before_K = np.concatenate(([self.last], value_K[:-1]))
        rises_U = np.flatnonzero(value_K > before_K)
        falls_D = np.flatnonzero(value_K < before_K)
        if len(rises_U):
            top_U = np.maximum.accumulate(np.concatenate(([self.top], value_K)))[rises_U]
            fell_U = np.searchsorted(falls_D, rises_U) - 1  # the last fall before each rise
            trough_K = np.concatenate((value_K[falls_D], [self.trough]))  # of -1, none: the one known before
            is_up_U = (value_K[rises_U] <= top_U) & (value_K[rises_U] >= RISES * trough_K[fell_U])
            is_back_T[at_K[rises_U[is_up_U]]] = True
        self.top, self.last = max(self.top, float(value_K.max())), float(value_K[-1])
        self.trough = float(value_K[falls_D[-1]]) if len(falls_D) else self.trough
        return is_back_T

    def snapshot(self) -> dict[str, float]:
        """The whole state as plain data."""
        return asdict(self)

    @classmethod
    def restored(cls, state: Mapping[str, float]) -> RateReturns:
        """What gave ``state``."""
        return cls(**state)
