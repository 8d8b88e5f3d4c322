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
from collections.abc import Sequence

import numpy as np

from .explosion_baseline import (
    BROKEN_RUN,
    CURSOR,
    FLOATS,
    FLOOR,
    HIGH_RUN,
    IN_MINI,
    IN_WINDOW,
    INTS,
    MARKED,
    MINI,
    MINI_FROM,
    MINI_RING,
    NOISE,
    PEAK,
    PHASE,
    POINTS,
    RATED,
    START_LEVEL,
    START_RANGE,
    WARM,
    WINDOW,
    Counts,
    Numbers,
    best_mini,
    close_mini,
    insert_sorted,
    is_level,
    learn,
    median_sorted,
    note_top,
    past_range,
    replace_sorted,
    unit_of,
)
from .explosion_growth import (
    END,
    EVENT,
    QUIET,
    RATE_BACK,
    RELATIVE,
    RING,
    RISE,
    SIGMAS,
    SUSPICIOUS,
    forget,
    freeze,
    growing_points,
    is_creeping,
    is_explained,
    is_rate_back,
    is_stale,
    is_usual,
    step_of,
    watch_broken,
    watch_exploded,
    watch_slow,
    watch_suspicious,
)
from .explosion_high import climbs, count_high, count_low
from .explosion_start import ORIGIN, begin_curve, raise_floor, start_rise
from .kernels import Array, Fold


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


def watch_quiet(
    value: float,
    ints: Counts,
    floats: Numbers,
    window: Numbers,
    ordered: Numbers,
    ring: Numbers,
    knobs: Sequence[float],
) -> int:
    """One point while nothing is suspected."""
    count = ints[IN_WINDOW]
    level = median_sorted(ordered, count) if count > 0 else value
    is_high = False
    if count >= 2:
        sigma = 1.25 * floats[NOISE]
        is_warm = count >= WARM
        if not is_warm and knobs[RELATIVE] > 0 and ints[MINI_FROM] == 0:
            # A median of so few points follows the growth; where the curve began it does not move.
            level = min(level, floats[START_LEVEL])
        # Before the noise is known its stand-in is half the range of the first four points.
        spread = sigma if is_warm else 0.5 * floats[START_RANGE]
        unit = unit_of(level, spread, floats[FLOOR], knobs[RELATIVE])
        gate = start_rise(ints, knobs) * unit
        if is_warm:
            gate = max(knobs[RISE] * unit, knobs[SIGMAS] * sigma)
        is_high = value - level > gate
        if is_high and ints[HIGH_RUN] == 0:
            freeze(ints, floats, level, gate, unit, 0)
            floats[PEAK] = value
    if is_high:
        return count_high(value, ints, floats, ring)
    learn(value, level, ints, floats, window, ordered)
    return count_low(ints, floats, knobs)


def take_point(
    value: float,
    iteration: int,
    code: int,
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
    """One finite point, of a position that gave ``code``: into the state, and what the phase makes of it."""
    if ints[POINTS] < 4:
        begin_curve(value, ints, floats, ring, knobs)
        raise_floor(value, floats, knobs)
    insert_sorted(mini, ints[IN_MINI], value)
    ints[IN_MINI] += 1
    is_mini = ints[IN_MINI] == MINI
    if is_mini:
        close_mini(mini, ints, floats, minis)
        if ints[PHASE] == QUIET and ints[HIGH_RUN] == 0:
            note_top(ints, floats)
    ring[ints[POINTS] % RING] = value
    ring_iterations[ints[POINTS] % RING] = iteration
    if ints[PHASE] == QUIET:
        code = watch_quiet(value, ints, floats, window, ordered, ring, knobs)
        if is_mini and ints[PHASE] == QUIET and code == END:
            code = watch_slow(ints, floats, minis, knobs)
    elif ints[PHASE] == SUSPICIOUS:
        code = watch_suspicious(value, is_mini, ints, floats, minis, ring, knobs)
    else:
        watch_exploded(value, ints, floats)
    ints[POINTS] += 1
    return code


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
    non-finite was reported, and says how much it weighs against knob NONFINITE_POINTS; ``marks`` is EVENT
    where a change of data, batch or state explains a new level, RATE_BACK where the learning rate returns.
    """
    while ints[CURSOR] < len(values):
        at = ints[CURSOR]
        ints[CURSOR] += 1
        code = END
        # a later change does not take away what explains the growth that is suspected now
        if marks[at] == EVENT and not (ints[PHASE] == SUSPICIOUS and is_explained(ints)):
            ints[MARKED] = ints[POINTS] + 1
        if marks[at] == RATE_BACK and ints[PHASE] == QUIET:
            ints[RATED] = ints[POINTS] + 1
        if broken[at] > 0:
            code = watch_broken(broken[at], ints, floats, ring, knobs)
        value = values[at]
        # Losses that begin at 0 were not computed yet: what comes then did not grow out of nothing.
        is_unset = value == 0.0 and ints[POINTS] == 0 and knobs[RELATIVE] > 0
        if is_unset:
            floats[FLOOR] = ORIGIN
        if math.isfinite(value) and not is_unset:
            if broken[at] == 0:
                ints[BROKEN_RUN] = 0
            code = take_point(
                value,
                iterations[at],
                code,
                ints,
                floats,
                window,
                ordered,
                mini,
                minis,
                ring,
                ring_iterations,
                knobs,
            )
        if code != END:
            return code
    return END


FOLD = Fold(
    fold_explosion,
    insert_sorted,
    replace_sorted,
    median_sorted,
    past_range,
    unit_of,
    is_level,
    learn,
    close_mini,
    best_mini,
    note_top,
    freeze,
    forget,
    growing_points,
    start_rise,
    begin_curve,
    raise_floor,
    climbs,
    count_high,
    count_low,
    watch_quiet,
    watch_slow,
    is_creeping,
    is_explained,
    is_rate_back,
    is_usual,
    is_stale,
    step_of,
    watch_suspicious,
    watch_exploded,
    watch_broken,
    take_point,
    inlines=True,
)
