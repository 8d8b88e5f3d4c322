"""The point-by-point part of the explosion detector: a robust baseline, and states relative to it.

Two baselines: ``level``, the median of the last 32 quiet points, for growth of some points, and
``best``, the least median of 8 points among the last 512, for growth over hundreds of points, which a
moving median would follow. Suspicious points enter neither the window nor the noise.
Excess is (value - baseline) / unit; the unit of a loss is its own level but never less than a floor, so
that a loss near zero or below it is judged by its noise; a gradient norm comes as its logarithm, unit 1.

Every function here is plain Python on sequences that numba can compile: see `kernels.Fold`.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import MutableSequence, Sequence

import numpy as np

from .kernels import Array, Fold

Numbers = MutableSequence[float]
Counts = MutableSequence[int]

# What the fold reports (its return value).
END, SUSPECTED, RECOVERED, CONFIRMED, SPIKE, EXPLAINED, GREW_TO_NONFINITE = range(7)
# Phases.
QUIET, SUSPICIOUS, EXPLODED = range(3)
# Why it was confirmed.
BY_NONFINITE, BY_TENFOLD, BY_NO_RECOVERY = 1, 2, 3

# Integers of the state.
CURSOR, POINTS, PHASE, IN_WINDOW, WINDOW_AT, HIGH_RUN, LOW_RUN, SINCE, IN_MINI, MINIS = range(10)
BROKEN_RUN, FAR_RUN, START, MARKED, WHY, GROWING, WAS_SLOW, MINI_FROM = range(10, 18)
INTS = 18
# Floats of the state.
NOISE, MINI_NOISE, LAST_MINI, FLOOR, GATE, BASE, UNIT, PEAK, MINI_NOW, START_LEVEL = range(10)
FLOATS = 10
# Knobs: indices into the array that ExplosionConfig.knobs gives.
RELATIVE, RISE, START_RISE, SLOW_RISE, HOLD, FAR, FAR_POINTS, SIGMAS, NONFINITE_POINTS, SPIKE_RISE = range(10)
KNOBS = 10

WINDOW = 32
"""Points of the moving level: spikes of up to 15 points cannot reach its median."""
MINI = 8
"""Points of a mini-block, whose median stands for them in the slow test."""
MINI_RING = 64
"""Mini-blocks remembered: 512 points, four doublings of the slowest explosion that must be seen."""
RING = 256
"""Points kept for the onset: 200 before an alarm that comes within 50."""
WARM = 16
"""Points before the noise estimate is used; earlier only growth by START_RISE counts."""
PATIENCE = 50
"""Points without recovery after which growth that lasts is an explosion (DESIGN section 6, 2)."""


def make_state() -> tuple[Array, ...]:
    """Fresh state: integers, floats, window in order of arrival, sorted window, mini-block, ring of
    mini-blocks, ring of values, ring of iterations."""
    return (
        np.zeros(INTS, np.int64),
        np.zeros(FLOATS),
        np.zeros(WINDOW),
        np.zeros(WINDOW),
        np.zeros(MINI),
        np.zeros(MINI_RING),
        np.zeros(RING),
        np.zeros(RING, np.int64),
    )


def insert_sorted(ordered: Numbers, count: int, value: float) -> None:
    """Put ``value`` into the first ``count`` elements of ``ordered``, which has room for one more."""
    at = count
    while at > 0 and ordered[at - 1] > value:
        ordered[at] = ordered[at - 1]
        at -= 1
    ordered[at] = value


def remove_sorted(ordered: Numbers, count: int, value: float) -> None:
    """Take one ``value`` out of the first ``count`` elements of ``ordered``."""
    at = 0
    while ordered[at] != value:
        at += 1
    while at < count - 1:
        ordered[at] = ordered[at + 1]
        at += 1


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
        remove_sorted(ordered, count, window[ints[WINDOW_AT]])
        count -= 1
    insert_sorted(ordered, count, value)
    window[ints[WINDOW_AT]] = value
    ints[WINDOW_AT] = (ints[WINDOW_AT] + 1) % WINDOW
    ints[IN_WINDOW] = count + 1


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


def best_mini(ints: Counts, minis: Numbers) -> float:
    """The least mini-block since the baseline began, among the last `MINI_RING`."""
    first = max(ints[MINI_FROM], ints[MINIS] - MINI_RING)
    best = minis[first % MINI_RING]
    for at in range(first + 1, ints[MINIS]):
        best = min(best, minis[at % MINI_RING])
    return best


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
    """How many of the last points each rose over the one before; 0 if they rose by noise only."""
    last = ints[POINTS] - 1
    oldest = max(0, ints[POINTS] - RING)
    at = last
    while at > oldest and ring[at % RING] > ring[(at - 1) % RING]:
        at -= 1
    rise = ring[last % RING] - ring[at % RING]
    unit = unit_of(ring[at % RING], 1.25 * floats[NOISE], floats[FLOOR], knobs[RELATIVE])
    noise = 5.0 * floats[NOISE] if ints[IN_WINDOW] >= WARM else 0.0
    return last - at if rise > max(0.5 * knobs[RISE] * unit, noise) else 0


def watch_quiet(
    value: float, ints: Counts, floats: Numbers, window: Numbers, ordered: Numbers, knobs: Sequence[float]
) -> int:
    """One point while nothing is suspected."""
    count = ints[IN_WINDOW]
    level = median_sorted(ordered, count) if count > 0 else value
    is_high = False
    if count >= 3:
        sigma = 1.25 * floats[NOISE]
        is_warm = count >= WARM
        # Before the noise is known its stand-in is half the range of the few points there are.
        spread = sigma if is_warm else 0.5 * (ordered[count - 1] - ordered[0])
        unit = unit_of(level, spread, floats[FLOOR], knobs[RELATIVE])
        gate = knobs[START_RISE] * unit
        if is_warm:
            gate = max(knobs[RISE] * unit, knobs[SIGMAS] * sigma)
        is_high = value - level > gate
        if is_high and ints[HIGH_RUN] == 0:
            freeze(ints, floats, level, gate, unit, 0)
            floats[PEAK] = value
    if not is_high:
        run = ints[HIGH_RUN]
        ints[HIGH_RUN] = 0
        learn(value, level, ints, floats, window, ordered)
        is_spike = run > 0 and floats[PEAK] - floats[BASE] > knobs[SPIKE_RISE] * floats[UNIT]
        ints[SINCE] = run
        return SPIKE if is_spike else END
    ints[HIGH_RUN] += 1
    floats[PEAK] = max(floats[PEAK], value)
    if ints[HIGH_RUN] < 3:
        return END
    ints[WAS_SLOW] = 0
    ints[PHASE] = SUSPICIOUS
    freeze(ints, floats, floats[BASE], floats[GATE], floats[UNIT], 2)
    return SUSPECTED


def watch_slow(ints: Counts, floats: Numbers, minis: Numbers, knobs: Sequence[float]) -> int:
    """A full mini-block while nothing is suspected: has the curve left its best by far?"""
    if ints[MINIS] - ints[MINI_FROM] < 4:
        return END
    best = best_mini(ints, minis)
    sigma = 1.25 * floats[MINI_NOISE]
    unit = unit_of(best, sigma, floats[FLOOR], knobs[RELATIVE])
    gate = max(knobs[SLOW_RISE] * unit, knobs[SIGMAS] * sigma)
    before = minis[(ints[MINIS] - 2) % MINI_RING]
    if floats[MINI_NOW] - best <= gate or before - best <= 0.7 * gate:
        return END
    ints[WAS_SLOW] = 1
    floats[PEAK] = floats[MINI_NOW]
    ints[PHASE] = SUSPICIOUS
    freeze(ints, floats, best, gate, unit, MINI - 1)
    ints[HIGH_RUN] = 0
    return SUSPECTED


def watch_suspicious(
    value: float, is_mini: bool, ints: Counts, floats: Numbers, minis: Numbers, knobs: Sequence[float]
) -> int:
    """One point while growth is suspected: confirmed, recovered, or neither yet."""
    ints[SINCE] += 1
    floats[PEAK] = max(floats[PEAK], value)
    excess = value - floats[BASE]
    ints[LOW_RUN] = ints[LOW_RUN] + 1 if excess < 0.5 * floats[GATE] else 0
    ints[FAR_RUN] = ints[FAR_RUN] + 1 if excess >= knobs[FAR] * floats[UNIT] else 0
    if ints[LOW_RUN] >= 4:
        ints[PHASE] = QUIET
        ints[HIGH_RUN] = 0
        return RECOVERED
    if ints[FAR_RUN] >= knobs[FAR_POINTS]:
        ints[PHASE] = EXPLODED
        ints[WHY] = BY_TENFOLD
        return CONFIRMED
    if not is_mini or ints[SINCE] < PATIENCE:
        return END
    hold = max(knobs[HOLD] * floats[UNIT], floats[GATE]) if knobs[HOLD] > 0 else floats[GATE]
    before = minis[(ints[MINIS] - 2) % MINI_RING]
    if floats[MINI_NOW] - floats[BASE] >= hold and before - floats[BASE] >= 0.8 * hold:
        if ints[MARKED] > 0 and 0 <= ints[START] - ints[MARKED] + 8 <= 24:
            forget(ints)
            return EXPLAINED
        ints[PHASE] = EXPLODED
        ints[WHY] = BY_NO_RECOVERY
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
    if ints[PHASE] == SUSPICIOUS:
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


def fold_explosion(
    values: Sequence[float],
    iterations: Sequence[int],
    broken: Sequence[int],
    marks: Sequence[int],
    ints: Counts,
    floats: Numbers,
    window: Numbers,
    ordered: Numbers,
    mini: Numbers,
    minis: Numbers,
    ring: Numbers,
    ring_iterations: Counts,
    knobs: Sequence[float],
) -> int:
    """Fold the points from the cursor on; stop and return a code where something is to be reported.

    ``values`` are finite or NaN (nothing to learn from); ``broken`` is not 0 where something
    non-finite was reported, and says how much it weighs against knob NONFINITE_POINTS; ``marks`` is 1
    where a change of data, batch or state explains a new level.
    """
    while ints[CURSOR] < len(values):
        at = ints[CURSOR]
        ints[CURSOR] += 1
        code = END
        if marks[at] > 0:
            ints[MARKED] = ints[POINTS] + 1
        if broken[at] > 0:
            code = watch_broken(broken[at], ints, floats, ring, knobs)
        value = values[at]
        if math.isfinite(value):
            if broken[at] == 0:
                ints[BROKEN_RUN] = 0
            if ints[POINTS] < 4:
                # 2 % of where the curve started: below it nothing that training could lose is left.
                floats[FLOOR] = max(floats[FLOOR], 0.02 * abs(value)) if knobs[RELATIVE] > 0 else 0.0
            insert_sorted(mini, ints[IN_MINI], value)
            ints[IN_MINI] += 1
            is_mini = ints[IN_MINI] == MINI
            if is_mini:
                close_mini(mini, ints, floats, minis)
            ring[ints[POINTS] % RING] = value
            ring_iterations[ints[POINTS] % RING] = iterations[at]
            if ints[PHASE] == QUIET:
                code = watch_quiet(value, ints, floats, window, ordered, knobs)
                if is_mini and ints[PHASE] == QUIET and code == END:
                    code = watch_slow(ints, floats, minis, knobs)
            elif ints[PHASE] == SUSPICIOUS:
                code = watch_suspicious(value, is_mini, ints, floats, minis, knobs)
            else:
                watch_exploded(value, ints, floats)
            ints[POINTS] += 1
        if code != END:
            return code
    return END


FOLD = Fold(
    fold_explosion,
    insert_sorted,
    remove_sorted,
    median_sorted,
    unit_of,
    learn,
    close_mini,
    best_mini,
    freeze,
    forget,
    growing_points,
    watch_quiet,
    watch_slow,
    watch_suspicious,
    watch_exploded,
    watch_broken,
)
