"""The point-by-point part of slowdown: whether a whole run takes longer for its steps than it used to.

Eight points make a *mini-block*, whose median stands for it: a pause of less than half of the points (a
checkpoint, an evaluation, a compilation) leaves no trace. The baseline is the average of the last quiet
mini-blocks and stands still while a slowdown is suspected. Four high mini-blocks in a row are *suspected*,
sixteen, of which most were high, *confirmed*; four low ones in a row are a *recovery*. After that
long at a new pace, the new pace is the normal one.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import MutableSequence, Sequence

import numpy as np

from .kernels import Array, Fold
from .order_statistics import Numbers, median_of, middle_three, select

Counts = MutableSequence[int]

# What the fold reports (its return value).
END, SUSPECTED, CONFIRMED, RECOVERED = range(4)
# Phases.
QUIET, SUSPICIOUS, SLOW = range(3)
# Integers of the state.
CURSOR, IN_MINI, MINIS, PHASE, HIGH_ROW, LOW_ROW, HIGH_MINIS, SINCE = range(8)
FIRST_OF_MINI, LAST_OF_MINI, LAST_CLEAN, FIRST_HIGH, LAST_HIGH, POINTS = range(8, 14)
INTS = 14
# Floats of the state.
BASE, NOISE, LEVEL, SHOWN_BASE = range(4)
FLOATS = 4
# Knobs.
LEAST_RISE, SIGMAS = range(2)
KNOBS = 2

MINI = 8
WARM = 8
"""Mini-blocks before anything is judged: 64 points, past compilers and cold caches."""
SPAN = 32.0
"""Mini-blocks over which the baseline is averaged: 256 points."""
SUSPECT_MINIS = 4
"""High mini-blocks in a row that are suspected, and low ones that are a recovery: 32 points."""
CONFIRM_MINIS = 16
"""Mini-blocks after which a suspicion is confirmed: 128 points."""
NORMAL_MINIS = 64
"""Mini-blocks after a confirmation at which the new pace is the normal one: 512 points."""


def make_state() -> tuple[Array, ...]:
    """Fresh state: integers, floats, the values of the mini-block, room for its middle."""
    return np.zeros(INTS, np.int64), np.zeros(FLOATS), np.zeros(MINI), np.zeros(3)


def forget(ints: Counts) -> None:
    """Learn the pace anew: what it depends on has changed."""
    ints[IN_MINI] = 0
    ints[MINIS] = 0
    ints[PHASE] = QUIET
    ints[HIGH_ROW] = 0
    ints[LOW_ROW] = 0


def learn(level: float, ints: Counts, floats: Numbers) -> None:
    """Take an ordinary mini-block into the baseline and its noise."""
    gain = 1.0 / min(ints[MINIS] + 1.0, SPAN)
    if ints[MINIS] > 0:
        floats[NOISE] += gain * (abs(level - floats[BASE]) - floats[NOISE])
    else:
        floats[BASE] = level
        floats[NOISE] = 0.0
    floats[BASE] += gain * (level - floats[BASE])
    ints[MINIS] += 1


def close_mini(level: float, ints: Counts, floats: Numbers, knobs: Sequence[float]) -> int:
    """Judge a mini-block by its median."""
    if ints[MINIS] < WARM:
        learn(level, ints, floats)
        ints[LAST_CLEAN] = ints[FIRST_OF_MINI]  # its later half may be slow already
        return END
    # 1.25: a mean absolute deviation as a standard deviation.
    gate = max(knobs[LEAST_RISE], knobs[SIGMAS] * 1.25 * floats[NOISE])
    is_high = level - floats[BASE] > gate
    ints[SINCE] += 1
    ints[HIGH_ROW] = ints[HIGH_ROW] + 1 if is_high else 0
    ints[LOW_ROW] = 0 if is_high else ints[LOW_ROW] + 1
    if ints[PHASE] == QUIET:
        return watch_quiet(level, is_high, ints, floats)
    floats[LEVEL] += (level - floats[LEVEL]) / min(ints[SINCE] + 1.0, SPAN)
    ints[HIGH_MINIS] += 1 if is_high else 0
    if ints[LOW_ROW] >= SUSPECT_MINIS:
        was_slow = ints[PHASE] == SLOW
        ints[PHASE] = QUIET
        return END if was_slow else RECOVERED
    if ints[PHASE] == SUSPICIOUS and ints[SINCE] >= CONFIRM_MINIS:
        if 4 * ints[HIGH_MINIS] >= 3 * CONFIRM_MINIS:
            ints[PHASE] = SLOW
            return CONFIRMED
        ints[PHASE] = QUIET
        return RECOVERED
    if ints[PHASE] == SLOW and ints[SINCE] >= CONFIRM_MINIS + NORMAL_MINIS:
        forget(ints)
    return END


def watch_quiet(level: float, is_high: bool, ints: Counts, floats: Numbers) -> int:
    """A mini-block while nothing is suspected."""
    if not is_high:
        learn(level, ints, floats)
        ints[LAST_CLEAN] = ints[FIRST_OF_MINI]  # its later half may be slow already
        return END
    if ints[HIGH_ROW] == 1:
        ints[FIRST_HIGH] = ints[FIRST_OF_MINI]
        ints[LAST_HIGH] = ints[LAST_OF_MINI]
        floats[LEVEL] = level
    floats[LEVEL] += (level - floats[LEVEL]) / ints[HIGH_ROW]
    if ints[HIGH_ROW] < SUSPECT_MINIS:
        return END
    floats[SHOWN_BASE] = floats[BASE]
    ints[PHASE] = SUSPICIOUS
    ints[HIGH_MINIS] = ints[HIGH_ROW]
    ints[SINCE] = ints[HIGH_ROW]
    return SUSPECTED


def fold_pace(
    values: Sequence[float], iterations: Sequence[int], resets: Sequence[int], ints: Counts, floats: Numbers,
    mini: Numbers, three: Numbers, knobs: Sequence[float],
) -> int:  # fmt: skip
    """Fold the points (finite, or NaN for none) from the cursor on; stop where there is news."""
    while ints[CURSOR] < len(values):
        at = ints[CURSOR]
        ints[CURSOR] += 1
        code = END
        if resets[at] > 0:
            code = RECOVERED if ints[PHASE] == SUSPICIOUS else END
            forget(ints)
        if math.isfinite(values[at]):
            if ints[IN_MINI] == 0:
                ints[FIRST_OF_MINI] = iterations[at]
            ints[LAST_OF_MINI] = iterations[at]
            mini[ints[IN_MINI]] = values[at]
            ints[IN_MINI] += 1
            ints[POINTS] += 1
            if ints[IN_MINI] == MINI:
                middle_three(mini, MINI, three)
                ints[IN_MINI] = 0
                code = max(code, close_mini(median_of(MINI, three), ints, floats, knobs))
        if code != END:
            return code
    return END


FOLD = Fold(fold_pace, select, middle_three, median_of, forget, learn, watch_quiet, close_mini)
