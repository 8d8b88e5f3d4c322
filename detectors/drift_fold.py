"""The point-by-point part of whole-curve drift: level tests on mini-blocks, and repeated values.

Eight points make a *mini-block*; the mean of its four middle values stands for it, so that two wild
points cannot move it. Three tests run on mini-blocks, one on points:

* *step*: the last k mini-blocks, for every k up to 24, against what the 48 before them lead to expect (a
  windowed generalized likelihood ratio: the change may lie anywhere in between), and against the level
  of the 6 just before;
* *slope*: the last 16 against the best 16 of the last 256;
* *no learning*: the first 64 mini-blocks end where they began;
* *stuck*: the same bits again and again, more often than this curve repeats values by itself.

The noise of a mini-block is measured from second differences of neighbours and of means of 4 (of 16 too
for slopes), and the greatest counts: noise that is correlated over time shows in the longer ones. It is
frozen while a change is suspected. A decline is carried on for 256 points at most and in the logarithm of
time, which bends as healthy curves do; nothing is suspected unless the level itself has risen.

Source: windowed GLR, Lai, Sequential changepoint detection in quality control, JRSS B 57 (1995), eq. 8,
with the known level before the change replaced by a fit.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .drift_levels import (
    FIT_REST,
    MINI,
    MINI_RING,
    SCRATCH,
    Counts,
    Numbers,
    expected,
    fit_decline,
    insert_value,
    log_time,
    mean_minis,
    spread_of,
    step_score,
)
from .kernels import Array, Fold

# What the fold reports (its return value).
END, SUSPECTED, CONFIRMED, LEARNED_ON, PASSED, EXPLAINED, STUCK, FLAT, HANDED_OVER = range(9)
# Phases.
QUIET, SUSPICIOUS, SHIFTED = range(3)
# Kinds of change.
STEP, SLOPE = 1, 2

# Integers of the state.
CURSOR, POINTS, IN_MINI, MINIS, FROM, PHASE, KIND, TAU, SUSPECTED_AT, MARKED, MARK = range(11)
SAME_RUN, IS_STUCK, RUN_START, EXPLAINED_BY, LONGEST, MARKED_FROM = range(11, 17)
INTS = 17
# Floats of the state.
LAST, REPEATS, REPEAT_CHANCE, STEP_SIZE, NOISE_STEP, NOISE_SLOPE = range(6)
BASE, SIGMA, JUMP, SCORE, LEVEL, BEFORE_RUN = range(6, 12)
FLOATS = 20
# Knobs: indices into the array that CurveDriftConfig.knobs gives.
(
    SUSPECT_Z,
    CONFIRM_Z,
    SLOPE_Z,
    MIN_STEP,
    MIN_SLOPE,
    STUCK_CHANCE,
    STUCK_POINTS,
    LARGE_STEP,
    LEVEL_Z,
    EXPLOSION_RISE,
) = range(10)
KNOBS = 10

RING = 512
"""Points remembered for the onset of a step."""
SIDE = 24
"""Greatest number of mini-blocks on each side of a step: 192 points."""
PAST = 48
"""Mini-blocks before a step to which the decline is fitted: 384 points."""
MIN_SIDE = 16
"""Least number of them: with fewer the decline is a guess."""
NEAR = 6
"""Mini-blocks just before a step over which the level itself must have gone up."""
WARM = 24
"""Mini-blocks from the start of a baseline before the noise is known well enough to judge."""
WIDE = 16
"""Mini-blocks of a level in the slope test: 128 points."""
GRACE = 24
"""Mini-blocks after a change of rate, batch, data or state in which it explains a new level."""
HOLD = 6
"""Least mini-blocks a step must last: 48 points, twice the longest spike that recovers."""
JUDGED = 32
"""Mini-blocks for which a fitted decline is carried on: 256 points, two thirds of what it was fitted to."""
LEARNING = 60
"""Decay time, in mini-blocks, that separates a run that learns on from one that does not: 480 points."""
RELEASE = 64
"""Mini-blocks after which a suspicion that did not settle is dropped, and its level becomes normal."""


def make_state() -> tuple[Array, ...]:
    """Fresh state: integers, floats, mini-block, ring of mini-blocks and of their first iterations,
    ring of values and of their iterations, room for sorting."""
    return (
        np.zeros(INTS, np.int64),
        np.zeros(FLOATS),
        np.zeros(MINI),
        np.zeros(MINI_RING),
        np.zeros(MINI_RING, np.int64),
        np.zeros(RING),
        np.zeros(RING, np.int64),
        np.zeros(SCRATCH),
    )


def learn_noise(ints: Counts, floats: Numbers, minis: Numbers, scratch: Numbers) -> None:
    """Measure the noise anew; at every eighth mini-block, since it is slow to change and dear."""
    now = ints[MINIS]
    first = max(ints[FROM], now - MINI_RING)
    short = max(spread_of(1, first, now, minis, scratch), spread_of(4, first, now, minis, scratch))
    if short > 0.0:
        floats[NOISE_STEP] = short
        floats[NOISE_SLOPE] = max(short, spread_of(WIDE, first, now, minis, scratch))


def suspect(kind: int, tau: int, base: float, jump: float, ints: Counts, floats: Numbers) -> int:
    """A change is suspected, unless something that happened to the run explains it."""
    ints[KIND] = kind
    ints[TAU] = tau
    ints[SUSPECTED_AT] = ints[MINIS]
    floats[BASE] = base
    floats[JUMP] = jump
    floats[LEVEL] = base + jump
    if ints[MARKED] > 0 and ints[MARKED_FROM] - 2 <= tau + 1 <= ints[MARKED] + GRACE:
        ints[EXPLAINED_BY] = ints[MARK]
        ints[FROM] = tau
        return EXPLAINED
    ints[PHASE] = SUSPICIOUS
    return SUSPECTED


def watch_step(ints: Counts, floats: Numbers, minis: Numbers, knobs: Sequence[float]) -> int:
    """The windowed likelihood ratio over all places of a step.

    Only where the level itself went up, against the last mini-blocks before: a decline that slows may
    leave any fit below it, but never rises.
    """
    now, first = ints[MINIS], ints[FROM]
    sigma = floats[NOISE_STEP]
    if now - first < WARM or sigma == 0.0:
        return END
    best, best_k = 0.0, 0
    after = 0.0
    for k in range(1, SIDE + 1):
        stop = now - k
        if stop - first < MIN_SIDE:
            break
        after += minis[stop % MINI_RING]
        rise = after / k - mean_minis(minis, stop - NEAR, stop)
        if rise > knobs[LEVEL_Z] * sigma * math.sqrt(1.0 / k + 1.0 / NEAR):
            fit_decline(first, max(first, stop - PAST), stop, minis, floats)
            noise = max(sigma, floats[FIT_REST])
            excess = after / k - expected(stop, now, floats)
            score = step_score(excess, stop, now, noise, floats)
            # Most of the step must be a rise of the level: a fit may be too low, a level is what it is.
            if score > best and rise > 0.4 * excess:
                best, best_k = score, k
    if best <= knobs[SUSPECT_Z]:
        return END
    stop = now - best_k
    fit_decline(first, max(first, stop - PAST), stop, minis, floats)
    base = mean_minis(minis, stop - NEAR, stop)
    jump = mean_minis(minis, stop, now) - expected(stop, now, floats)
    # A loss near zero or of changing sign has no level whose shift would mean anything.
    if jump <= knobs[MIN_STEP] * base or base <= 6.0 * sigma:
        return END
    floats[SIGMA] = max(sigma, floats[FIT_REST])
    floats[SCORE] = best
    return suspect(STEP, stop, base, jump, ints, floats)


def watch_slope(ints: Counts, floats: Numbers, minis: Numbers, knobs: Sequence[float]) -> int:
    """The present level against the best one remembered since the baseline began."""
    now = ints[MINIS]
    oldest = max(ints[FROM], now - MINI_RING)
    # Four levels at least: the noise of such levels is learned from their differences.
    if now - oldest < 6 * WIDE:
        return END
    level = mean_minis(minis, now - WIDE, now)
    best, best_stop = level, now
    stop = now - WIDE
    while stop - WIDE >= oldest:
        past = mean_minis(minis, stop - WIDE, stop)
        if past < best:
            best, best_stop = past, stop
        stop -= WIDE
    sigma = floats[NOISE_SLOPE]
    if sigma == 0.0:
        return END
    jump = level - best
    score = jump / (sigma * math.sqrt(2.0 / WIDE) + 1e-300)
    if score <= knobs[SLOPE_Z] or jump <= knobs[MIN_SLOPE] * best or best <= 6.0 * sigma:
        return END
    floats[SIGMA] = sigma
    floats[SCORE] = score
    return suspect(SLOPE, best_stop, best, jump, ints, floats)


def shows_no_learning(jump: float, ints: Counts, floats: Numbers, minis: Numbers) -> bool:
    """Whether the excess since the step falls so slowly that the run is not learning on.

    After a change of data the excess decays within some hundred iterations. The slope of the excess
    must be clearly above that of a decay over `LEARNING` mini-blocks, and known well enough to tell
    (2.5 sigma apart).
    """
    now, tau = ints[MINIS], ints[TAU]
    n = now - tau
    if n < 2 * HOLD:
        return False
    centre = 0.5 * (n - 1)
    tilt, tt = 0.0, 0.0
    for at in range(n):
        excess = minis[(tau + at) % MINI_RING] - expected(tau + at, tau + at + 1, floats)
        tilt += (at - centre) * excess
        tt += (at - centre) * (at - centre)
    decay = jump / LEARNING
    return tilt / tt > -0.4 * decay and 2.5 * floats[SIGMA] / math.sqrt(tt) < decay


def watch_suspicious(ints: Counts, floats: Numbers, minis: Numbers, knobs: Sequence[float]) -> int:
    """A new mini-block while a change is suspected: does it last, or does the run learn on?"""
    now, tau = ints[MINIS], ints[TAU]
    since = now - tau
    base, jump, sigma = floats[BASE], floats[JUMP], floats[SIGMA]
    is_slope = ints[KIND] == SLOPE
    if mean_minis(minis, now - 2, now) > (1.0 + knobs[EXPLOSION_RISE]) * base:
        # So much is an explosion, or a spike that recovers: explosion.py judges it.
        return settle(HANDED_OVER, now, ints)
    # The fitted decline is used for so long only; afterwards the level before the step counts.
    past = base if is_slope or since > JUDGED else expected(now - 4, now, floats)
    recent = mean_minis(minis, now - 4, now) - past
    if since >= 4 and recent < 0.35 * jump:
        return settle(LEARNED_ON if since >= HOLD else PASSED, now - 4, ints)
    if is_slope:
        level = mean_minis(minis, now - WIDE, now) - base
        floats[SCORE] = level / (sigma * math.sqrt(2.0 / WIDE) + 1e-300)
        if now - ints[SUSPECTED_AT] >= HOLD and level >= jump and floats[SCORE] >= knobs[SLOPE_Z]:
            floats[LEVEL] = base + level
            ints[PHASE] = SHIFTED
            return CONFIRMED
    elif since <= JUDGED:
        level = mean_minis(minis, tau, now)
        floats[SCORE] = step_score(level - expected(tau, now, floats), tau, now, sigma, floats)
        is_large = jump > knobs[LARGE_STEP] * base
        is_lasting = shows_no_learning(jump, ints, floats, minis) if is_large else since >= HOLD
        is_level = mean_minis(minis, tau, tau + HOLD) - base > 0.4 * jump if since >= HOLD else False
        if is_lasting and is_level and recent >= 0.6 * jump and floats[SCORE] >= knobs[CONFIRM_Z]:
            floats[LEVEL] = level
            ints[PHASE] = SHIFTED
            return CONFIRMED
    if now - ints[SUSPECTED_AT] >= RELEASE:
        return settle(LEARNED_ON, now - SIDE, ints)
    return END


def settle(code: int, baseline_from: int, ints: Counts) -> int:
    """Back to quiet, with a baseline that begins at mini-block ``baseline_from``."""
    ints[PHASE] = QUIET
    ints[FROM] = max(ints[FROM], baseline_from)
    return code


def watch_shifted(ints: Counts) -> int:
    """After a confirmed change its level is the new normal, one release time later."""
    if ints[MINIS] - ints[SUSPECTED_AT] >= RELEASE:
        settle(END, ints[MINIS] - SIDE, ints)
    return END


def end_row(value: float, ints: Counts, floats: Numbers) -> None:
    """A value that differs from the last: learn from the row of equal ones that it ends."""
    if ints[POINTS] > 0:
        # The greatest of the last few steps: it shrinks as fast as a curve that converges to its bits.
        floats[STEP_SIZE] = max(abs(value - floats[LAST]), 0.7 * floats[STEP_SIZE])
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
    is_sudden = value != 0.0 or abs(floats[BEFORE_RUN]) > 0.5 * abs(past)
    if is_long and has_moved and is_sudden:
        ints[IS_STUCK] = 1
        return STUCK
    return END


def close_mini(
    mini: Numbers, ints: Counts, floats: Numbers, minis: Numbers, scratch: Numbers, knobs: Sequence[float]
) -> int:
    """A mini-block is full: learn or test."""
    minis[ints[MINIS] % MINI_RING] = (mini[2] + mini[3] + mini[4] + mini[5]) * 0.25
    ints[MINIS] += 1
    ints[IN_MINI] = 0
    if ints[PHASE] == SUSPICIOUS:
        return watch_suspicious(ints, floats, minis, knobs)
    if ints[PHASE] == SHIFTED:
        return watch_shifted(ints)
    code = watch_step(ints, floats, minis, knobs)
    if code == END:
        code = watch_slope(ints, floats, minis, knobs)
    if code == END and ints[MINIS] % 8 == 0:
        learn_noise(ints, floats, minis, scratch)
    if code == END and ints[MINIS] == RELEASE and ints[FROM] == 0:
        start, stop = mean_minis(minis, 0, 4), mean_minis(minis, RELEASE - WIDE, RELEASE)
        floats[BASE] = start
        floats[LEVEL] = stop
        floats[SCORE] = (start - stop) / (floats[NOISE_STEP] + 1e-300)
        if start > 0 and start - stop < 0.01 * start:
            return FLAT
    return code


def fold_drift(
    values: Sequence[float],
    iterations: Sequence[int],
    marks: Sequence[int],
    ints: Counts,
    floats: Numbers,
    mini: Numbers,
    minis: Numbers,
    mini_iterations: Counts,
    ring: Numbers,
    ring_iterations: Counts,
    scratch: Numbers,
    knobs: Sequence[float],
) -> int:
    """Fold the points from the cursor on; stop and return a code where something is to be reported.

    ``values`` are finite or NaN (no point); ``marks`` are those of `curve.MARKS`.
    """
    while ints[CURSOR] < len(values):
        at = ints[CURSOR]
        ints[CURSOR] += 1
        if marks[at] > 0:
            # A rate that rises step by step explains from its first step on.
            if ints[MINIS] + 1 > ints[MARKED] + GRACE or ints[MARKED] == 0:
                ints[MARKED_FROM] = ints[MINIS] + 1
            ints[MARKED] = ints[MINIS] + 1
            ints[MARK] = marks[at]
        value = values[at]
        if not math.isfinite(value):
            continue
        code = watch_repeats(value, ints, floats, minis, knobs)
        ring[ints[POINTS] % RING] = value
        ring_iterations[ints[POINTS] % RING] = iterations[at]
        ints[POINTS] += 1
        # A value printed again is no new observation of the level.
        if ints[SAME_RUN] == 0:
            if ints[IN_MINI] == 0:
                mini_iterations[ints[MINIS] % MINI_RING] = iterations[at]
            insert_value(mini, ints[IN_MINI], value)
            ints[IN_MINI] += 1
            if ints[IN_MINI] == MINI:
                code = close_mini(mini, ints, floats, minis, scratch, knobs)
        if code != END:
            return code
    return END


FOLD = Fold(
    fold_drift,
    insert_value,
    mean_minis,
    spread_of,
    learn_noise,
    log_time,
    fit_decline,
    expected,
    step_score,
    shows_no_learning,
    suspect,
    settle,
    watch_step,
    watch_slope,
    watch_suspicious,
    watch_shifted,
    end_row,
    watch_repeats,
    close_mini,
)
