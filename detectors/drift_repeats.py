"""Repeated values of a curve: the same bits again and again, more often than it repeats by itself.

Plain Python that numba can compile: see `kernels.Fold`.
"""

# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

from collections.abc import Sequence

from .drift_levels import MINI_RING, Counts, Numbers
from .drift_state import (
    BEFORE_RUN,
    COARSE,
    DIGIT_STEPS,
    END,
    GRID,
    IS_STUCK,
    LAST,
    LONGEST,
    MINIS,
    POINTS,
    REPEAT_CHANCE,
    REPEATS,
    RUN_START,
    SAME_RUN,
    STEP_SIZE,
    STUCK,
    STUCK_CHANCE,
    STUCK_POINTS,
)


def end_row(value: float, ints: Counts, floats: Numbers) -> None:
    """A value that differs from the last: learn from the row of equal ones that it ends."""
    if ints[POINTS] > 0:
        # The greatest of the last few steps: it shrinks as fast as a curve that converges to its bits.
        step = abs(value - floats[LAST])
        floats[STEP_SIZE] = max(step, 0.7 * floats[STEP_SIZE])
        # The least step: a log that keeps few digits has no smaller one.
        floats[GRID] = step if floats[GRID] == 0.0 else min(floats[GRID], step)
        ints[DIGIT_STEPS] = ints[DIGIT_STEPS] + 1 if step < 1.5 * floats[GRID] else 0
        # Repeats per point over the last 64.
        for _ in range(min(ints[SAME_RUN], 256)):
            floats[REPEATS] += (1.0 - floats[REPEATS]) / 64.0
        floats[REPEATS] -= floats[REPEATS] / 64.0
        floats[BEFORE_RUN] = floats[LAST]
        if ints[IS_STUCK] == 0:
            ints[LONGEST] = max(ints[LONGEST], ints[SAME_RUN])
    ints[SAME_RUN] = 0
    ints[RUN_START] = ints[POINTS]
    ints[IS_STUCK] = 0
    floats[REPEAT_CHANCE] = 1.0
    floats[LAST] = value


def watch_repeats(value: float, ints: Counts, floats: Numbers, minis: Numbers, knobs: Sequence[float]) -> int:
    """One point: does it repeat the last one, and how unlikely is a row of repeats this long?"""
    if ints[POINTS] == 0 or value != floats[LAST]:
        end_row(value, ints, floats)
        return END
    ints[SAME_RUN] += 1
    # At least 5 %: a curve may begin to repeat a little more than it did.
    floats[REPEAT_CHANCE] *= max(floats[REPEATS], 0.05)
    if ints[IS_STUCK] == 1 or floats[REPEAT_CHANCE] >= knobs[STUCK_CHANCE]:
        return END
    # A log that prints a value again until the next one has rows as long as its interval.
    is_long = ints[SAME_RUN] >= max(knobs[STUCK_POINTS], 4.0 * ints[LONGEST])
    # It must have moved before, by more than a curve that converges to its last bit, and a loss of 0
    # must have fallen there at once: not from half of what it was 32 points before.
    past = minis[max(ints[MINIS] - 4, 0) % MINI_RING]
    has_moved = floats[STEP_SIZE] > 1e-4 * abs(value) and ints[MINIS] >= 5
    # A log of few digits repeats for good once its noise is less than the last of them: it went there in
    # steps of one digit.
    is_coarse = ints[DIGIT_STEPS] >= COARSE
    is_sudden = value != 0.0 or abs(floats[BEFORE_RUN]) > 0.5 * abs(past)
    if is_long and has_moved and is_sudden and not is_coarse:
        ints[IS_STUCK] = 1
        return STUCK
    return END
