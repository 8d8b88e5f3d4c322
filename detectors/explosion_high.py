"""Single high points in the explosion detector: how many make a suspicion, and when they were a spike.

Plain Python that numba can compile: see `kernels.Fold`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .explosion_baseline import (
    BASE,
    CREEPS,
    GATE,
    HIGH_RUN,
    IN_WINDOW,
    LOW_RUN,
    PEAK,
    PHASE,
    POINTS,
    SINCE,
    START,
    UNIT,
    WARM,
    Counts,
    Numbers,
)
from .explosion_growth import BACK, CLIMB, END, RING, SPIKE, SPIKE_RISE, SUSPECTED, SUSPICIOUS, freeze


def count_high(value: float, ints: Counts, floats: Numbers, ring: Numbers) -> int:
    """A high point: the third since the curve was last back makes a suspicion, or the second of a climb."""
    ints[HIGH_RUN] += 1
    ints[LOW_RUN] = 0
    floats[PEAK] = max(floats[PEAK], value)
    if ints[HIGH_RUN] < 3 and not (ints[HIGH_RUN] == 2 and climbs(ints, floats, ring)):
        return END
    ints[PHASE] = SUSPICIOUS
    ints[CREEPS] = 0
    freeze(ints, floats, floats[BASE], floats[GATE], floats[UNIT], ints[POINTS] - ints[START])
    return SUSPECTED


def climbs(ints: Counts, floats: Numbers, ring: Numbers) -> bool:
    """Whether the last three points rise one above the other, the first of them half the gate already.

    Half the gate is four sigma where the noise is known: no blip, and growth by half is seen a point earlier.
    """
    if ints[IN_WINDOW] < WARM:
        return False
    at = ints[POINTS]
    first, second, third = ring[(at - 2) % RING], ring[(at - 1) % RING], ring[at % RING]
    return first - floats[BASE] > CLIMB * floats[GATE] and first < second < third


def count_low(ints: Counts, floats: Numbers, knobs: Sequence[float]) -> int:
    """A point that is not high: the fourth in a row ends a spike, as an explosion too swings at first."""
    if ints[HIGH_RUN] == 0:
        return END
    ints[LOW_RUN] += 1
    if ints[LOW_RUN] < BACK:
        return END
    ints[HIGH_RUN] = 0
    ints[SINCE] = ints[POINTS] + 1 - BACK - ints[START]
    return SPIKE if floats[PEAK] - floats[BASE] > knobs[SPIKE_RISE] * floats[UNIT] else END
