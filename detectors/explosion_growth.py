"""Growth in the explosion detector: slow growth out of the best level, and what follows a suspicion.

Plain Python that numba can compile: see `kernels.Fold`. `explosion_fold` walks the points.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import Sequence

from .explosion_baseline import (
    BASE,
    BROKEN_RUN,
    CREEPS,
    FAR_RUN,
    FLOOR,
    GATE,
    GROWING,
    HIGH_RUN,
    IN_WINDOW,
    LOW_RUN,
    MARKED,
    MINI,
    MINI_FROM,
    MINI_NOISE,
    MINI_NOW,
    MINI_RING,
    MINIS,
    NOISE,
    PEAK,
    PHASE,
    POINTS,
    RATED,
    SINCE,
    START,
    START_LEVEL,
    UNIT,
    USUAL_TOP,
    WARM,
    WHY,
    WINDOW,
    WINDOW_AT,
    Counts,
    Numbers,
    best_mini,
    is_level,
    past_range,
    unit_of,
)

# What the fold reports (its return value).
END, SUSPECTED, RECOVERED, CONFIRMED, SPIKE, EXPLAINED, GREW_TO_NONFINITE = range(7)
# Phases.
QUIET, SUSPICIOUS, EXPLODED = range(3)
# What may explain a new level of the loss.
EVENT, RATE_BACK = 1, 2
# Why it was confirmed.
BY_NONFINITE, BY_TENFOLD, BY_NO_RECOVERY, BY_LEVEL = 1, 2, 3, 4
# Knobs: indices into the array that ExplosionConfig.knobs gives.
RELATIVE, RISE, START_RISE, SLOW_RISE, HOLD, FAR, FAR_POINTS, SIGMAS, NONFINITE_POINTS, SPIKE_RISE = range(10)
START_HOLD = 10
KNOBS = 11
RING = 256
"""Points kept for the onset: 200 before an alarm that comes within 50."""
SIGNED_RANGES = 2.0
"""A loss around zero must leave its best by so many times what it moved in the last 450 points: noise that
is correlated over a hundred points leaves its range by a part of it, never by as much again."""
LEAST_LEVEL = 3
"""Points that make a level: growth over two is suspected and never confirmed by its height alone."""
START_STEPS = 2.5
"""Mean steps from point to point that it must be above a level known from a few points: 2.8 sigma of Gaussian
noise. The least of four points lies 1.3 sigma below the middle, and where noise is of the size of the level
itself nothing else would tell them apart."""
USUAL_MARGIN = math.log(2.0)
"""By how much more than its highest quiet mini-block a norm is still where it has been: single points of
a lognormal norm (sigma 0.18 to 0.3) stay below twice its median."""
RATE_WORKS = 200
"""Points behind a rise of the learning rate in which the loss may begin to follow it."""
LEAST_RATE = math.log(2.0) / 100.0
"""Growth of the logarithm of a norm in a point below which it is none of an explosion: twice in a hundred."""
CLIMB = 0.5
"""Share of the gate that the first of three points must have which climb: the other two are beyond it."""
FALLS = 0.1
"""Share of its excess that a level may lose from one mini-block to the next: more is coming back."""
HIGHEST_OF = 16
"""Points before growth that ends in NaN which its first point must surpass: else it is noise."""
COMMON_RISE, COMMON_NORM_RISE = 0.05, 0.3
"""Share of the rise that counts in the first points (see START_RISE) which is common from one of them to the
next: a twentieth of a loss, a factor of two of a norm."""
BACK = 4
"""Points in a row near the baseline that end a spike."""
PATIENCE = 43
"""Points without recovery after which growth that lasts is an explosion: it is judged at the end of a
mini-block, 50 points after the onset at the latest."""


def freeze(ints: Counts, floats: Numbers, base: float, gate: float, unit: float, points_ago: int) -> None:
    """Growth may have begun: freeze what it is measured against."""
    ints[SINCE] = points_ago
    ints[START] = ints[POINTS] - points_ago
    ints[LOW_RUN] = 0
    ints[FAR_RUN] = 0
    floats[BASE] = base
    floats[GATE] = gate
    floats[UNIT] = unit


def forget(ints: Counts) -> None:
    """Start a new baseline from the next point on."""
    ints[PHASE] = QUIET
    ints[IN_WINDOW] = 0
    ints[WINDOW_AT] = 0
    ints[HIGH_RUN] = 0
    ints[MINI_FROM] = ints[MINIS]


def growing_points(ints: Counts, floats: Numbers, ring: Numbers, knobs: Sequence[float]) -> int:
    """How many of the last points each rose over the one before, and out of the noise; 0 if by noise only."""
    last = ints[POINTS] - 1
    oldest = max(0, ints[POINTS] - RING)
    at = last
    while at > oldest and ring[at % RING] > ring[(at - 1) % RING]:
        at -= 1
    top = ring[at % RING]
    for before in range(max(oldest, at - HIGHEST_OF), at):
        top = max(top, ring[before % RING])
    while at < last and ring[(at + 1) % RING] <= top:
        at += 1
    if ints[IN_WINDOW] < WARM:
        # While the noise is not known, a point of common size may have gone up by chance.
        least = knobs[START_RISE] * (COMMON_RISE if knobs[RELATIVE] > 0.0 else COMMON_NORM_RISE)
        least *= unit_of(top, 0.0, floats[FLOOR], knobs[RELATIVE])
        while at < last and ring[(at + 1) % RING] - top <= least:
            at += 1
    rise = ring[last % RING] - ring[at % RING]
    unit = unit_of(ring[at % RING], 1.25 * floats[NOISE], floats[FLOOR], knobs[RELATIVE])
    noise = 5.0 * floats[NOISE] if ints[IN_WINDOW] >= WARM else 0.0
    return last - at if rise > max(0.5 * knobs[RISE] * unit, noise) else 0


def is_explained(ints: Counts) -> bool:
    """Whether growth began within some points of a change of data, batch or state."""
    return ints[MARKED] > 0 and 0 <= ints[START] - ints[MARKED] + 8 <= 24


def is_rate_back(ints: Counts, floats: Numbers) -> bool:
    """Whether growth by less than the level began while the learning rate came back to where it had been."""
    since = ints[START] - ints[RATED] + MINI
    return ints[RATED] > 0 and 0 <= since <= RATE_WORKS and floats[PEAK] - floats[BASE] < floats[UNIT]


def is_creeping(ints: Counts, floats: Numbers, knobs: Sequence[float]) -> bool:
    """Whether a norm alone grows so slowly that its loss tells whether that is any harm."""
    if knobs[RELATIVE] > 0.0 or ints[CREEPS] == 0:
        return False
    return floats[MINI_NOW] - floats[BASE] - floats[GATE] < ints[SINCE] * LEAST_RATE


def is_usual(value: float, floats: Numbers, knobs: Sequence[float]) -> bool:
    """Whether a norm only comes back to where it has been: it falls far on a plateau of the loss, and rises
    again by a hundred-fold as the job leaves the plateau and learns."""
    return knobs[RELATIVE] == 0.0 and value <= floats[USUAL_TOP] + USUAL_MARGIN


def is_stale(ints: Counts, floats: Numbers, ring: Numbers, knobs: Sequence[float]) -> bool:
    """Whether what is suspected was there to be confirmed and was not, so that a NaN that comes now is no end
    of it: the curve is only where it has been, or has stayed below what lasting growth reaches."""
    is_judged = ints[SINCE] >= PATIENCE + MINI
    return is_judged or is_usual(ring[(ints[POINTS] - 1) % RING], floats, knobs)


def step_of(ints: Counts, ring: Numbers) -> float:
    """Mean step from one of the last points to the next: of noise, and hardly of growth."""
    count = min(ints[POINTS], WINDOW)
    total = 0.0
    for at in range(ints[POINTS] + 1 - count, ints[POINTS]):
        total += abs(ring[at % RING] - ring[(at - 1) % RING])
    return total / max(count - 1, 1)


def watch_suspicious(
    value: float,
    is_mini: bool,
    ints: Counts,
    floats: Numbers,
    minis: Numbers,
    ring: Numbers,
    knobs: Sequence[float],
) -> int:
    """One point while growth is suspected: confirmed, recovered, or neither yet."""
    ints[SINCE] += 1
    floats[PEAK] = max(floats[PEAK], value)
    excess = value - floats[BASE]
    ints[LOW_RUN] = ints[LOW_RUN] + 1 if excess < 0.5 * floats[GATE] else 0
    ints[FAR_RUN] = ints[FAR_RUN] + 1 if excess >= knobs[FAR] * floats[UNIT] else 0
    if ints[LOW_RUN] >= BACK:
        ints[PHASE] = QUIET
        ints[HIGH_RUN] = 0
        return RECOVERED
    is_known = ints[IN_WINDOW] >= LEAST_LEVEL and not is_creeping(ints, floats, knobs)
    # where the noise of a loss is not known yet it may reach ten-fold, but not as often
    enough = knobs[FAR_POINTS] * (2.0 if ints[IN_WINDOW] < WARM and knobs[RELATIVE] > 0.0 else 1.0)
    if ints[FAR_RUN] >= enough and is_known and not is_usual(value, floats, knobs):
        ints[PHASE] = EXPLODED
        ints[WHY] = BY_TENFOLD
        return CONFIRMED
    if not is_mini or ints[SINCE] < PATIENCE:
        return END
    before = minis[(ints[MINIS] - 2) % MINI_RING]
    is_step = knobs[RELATIVE] > 0.0 and ints[IN_WINDOW] >= WARM and is_level(ints, floats, ring)
    if is_step and before - floats[MINI_NOW] > FALLS * (floats[MINI_NOW] - floats[BASE]):
        return END
    # A level needs no more than what suspected it: whole-curve drift is blind in the first 192 points.
    hold = floats[GATE] if is_step else max(knobs[HOLD] * floats[UNIT], floats[GATE])
    if ints[IN_WINDOW] < WARM:
        # It began before the noise was known: now it is, from points of the level that would be the fault's.
        hold = max(hold, START_STEPS * step_of(ints, ring))
    is_high = floats[MINI_NOW] - floats[BASE] >= hold and before - floats[BASE] >= 0.8 * hold
    if is_high and is_known and not is_usual(floats[MINI_NOW], floats, knobs):
        if is_explained(ints) or is_rate_back(ints, floats):
            forget(ints)
            return EXPLAINED
        ints[PHASE] = EXPLODED
        ints[WHY] = BY_LEVEL if is_step else BY_NO_RECOVERY
        return CONFIRMED
    if ints[SINCE] > MINI * MINI_RING:
        forget(ints)
        return RECOVERED
    return END


def watch_exploded(value: float, ints: Counts, floats: Numbers) -> int:
    """One point after the explosion: wait for the curve to come back, or take the new level as it is."""
    ints[SINCE] += 1
    floats[PEAK] = max(floats[PEAK], value)
    ints[LOW_RUN] = ints[LOW_RUN] + 1 if value - floats[BASE] < 0.5 * floats[GATE] else 0
    if ints[LOW_RUN] >= WARM or ints[SINCE] > MINI * MINI_RING:
        forget(ints)
    return END


def watch_broken(weight: int, ints: Counts, floats: Numbers, ring: Numbers, knobs: Sequence[float]) -> int:
    """A position at which something non-finite was reported: the end of growth, or nothing to say."""
    was_enough = ints[BROKEN_RUN] >= knobs[NONFINITE_POINTS]
    ints[BROKEN_RUN] += weight
    is_enough = ints[BROKEN_RUN] >= knobs[NONFINITE_POINTS]
    if was_enough or not is_enough or ints[PHASE] == EXPLODED or ints[POINTS] < 4:
        return END
    ints[GROWING] = growing_points(ints, floats, ring, knobs)
    ints[WHY] = BY_NONFINITE
    if ints[PHASE] == SUSPICIOUS and not is_stale(ints, floats, ring, knobs):
        # All points since the suspicion began are growth, even where they swing.
        ints[GROWING] = max(ints[GROWING], ints[SINCE] + 1)
        ints[PHASE] = EXPLODED
        return CONFIRMED
    if ints[GROWING] < 3:
        return END
    base = ring[(ints[POINTS] - 1 - ints[GROWING]) % RING]
    unit = unit_of(base, 1.25 * floats[NOISE], floats[FLOOR], knobs[RELATIVE])
    floats[PEAK] = ring[(ints[POINTS] - 1) % RING]
    freeze(ints, floats, base, 0.5 * knobs[RISE] * unit, unit, ints[GROWING])
    ints[PHASE] = EXPLODED
    return GREW_TO_NONFINITE


def watch_slow(ints: Counts, floats: Numbers, minis: Numbers, knobs: Sequence[float]) -> int:
    """A full mini-block while nothing is suspected: has the curve left its best by far?"""
    if ints[MINIS] - ints[MINI_FROM] < 2:
        return END
    best = best_mini(ints, minis)
    sigma = 1.25 * floats[MINI_NOISE]
    unit = unit_of(best, sigma, floats[FLOOR], knobs[RELATIVE])
    gate = max(knobs[SLOW_RISE] * unit, knobs[SIGMAS] * sigma)
    if best <= 0.0 and knobs[RELATIVE] > 0.0:
        # A loss around zero (policy gradients) goes up and down by many times its noise, and is fine.
        gate = max(gate, SIGNED_RANGES * past_range(ints, minis))
    before = minis[(ints[MINIS] - 2) % MINI_RING]
    is_slow = ints[MINIS] - ints[MINI_FROM] >= 4 and floats[MINI_NOW] - best > gate
    if not is_slow and ints[MINI_FROM] == 0 and ints[MINIS] <= MINI_RING:
        # What a model that knows nothing starts with is a ceiling: half as much again is lost. The
        # noise of points counts here, since that of mini-blocks holds the growth itself.
        best = floats[START_LEVEL]
        unit = unit_of(best, 1.25 * floats[NOISE], floats[FLOOR], knobs[RELATIVE])
        gate = max(knobs[START_HOLD] * unit, 0.5 * knobs[SIGMAS] * 1.25 * floats[NOISE])
    if floats[MINI_NOW] - best <= gate or before - best <= 0.7 * gate:
        return END
    floats[PEAK] = floats[MINI_NOW]
    ints[PHASE] = SUSPICIOUS
    ints[CREEPS] = 1
    freeze(ints, floats, best, gate, unit, MINI - 1)
    ints[HIGH_RUN] = 0
    return SUSPECTED
