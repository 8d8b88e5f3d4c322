"""Shares of cases with their confidence intervals. Standard library only."""

from __future__ import annotations

import math
from dataclasses import dataclass

_Z = 1.959963984540054
"""The 97.5 % point of the normal distribution: intervals of 95 %."""


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` of ``total`` cases."""

    count: int
    total: int

    @property
    def value(self) -> float:
        """The share itself; NaN of no cases."""
        return self.count / self.total if self.total else math.nan

    def interval(self) -> tuple[float, float]:
        """The 95 % interval of Wilson's score, which is right for shares near 0 and 1 too.

        Source: Wilson, Probable inference, the law of succession, and statistical inference, JASA 22
        (1927), the roots of (p − x)² = z² p (1 − p) / n.

        >>> low, high = Share(5, 10).interval()
        >>> round(low, 3), round(high, 3)
        (0.237, 0.763)
        """
        if not self.total:
            return (0.0, 1.0)
        n, p = self.total, self.value
        centre = (p + _Z * _Z / (2 * n)) / (1 + _Z * _Z / n)
        half = _Z / (1 + _Z * _Z / n) * math.sqrt(p * (1 - p) / n + _Z * _Z / (4 * n * n))
        return (max(0.0, centre - half), min(1.0, centre + half))

    def text(self) -> str:
        """In percent, with interval and counts.

        >>> Share(5, 10).text()
        '50.0 % (23.7–76.3; 5 of 10)'
        """
        if not self.total:
            return "no cases"
        low, high = self.interval()
        return f"{100 * self.value:.1f} % ({100 * low:.1f}–{100 * high:.1f}; {self.count} of {self.total})"
