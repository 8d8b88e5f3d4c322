"""What becomes of a change that is suspected: it lasts, it passes, or the run learns on.

Plain Python that numba can compile: see `kernels.Fold`.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import Sequence

from .drift_bend import is_lasting_bend
from .drift_levels import (
    FIT_Y,
    MINI_RING,
    Counts,
    Numbers,
    expected,
    fit_decline,
    mean_minis,
    slope_of,
    step_score,
)
from .drift_state import (
    BASE,
    BENT,
    CONFIRM_Z,
    CONFIRMED,
    END,
    EXPLOSION_RISE,
    EXPLOSION_Z,
    FASTER_Z,
    FROM,
    HANDED_OVER,
    HOLD,
    JUDGED,
    JUMP,
    KIND,
    LEARNED_ON,
    LEVEL,
    MARKED,
    MINIS,
    NEAR,
    PASSED,
    PAST,
    PHASE,
    QUIET,
    REDATED,
    REFINED,
    RELEASE,
    SCORE,
    SHIFTED,
    SIDE,
    SIGMA,
    SLOPE,
    SLOPE_Z,
    SUSPECTED_AT,
    TAU,
    WIDE,
)
from .drift_tests import (
    is_gap,
    is_rise,
    is_step_of_size,
)

AS_MUCH = 0.7
"""Share of a rise that an earlier one must have had, up and down again, to be one of the same kind: between
them the curve learns, and the earlier rise is less by that."""
AS_LONG = 1.25
"""How much longer than the earlier one it may last."""


def watch_suspicious(
    ints: Counts, floats: Numbers, minis: Numbers, scratch: Numbers, knobs: Sequence[float]
) -> int:
    """A new mini-block while a change is suspected: does it last, or does the run learn on?"""
    now, tau = ints[MINIS], ints[TAU]
    since = now - tau
    base, sigma = floats[BASE], floats[SIGMA]
    is_slope = ints[KIND] == SLOPE
    if ints[MARKED] > ints[SUSPECTED_AT]:
        # New data or another rate since: what the curve does from here on is theirs, whatever was suspected.
        return settle(PASSED, now, ints)
    if mean_minis(minis, now - 2, now) - base > max(knobs[EXPLOSION_RISE] * base, EXPLOSION_Z * sigma):
        # So much is an explosion, or a spike that recovers: explosion.py judges it.
        return settle(HANDED_OVER, now, ints)
    past = base if is_slope else expected(now - 4, now, floats)
    recent = mean_minis(minis, now - 4, now) - past
    if since >= 4 and recent < 0.35 * floats[JUMP]:
        return settle(LEARNED_ON if since > HOLD else PASSED, now - 4, ints)
    lasts = False
    rise = max(floats[JUMP], mean_minis(minis, tau, now) - base)
    if not comes_again(recent if is_slope else rise, ints, minis):
        lasts = (
            lasting_slope(ints, floats, minis, knobs)
            if is_slope
            else lasting_step(recent, ints, floats, minis, scratch, knobs)
        )
    if lasts:
        ints[PHASE] = SHIFTED
        return CONFIRMED
    if not is_slope and since > JUDGED:
        # No step; whether it is a slow rise is for the slope test to say, with the baseline as it was.
        return settle(PASSED, ints[FROM], ints)
    if now - ints[SUSPECTED_AT] >= RELEASE:
        return settle(LEARNED_ON, now - SIDE, ints)
    return END


def comes_again(rise: float, ints: Counts, minis: Numbers) -> bool:
    """Whether the curve has risen as much before, come back from it, and may do so once more.

    So it does under a learning rate that goes up and down and that nobody logged. What lasts longer than the
    last time is no cycle.
    """
    now, tau = ints[MINIS], ints[TAU]
    first = max(0, now - MINI_RING)
    low, peak, began, longest = math.inf, 0.0, -1, 0
    for stop in range(first + NEAR, tau + 1):
        least = minis[(stop - 1) % MINI_RING]
        for at in range(stop - NEAR, stop - 1):
            least = min(least, minis[at % MINI_RING])
        mean = mean_minis(minis, stop - NEAR, stop)
        if began < 0:
            low = min(low, mean)
            # the least of them: a spike fills none
            if least - low >= AS_MUCH * rise:
                began, peak = stop - NEAR, least
            continue
        peak = max(peak, least)
        if peak - mean >= AS_MUCH * rise:
            longest = max(longest, stop - began)
            low, began = mean, -1
    return longest > 0 and now - tau <= AS_LONG * longest


def lasting_slope(ints: Counts, floats: Numbers, minis: Numbers, knobs: Sequence[float]) -> bool:
    """Whether a slope that is suspected has gone on rising."""
    now = ints[MINIS]
    level = mean_minis(minis, now - WIDE, now) - floats[BASE]
    floats[SCORE] = level / (floats[SIGMA] * math.sqrt(2.0 / WIDE) + 1e-300)
    if now - ints[SUSPECTED_AT] < HOLD + 1 or level < floats[JUMP] or floats[SCORE] < knobs[SLOPE_Z]:
        return False
    floats[LEVEL] = floats[BASE] + level
    return True


def gentlest_decline(tau: int, ints: Counts, floats: Numbers, minis: Numbers, scratch: Numbers) -> None:
    """Keep the gentler of two fits before the step, to be carried on for as long as it may be withdrawn.

    A decline that flattens faster than in the logarithm of time would hide for ever that the excess decays.
    """
    first = ints[FROM]
    fit_decline(first, max(first, tau - PAST), tau, minis, floats, scratch)
    far = floats[FIT_Y] - expected(tau + JUDGED - 1, tau + JUDGED, floats)
    at_step = floats[FIT_Y] - expected(tau, tau + 1, floats)
    long_fall = far - at_step
    fit_decline(first, max(first, tau - SIDE), tau, minis, floats, scratch)
    far = floats[FIT_Y] - expected(tau + JUDGED - 1, tau + JUDGED, floats)
    at_step = floats[FIT_Y] - expected(tau, tau + 1, floats)
    if far - at_step > long_fall:
        fit_decline(first, max(first, tau - PAST), tau, minis, floats, scratch)


def lasting_step(
    recent: float, ints: Counts, floats: Numbers, minis: Numbers, scratch: Numbers, knobs: Sequence[float]
) -> bool:
    """Whether a step that is suspected has lasted long enough, all points since it counted."""
    now, tau = ints[MINIS], ints[TAU]
    since = now - tau
    if since < HOLD or since > JUDGED:
        return False
    level = mean_minis(minis, tau, now)
    excess = level - expected(tau, now, floats)
    floats[SCORE] = step_score(excess, tau, now, floats[SIGMA], floats)
    if recent < 0.6 * excess:
        return False
    if not is_lasting_rise(excess, ints, floats, minis, knobs):
        if not is_lasting_bend(tau, ints, floats, minis, scratch, knobs):
            return False
        ints[KIND] = BENT
        excess = scratch[0]
    floats[LEVEL] = level
    floats[JUMP] = excess
    gentlest_decline(tau, ints, floats, minis, scratch)
    return is_step_of_size(excess, floats[BASE], floats[SIGMA], knobs)


def is_lasting_rise(
    excess: float, ints: Counts, floats: Numbers, minis: Numbers, knobs: Sequence[float]
) -> bool:
    """Whether a step out of the fitted decline passes the gate, and is a rise or a gap."""
    tau = ints[TAU]
    if ints[KIND] == BENT or floats[SCORE] < knobs[CONFIRM_Z]:
        return False
    return is_rise(tau, excess, ints, floats, minis, knobs) or is_gap(tau, excess, ints, floats, minis, knobs)


def settle(code: int, baseline_from: int, ints: Counts) -> int:
    """Back to quiet, with a baseline that begins at mini-block ``baseline_from``."""
    ints[PHASE] = QUIET
    ints[FROM] = max(ints[FROM], baseline_from)
    return code


def learns_faster(ints: Counts, floats: Numbers, minis: Numbers) -> bool:
    """Whether the loss falls faster since the step than before, and has taken a third of it back that way.

    Declines slow down. One that a step makes faster is the learning of what came with the step.
    """
    now, tau = ints[MINIS], ints[TAU]
    n = min(now - tau, JUDGED)
    if n < 2 * NEAR or tau - n < ints[FROM]:
        return False
    faster = slope_of(tau - n, tau, minis) - slope_of(tau, tau + n, minis)
    unsure = floats[SIGMA] * math.sqrt(24.0 / (n * n * n))
    return faster * n > 0.35 * floats[JUMP] and faster > FASTER_Z * unsure


def watch_shifted(ints: Counts, floats: Numbers, minis: Numbers) -> int:
    """After a confirmed change its level is the new normal, one release time later, unless it goes away.

    Until then a rise shows ever better when it began.
    """
    now, tau = ints[MINIS], ints[TAU]
    if ints[KIND] == SLOPE and mean_minis(minis, now - 8, now) - floats[BASE] < 0.35 * floats[JUMP]:
        # What rises slowly and comes all the way back was the schedule, or is over.
        return settle(LEARNED_ON, now - 8, ints)
    if ints[KIND] != SLOPE and ints[MINIS] % 2 == 0:
        if learns_faster(ints, floats, minis):
            return settle(LEARNED_ON, now - 8, ints)
        # Compared with the decline it had before: a run that goes on to fall as it did has not come back.
        excess = mean_minis(minis, now - 8, now) - expected(now - 8, now, floats)
        newest = mean_minis(minis, now - 2, now) - expected(now - 2, now, floats)
        # A level that falls at once by more than it had risen is the work of the schedule, and no recovery.
        if now - tau >= 8 and excess < 0.35 * floats[JUMP] and newest > -0.7 * floats[JUMP]:
            return settle(LEARNED_ON, now - 8, ints)
    if now - ints[SUSPECTED_AT] >= RELEASE:
        return settle(END, now - SIDE, ints)
    return REFINED if (now - ints[SUSPECTED_AT]) % REDATED == 0 else END
