"""The level tests of whole-curve drift: a step and a slope, each against what the curve leads to expect.

Plain Python that numba can compile: see `kernels.Fold`.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .drift_levels import (
    FIT_REST,
    MINI_RING,
    SCRATCH,
    Counts,
    Numbers,
    end_of_line,
    expected,
    fit_before,
    fit_decline,
    mean_minis,
    spread_of,
    step_score,
)
from .drift_state import (
    AT_ONCE,
    BASE,
    END,
    EXPLAINED,
    EXPLAINED_BY,
    FROM,
    GAP_Z,
    GRACE,
    HOLD,
    JUMP,
    KIND,
    LEVEL,
    LEVEL_Z,
    MARK,
    MARKED,
    MARKED_FROM,
    MIN_SIDE,
    MIN_SLOPE,
    MIN_STEP,
    MINIS,
    NEAR,
    NOISE_SLOPE,
    NOISE_STEP,
    PAST,
    PHASE,
    SCORE,
    SIDE,
    SIGMA,
    SLOPE,
    SLOPE_Z,
    SMALL_STEP_Z,
    STEP,
    SUSPECT_Z,
    SUSPECTED,
    SUSPECTED_AT,
    SUSPICIOUS,
    TAU,
    WARM,
    WIDE,
)

MEAN_NOISE = np.array([math.inf, *(math.sqrt(1.0 / k + 1.0 / NEAR) for k in range(1, SIDE + 1))])
"""Noise of the mean of k mini-blocks less that of the `NEAR` before, by k, in that of one."""


def learn_noise(ints: Counts, floats: Numbers, minis: Numbers, scratch: Numbers) -> None:
    """Measure the noise anew; at every eighth mini-block, since it is slow to change and dear."""
    now = ints[MINIS]
    first = max(ints[FROM], now - MINI_RING)
    point = spread_of(1, 40, first, now, minis, scratch)
    if point > 0.0:
        # Of the longer ones fewer for steps: they reach back to where the curve may have bent.
        floats[NOISE_STEP] = max(point, spread_of(4, SCRATCH // 4, first, now, minis, scratch))
        longer = spread_of(4, SCRATCH, first, now, minis, scratch)
        floats[NOISE_SLOPE] = max(point, longer, spread_of(WIDE, SCRATCH, first, now, minis, scratch))


def suspect(kind: int, tau: int, base: float, jump: float, ints: Counts, floats: Numbers) -> int:
    """A change is suspected, unless something that happened to the run explains it."""
    ints[KIND] = kind
    ints[TAU] = tau
    ints[SUSPECTED_AT] = ints[MINIS]
    floats[BASE] = base
    floats[JUMP] = jump
    floats[LEVEL] = base + jump
    # A rate works by and by; other data, sizes and states are there at once.
    grace = NEAR if kind != SLOPE and ints[MARK] >= AT_ONCE else GRACE
    if ints[MARKED] > 0 and ints[MARKED_FROM] - NEAR <= tau + 1 <= ints[MARKED] + grace:
        ints[EXPLAINED_BY] = ints[MARK]
        ints[FROM] = tau
        return EXPLAINED
    ints[PHASE] = SUSPICIOUS
    return SUSPECTED


def is_step_of_size(jump: float, base: float, sigma: float, knobs: Sequence[float]) -> bool:
    """Whether a step is worth a word: by what it is of the level, or by what it is of the noise."""
    return jump > knobs[MIN_STEP] * base or (
        jump > knobs[SMALL_STEP_Z] * sigma and jump > 0.2 * knobs[MIN_STEP] * base
    )


def noise_about_fit(floats: Numbers) -> float:
    """Standard deviation of a mini-block about the fitted decline: what the fit leaves, or more as learned.

    What was learned further back may hold the bends of a young curve. Fits of 16 points leave less than
    1 / 1.75 of the noise in one case of 100.
    """
    rest = floats[FIT_REST]
    return max(rest, min(floats[NOISE_STEP], 1.75 * rest))


def fall_before(first: int, now: int, minis: Numbers) -> float:
    """By how much a mini-block falls below the one before, just before the places of a step; not below 0."""
    edge = max(first + MIN_SIDE, now - SIDE)
    span = min(12, (edge - first) // 2)
    earlier, later = mean_minis(minis, edge - 2 * span, edge - span), mean_minis(minis, edge - span, edge)
    return max(0.0, (earlier - later) / span)


def is_rise(
    stop: int, excess: float, ints: Counts, floats: Numbers, minis: Numbers, knobs: Sequence[float]
) -> bool:
    """Whether most of the excess since mini-block ``stop`` is a rise of the level itself.

    A decline that slows may leave any fit below it, but never rises.
    """
    now = ints[MINIS]
    rise = mean_minis(minis, stop, now) - mean_minis(minis, stop - NEAR, stop)
    noise = noise_about_fit(floats)
    # Later on a fit that falls too fast has more of the excess.
    share = 0.45 if now - stop <= 2 * HOLD else 0.6
    return rise > max(share * excess, knobs[LEVEL_Z] * noise * math.sqrt(1.0 / (now - stop) + 1.0 / NEAR))


def is_gap(
    stop: int, excess: float, ints: Counts, floats: Numbers, minis: Numbers, knobs: Sequence[float]
) -> bool:
    """Whether straight lines before and after ``stop`` miss each other by most of the excess where they meet.

    A step that the decline has taken back by now does not rise. But however a decline bends or stops, and
    leaves its fit, its two lines meet.
    """
    if ints[MINIS] - stop < HOLD or ints[MINIS] - stop > 2 * HOLD:
        return False
    side = min(ints[MINIS] - stop, NEAR)
    # As many on both sides: what a curve bends moves both ends alike.
    gap = end_of_line(stop, stop + side, False, minis) - end_of_line(stop - side, stop, True, minis)
    # The end of a line through n points has four times the variance of their mean.
    unsure = 2.0 * noise_about_fit(floats) * math.sqrt(2.0 / side)
    at_once = mean_minis(minis, stop, stop + 3) - expected(stop, stop + 3, floats)
    return gap > max(0.7 * excess, knobs[GAP_Z] * unsure) and at_once > 0.6 * excess


def weigh_step(
    stop: int,
    past: int,
    ints: Counts,
    floats: Numbers,
    minis: Numbers,
    scratch: Numbers,
    knobs: Sequence[float],
) -> float:
    """Score of a step at mini-block ``stop`` against the ``past`` before; 0 where the excess is no step."""
    now = ints[MINIS]
    first = ints[FROM]
    if past == PAST:
        fit_before(first, max(first, stop - past), stop, minis, floats, scratch)
    else:
        fit_decline(first, max(first, stop - past), stop, minis, floats, scratch)
    noise = noise_about_fit(floats)
    excess = mean_minis(minis, stop, now) - expected(stop, now, floats)
    score = step_score(excess, stop, now, noise, floats)
    if score <= knobs[SUSPECT_Z]:
        return 0.0
    if is_rise(stop, excess, ints, floats, minis, knobs) or is_gap(stop, excess, ints, floats, minis, knobs):
        return score
    return 0.0


def watch_step(
    ints: Counts, floats: Numbers, minis: Numbers, scratch: Numbers, knobs: Sequence[float]
) -> int:
    """The windowed likelihood ratio over all places of a step."""
    now, first = ints[MINIS], ints[FROM]
    sigma = floats[NOISE_STEP]
    if now - first < WARM or sigma == 0.0:
        return END
    fall = fall_before(first, now, minis)
    least_rise = 0.6 * knobs[LEVEL_Z] * sigma
    best, best_k, best_past = 0.0, 0, PAST
    after = 0.0
    for k in range(1, SIDE + 1):
        stop = now - k
        if stop - first < MIN_SIDE:
            break
        after += minis[stop % MINI_RING]
        rise = after / k - mean_minis(minis, stop - NEAR, stop) + 0.5 * fall * (k + NEAR)
        # Cheap, and passed by whatever passes the rest: a fit at each place is dear.
        if rise <= least_rise * MEAN_NOISE[k]:
            continue
        score = weigh_step(stop, PAST, ints, floats, minis, scratch, knobs)
        if score > best:
            best, best_k, best_past = score, k, PAST
        if floats[FIT_REST] > 1.3 * sigma or now - first < 2 * PAST:
            # The decline of so long a past is not as fitted (a step of the rate, a young run): a shorter one.
            score = weigh_step(stop, MIN_SIDE, ints, floats, minis, scratch, knobs)
            if score > best:
                best, best_k, best_past = score, k, MIN_SIDE
    if best == 0.0:
        return END
    stop = now - best_k
    weigh_step(stop, best_past, ints, floats, minis, scratch, knobs)
    base = mean_minis(minis, stop - NEAR, stop)
    jump = mean_minis(minis, stop, now) - expected(stop, now, floats)
    # A loss near zero or of changing sign has no level whose shift would mean anything.
    if base <= 6.0 * noise_about_fit(floats) or not is_step_of_size(jump, base, sigma, knobs):
        return END
    floats[SIGMA] = noise_about_fit(floats)
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
    is_large = jump > knobs[MIN_SLOPE] * best or jump > knobs[SMALL_STEP_Z] * sigma
    if score <= knobs[SLOPE_Z] or not is_large or best <= 6.0 * sigma:
        return END
    floats[SIGMA] = sigma
    floats[SCORE] = score
    return suspect(SLOPE, best_stop, best, jump, ints, floats)
