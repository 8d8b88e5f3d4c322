"""How rarely a right reduction may be called wrong, and the tolerance that follows.

The noise of a sum is learned from the median of some residuals, so that the tolerance is itself a random
number: the chance that a healthy residual lies beyond it is taken over both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from ingest.bounds import check_bounds

LEARNED = 32
"""Residuals that the noise is learned from."""
MEDIAN_OF_ABSOLUTE = 0.6745
"""Median of the magnitude of a standard normal variable."""
_STEPS = 400
"""Points of the integral over the median: twice as many change the rate by less than one per cent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearChecksumConfig:
    """The error rates of the collective's linear checksum."""

    checks_per_alarm: float = 7e9
    """Right reductions to one that is called wrong where rounding is Gaussian and its size learned from 32:
    16 standard deviations. A hundred buckets checked each iteration are 70 million iterations."""
    checks_per_confirmation: float = 4e7
    """Right reductions to one that is far enough off to be confirmed by itself, where noise has tails as
    heavy as Student's t of 4 degrees of freedom: 124 standard deviations. Nearer ones must be two of 8."""

    def __post_init__(self) -> None:
        check_bounds(self, {"checks_per_alarm": (1e3, 1e15), "checks_per_confirmation": (1e3, 1e12)})

    @property
    def sigmas(self) -> float:
        """The tolerance in standard deviations of the learned noise."""
        return _sigmas(self.checks_per_alarm)

    @property
    def far(self) -> float:
        """How many times the tolerance confirms by itself."""
        return max(1.0, _far_sigmas(self.checks_per_confirmation) / self.sigmas)


def chance(sigmas: float) -> float:
    """That a normal residual exceeds so many standard deviations, these learned from the median of 32.

    The median of magnitudes has as its rank a Beta variable; its quantile is that of a half-normal.

    >>> round(1 / chance(16.0) / 1e9, 1)
    7.3
    """
    half = LEARNED / 2 + 0.5
    scale = 2 * math.lgamma(half) - math.lgamma(2 * half)
    total = 0.0
    for step in range(_STEPS):
        rank = (step + 0.5) / _STEPS
        weight = math.exp((half - 1) * math.log(rank * (1 - rank)) - scale) / _STEPS
        learned = NormalDist().inv_cdf((1 + rank) / 2) / MEDIAN_OF_ABSOLUTE
        total += weight * math.erfc(sigmas * learned / math.sqrt(2))
    return total


@lru_cache(maxsize=64)
def _sigmas(checks_per_alarm: float) -> float:
    low, high = 1.0, 1e3
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) * checks_per_alarm > 1 else (low, middle)
    return round(high, 3)


@lru_cache(maxsize=64)
def _far_sigmas(checks_per_confirmation: float) -> float:
    """Where Student's t of 4 degrees of freedom is exceeded so rarely; its distribution has a closed form."""
    low, high = 1.0, 1e6
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        angle = math.atan(middle / 2)
        beyond = 1 - math.sin(angle) * (1 + math.cos(angle) ** 2 / 2)
        low, high = (middle, high) if beyond * checks_per_confirmation > 1 else (low, middle)
    return high
