"""How high a cumulative sum must be, so that healthy ranks alarm at a stated rate.

The average run length of one one-sided sum of independent, standard normal scores with reference value k
and gate h is (exp(2kb) - 2kb - 1) / (2k²) with b = h + 1.166: Siegmund, Sequential Analysis (1985), eq. 2.62
at drift -k. Streams are many, so each gets its share of the rate (Bonferroni).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ingest.blocks import Floats, Ints

from . import peer_tests as on_tests

OVERSHOOT = 1.166
"""By how much a sum of normal scores passes its gate on average, on both ends together."""
DIRECTIONS = 2
SUMS = 4
"""Sums of one stream: up and down, fast and slow."""


def run_length(gate: float, reference: float) -> float:
    """Average number of points to a false alarm of one sum.

    >>> round(run_length(10.0, 0.5))  # one alarm in 140 000 points
    141347
    """
    drift = 2.0 * reference * (gate + OVERSHOOT)
    return (math.exp(drift) - drift - 1.0) / (2.0 * reference * reference)


@lru_cache(maxsize=65536)
def gate_for(streams: int, reference: float, iterations: float) -> float:
    """The gate at which ``streams`` healthy streams alarm once in so many ``iterations``, all sums together.

    >>> [round(gate_for(count, 0.5, 1e5), 1) for count in (1, 400, 60_000)]
    [11.0, 17.0, 22.0]
    """
    wanted = iterations * streams * SUMS
    low, high = 0.0, 1000.0
    for _ in range(60):  # halves the range to less than the last bit
        middle = 0.5 * (low + high)
        # Compared as logarithms: exp(2kb) alone leaves the range of floats.
        drift = 2.0 * reference * (middle + OVERSHOOT)
        reached = drift + math.log1p(-(drift + 1.0) * math.exp(-drift)) - math.log(2.0 * reference**2)
        low, high = (middle, high) if reached < math.log(wanted) else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class Gates:
    """What the tests of `peer_fold` ask of a score at each position."""

    fast_T: Floats
    slow_T: Floats
    step_T: Floats
    """Probability of a wild step in one direction of one healthy stream; 0 for no such test."""

    @classmethod
    def never(cls, positions: int) -> Gates:
        """Gates that nothing passes."""
        never_T = np.full(positions, np.inf)
        return cls(never_T, never_T, np.zeros(positions))


def gates_of(streams_T: Ints, iterations: float, *, per_step: float = math.inf) -> Gates:
    """The gates at each row, given how many streams there are by then.

    ``iterations`` are those to one false alarm of the sums, ``per_step`` those to one of single steps.
    """
    return Gates(
        _gates(streams_T, on_tests.FAST, iterations),
        _gates(streams_T, on_tests.SLOW, iterations),
        1.0 / (per_step * DIRECTIONS * np.maximum(streams_T, 1)),
    )


def _gates(streams_T: Ints, reference: float, iterations: float) -> Floats:
    if len(streams_T) and streams_T[0] == streams_T[-1]:  # they only grow
        return np.full(len(streams_T), gate_for(max(int(streams_T[0]), 1), reference, iterations))
    counts, at_T = np.unique(streams_T, return_inverse=True)
    gates = [gate_for(max(int(count), 1), reference, iterations) for count in counts]
    return np.asarray(np.array(gates, np.float64)[at_T])
