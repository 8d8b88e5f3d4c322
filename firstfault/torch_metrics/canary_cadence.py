"""When a canary runs: at iterations that all ranks agree on without a word, as often as its cost allows.

The interval is a power of two of iterations and the canary runs at its multiples, so that two ranks which
measured different costs still meet at every iteration of the slower one. The first runs fall on fixed
iterations, where the cost is measured. Which batch it takes follows from the iteration alone.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median

FIRST, SECOND = 16, 32
"""Iterations of the first two runs: after the warm-up of kernels and allocators, the second without its
own."""
LONGEST = 1 << 16
"""A canary that would come less often than every 65536 iterations finds nothing in time."""
_STEPS = 15
"""Step times of which the median is taken: one that waited for a checkpoint does not move it."""


@dataclass(slots=True)
class Cadence:
    """Counts what canaries cost, and says when the next is due.

    >>> cadence = Cadence(budget_share=0.01)
    >>> [one for one in range(100) if cadence.is_due(one)]
    [16, 32]
    >>> for _ in range(3): cadence.step_took(0.1)
    >>> for _ in range(2): cadence.canary_took(0.2)
    >>> cadence.every
    256
    """

    budget_share: float
    fixed: int | None = None
    """Every how many iterations, where a person chose it."""
    every: int = 0
    """0 until the cost is known."""
    _costs_s: list[float] = field(default_factory=list)
    _steps_s: deque[float] = field(default_factory=lambda: deque(maxlen=_STEPS))

    def is_due(self, iteration: int) -> bool:
        """Whether a canary runs before ``iteration``."""
        if self.fixed is not None:
            return iteration % self.fixed == 0
        if iteration in (FIRST, SECOND):
            return True
        return self.every > 0 and iteration > SECOND and iteration % self.every == 0

    def step_took(self, seconds: float) -> None:
        """An iteration without a canary took so long."""
        self._steps_s.append(seconds)

    def canary_took(self, seconds: float) -> None:
        """A canary took so long; from the second on the cost is known."""
        self._costs_s = [*self._costs_s[-2:], seconds]
        # The least of the last three: the first is slow, a later one may have waited for something else.
        if len(self._costs_s) > 1 and self._steps_s:
            self.every = self.affordable(min(self._costs_s), median(self._steps_s))

    def affordable(self, cost_s: float, step_s: float) -> int:
        """The least power of two of iterations at which ``cost_s`` stays inside the budget."""
        share = cost_s / max(step_s * self.budget_share, 1e-9)
        return min(LONGEST, 1 << max(0, math.ceil(math.log2(max(share, 1.0)))))


def is_fixed_batch(iteration: int) -> bool:
    """Whether the canary of ``iteration`` takes the fixed batch; about every second does, at any cadence.

    It must follow from the iteration alone: ranks of different cadence meet at some of them only.

    >>> [is_fixed_batch(64 * count) for count in range(1, 9)]
    [True, True, False, True, True, False, False, True]
    """
    if iteration == 0:
        return True
    odd = iteration // (iteration & -iteration)
    return odd % 4 == 1
