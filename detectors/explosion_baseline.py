"""Baselines of the explosion detector: a moving median of quiet points, mini-blocks, and their noise.

Plain Python that numba can compile: see `kernels.Fold`.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

from collections.abc import MutableSequence

Numbers = MutableSequence[float]
Counts = MutableSequence[int]

# Integers of the state.
CURSOR, POINTS, PHASE, IN_WINDOW, WINDOW_AT, HIGH_RUN, LOW_RUN, SINCE, IN_MINI, MINIS = range(10)
BROKEN_RUN, FAR_RUN, START, MARKED, WHY, GROWING, MINI_FROM, RATED, CREEPS = range(10, 19)
INTS = 19
# Floats of the state.
NOISE, MINI_NOISE, LAST_MINI, FLOOR, GATE, BASE, UNIT, PEAK, MINI_NOW, START_LEVEL = range(10)
START_TOP, START_RANGE, USUAL_TOP = 10, 11, 12
FLOATS = 13
WINDOW = 32
"""Points of the moving level: spikes of up to 15 points cannot reach its median."""
MINI = 8
"""Points of a mini-block, whose median stands for them in the slow test."""
MINI_RING = 64
"""Mini-blocks remembered: 512 points, four doublings of the slowest explosion that must be seen."""
WARM = 16
"""Points before the noise estimate is used; earlier only growth by START_RISE counts."""

GROWS = 0.25
"""Share of its rise that a curve must have added since its first high points to be growing still."""


def insert_sorted(ordered: Numbers, count: int, value: float) -> None:
    """Put ``value`` into the first ``count`` elements of ``ordered``, which has room for one more."""
    at = count
    while at > 0 and ordered[at - 1] > value:
        ordered[at] = ordered[at - 1]
        at -= 1
    ordered[at] = value


def replace_sorted(ordered: Numbers, count: int, old: float, value: float) -> None:
    """Take one ``old`` out of the first ``count`` elements of ``ordered``, and put ``value`` in."""
    at = 0
    while ordered[at] != old:
        at += 1
    while at < count - 1 and ordered[at + 1] <= value:
        ordered[at] = ordered[at + 1]
        at += 1
    while at > 0 and ordered[at - 1] > value:
        ordered[at] = ordered[at - 1]
        at -= 1
    ordered[at] = value


def median_sorted(ordered: Numbers, count: int) -> float:
    """The median of the first ``count`` elements of ``ordered``."""
    return ordered[(count - 1) // 2] * 0.5 + ordered[count // 2] * 0.5


def unit_of(base: float, noise: float, floor: float, relative: float) -> float:
    """What an excess is measured in: the level itself, not less than the floor and 3 sigma of noise."""
    if relative == 0.0:
        return 1.0
    return max(abs(base), floor, 3.0 * noise, 1e-300)


def learn(
    value: float, level: float, ints: Counts, floats: Numbers, window: Numbers, ordered: Numbers
) -> None:
    """Let a quiet point into the window and the noise estimate."""
    count = ints[IN_WINDOW]
    if count > 0:
        residual = abs(value - level)
        # Weight 1/n at first, then 1/64; clipped, since one wild point says little of the noise.
        if ints[POINTS] > WARM:
            residual = min(residual, 4.0 * floats[NOISE] + 1e-300)
        floats[NOISE] += (residual - floats[NOISE]) / min(ints[POINTS] + 1, 64)
    if count == WINDOW:
        replace_sorted(ordered, count, window[ints[WINDOW_AT]], value)
    else:
        insert_sorted(ordered, count, value)
        ints[IN_WINDOW] = count + 1
    window[ints[WINDOW_AT]] = value
    ints[WINDOW_AT] = (ints[WINDOW_AT] + 1) % WINDOW


def close_mini(mini: Numbers, ints: Counts, floats: Numbers, minis: Numbers) -> None:
    """A mini-block is full: its median joins the ring, its step from the last one the noise."""
    now = median_sorted(mini, MINI)
    ints[IN_MINI] = 0
    if ints[MINIS] > 0:
        step = abs(now - floats[LAST_MINI])
        if ints[MINIS] > 8:
            step = min(step, 4.0 * floats[MINI_NOISE] + 1e-300)
        floats[MINI_NOISE] += (step - floats[MINI_NOISE]) / min(ints[MINIS], 32)
    minis[ints[MINIS] % MINI_RING] = now
    floats[LAST_MINI] = now
    floats[MINI_NOW] = now
    ints[MINIS] += 1


def note_top(ints: Counts, floats: Numbers) -> None:
    """A mini-block of a quiet curve: how high it has been while the job trained well."""
    if ints[MINIS] == 1 or floats[MINI_NOW] > floats[USUAL_TOP]:
        floats[USUAL_TOP] = floats[MINI_NOW]


def best_mini(ints: Counts, minis: Numbers) -> float:
    """The least mini-block since the baseline began, among the last `MINI_RING`."""
    first = max(ints[MINI_FROM], ints[MINIS] - MINI_RING)
    best = minis[first % MINI_RING]
    for at in range(first + 1, ints[MINIS]):
        best = min(best, minis[at % MINI_RING])
    return best


def past_range(ints: Counts, minis: Numbers) -> float:
    """By how much the remembered mini-blocks ever differed, the last eighth of them left out."""
    first = max(ints[MINI_FROM], ints[MINIS] - MINI_RING)
    low = minis[first % MINI_RING]
    high = low
    for at in range(first + 1, ints[MINIS] - MINI_RING // 8):
        low = min(low, minis[at % MINI_RING])
        high = max(high, minis[at % MINI_RING])
    return high - low


def is_level(ints: Counts, floats: Numbers, ring: Numbers) -> bool:
    """Whether the curve went up at once, by less than its own level, and has not grown since.

    That is another level, which may be that of a fault; growth it is not.
    """
    kept = len(ring)
    if floats[PEAK] - floats[BASE] >= floats[UNIT] or ints[POINTS] - ints[START] >= kept:
        return False
    early = 0.0
    for at in range(ints[START], ints[START] + MINI):
        early += ring[at % kept] / MINI
    return floats[MINI_NOW] - early <= GROWS * (floats[MINI_NOW] - floats[BASE])
