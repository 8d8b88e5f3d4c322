"""Sketches of a gradient that was clipped before the second one: a convention that looks like a wrong sum.

Clipping multiplies every gradient by min(1, c / norm). While the norm stays below c nothing shows; at the
first step that is clipped the result is too small on all ranks alike, and so it would be if the collective
had gone wrong.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .linear_fit import Fit, Sums, clip_norm_of

NEAR = 1e-3
"""Relative difference up to which two clipping norms are the same one: logs print norms with four digits."""
ROUND = 2e-4
"""Relative distance from a number of two digits up to which a clipping norm is one that a person chose. A
wrong sum is so near to one of the 90 in a decade by chance once in sixty."""
APART = 0.01
"""Relative difference of two norms that makes them two tests: equal ones would give the same twice."""


@dataclass(slots=True)
class ClipWatch:
    """What is known of clipping between the sketches, while the relation knows of none."""

    greatest_norm: float = 0.0
    """The greatest gradient norm at which the sum was right: none below it was clipped."""
    found: list[list[float]] = field(default_factory=list)
    """(clipping norm, gradient norm) of the wrong sums that clipping would explain, the first one alone."""

    def note_right(self, sums: Sums) -> None:
        """A right sum: nothing was clipped at its norm."""
        if not math.isnan(sums.norm):
            self.greatest_norm = max(self.greatest_norm, sums.norm)

    def explains(self, fit: Fit, sums: Sums) -> bool:
        """Whether clipping may have made a wrong sum; without a norm nobody can tell."""
        clip_norm = clip_norm_of(sums, fit)
        if math.isnan(sums.norm):
            return _is_smaller(fit, sums)
        return clip_norm * (1 + NEAR) >= self.greatest_norm and _is_chosen(clip_norm)

    def proved(self, fit: Fit, sums: Sums) -> float | None:
        """Take a wrong sum; the clipping norm where it is the second one that the same norm explains."""
        clip_norm = clip_norm_of(sums, fit)
        if not clip_norm * (1 + NEAR) >= self.greatest_norm:
            return None
        for earlier, norm in self.found:
            if _is_near(clip_norm, earlier, NEAR) and not _is_near(sums.norm, norm, APART):
                return _chosen(clip_norm)
        self.found = [*self.found[-1:], [clip_norm, sums.norm]]
        return None


def _chosen(clip_norm: float) -> float:
    """The number of two digits that it is but for rounding, else itself."""
    near = float(f"{clip_norm:.2g}")
    return near if _is_near(clip_norm, near, ROUND) else clip_norm


def _is_chosen(clip_norm: float) -> bool:
    return _is_near(clip_norm, float(f"{clip_norm:.2g}"), ROUND)


def _is_smaller(fit: Fit, sums: Sums) -> bool:
    expected = fit.expected(sums)
    return expected != 0.0 and 0.0 < fit.result(sums) / expected < 1.0


def _is_near(one: float, other: float, tolerance: float) -> bool:
    return abs(one - other) <= tolerance * max(abs(one), abs(other))
