"""A step out of a decline that bends away from the logarithm of time, against a parabola before it.

A decline that only slows, and ever less so (a power law, any sum of exponentials), stays below a parabola
that is fitted to a part of it and carried on: what rises above one has not merely slowed. Plain Python that
numba can compile: see `kernels.Fold`.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ingest.blocks import Floats

from .drift_levels import MINI_RING, Counts, Numbers, fit_before, mean_minis, slope_of
from .drift_state import (
    BENT,
    CONFIRM_Z,
    END,
    FROM,
    HOLD,
    LEVEL_Z,
    MINI_BENT,
    MINIS,
    NEAR,
    PAST,
    SCORE,
    SIGMA,
    SUSPECT_Z,
)
from .drift_tests import is_step_of_size, suspect

LEAD = 8
"""Mini-blocks after a step up to which the parabola is carried on: a quarter of what it is fitted to."""
KEPT = 0.6
"""Share of the excess that the two newest mini-blocks must have: a spike of 25 points is over by then."""
RISEN = 0.45
"""Share of the excess by which the level itself must have risen, as in `drift_tests.is_rise`, or else the
lines on both sides must miss each other: a decline that stops at once leaves a parabola, too."""
SLOWING = 1.0 / 3.0
"""What straight lines through n mini-blocks on either side of a place miss each other by there, on a curve
that bends upwards at one point or throughout, is at most this share of what their slopes change by over n."""
MISSED_Z = 3.0
"""Standard deviations by which they must miss beyond that: one in 700, beside the gate that comes first."""


def _powers(at_N: Floats) -> tuple[Floats, Floats]:
    """Straight line and parabola at places ``at_N`` of the window, orthonormal over it, free of its mean."""
    middle = (MINI_BENT - 1) / 2
    inside_N = np.arange(MINI_BENT) - middle
    tilt_power = float((inside_N**2).sum())
    bow_power = float(((inside_N**2 - tilt_power / MINI_BENT) ** 2).sum())
    away_N = at_N - middle
    return away_N / math.sqrt(tilt_power), (away_N**2 - tilt_power / MINI_BENT) / math.sqrt(bow_power)


def _ahead(part: slice) -> tuple[Floats, Floats]:
    """Means of both over ``part`` of the places of each lead: those after the one that is left out."""
    places = [MINI_BENT + 1.0 + np.arange(lead)[part] for lead in range(1, LEAD + 1)]
    powers = [_powers(np.asarray(at_N, np.float64)) for at_N in places]
    return np.array([tilt_N.mean() for tilt_N, _ in powers]), np.array([bow_N.mean() for _, bow_N in powers])


EVEN = 1.0 / math.sqrt(MINI_BENT)
TILT, BOW = _powers(np.arange(MINI_BENT, dtype=np.float64))
TILT_AHEAD, BOW_AHEAD = _ahead(slice(None))
TILT_NEWEST, BOW_NEWEST = _ahead(slice(-2, None))


def bend_score(
    stop: int, lead: int, ints: Counts, minis: Numbers, scratch: Numbers, knobs: Sequence[float]
) -> float:  # fmt: skip
    """Standard deviations of the mean of ``lead`` mini-blocks from ``stop`` on above the parabola.

    0 where that is no step. The mini-block before ``stop`` may hold the step itself and is left out. Puts the
    excess, and the noise of a mini-block, into ``scratch``.
    """
    first = stop - 1 - MINI_BENT
    if first < ints[FROM]:
        return 0.0
    base = minis[first % MINI_RING]
    total, flat, tilt, bow = 0.0, 0.0, 0.0, 0.0
    for at in range(MINI_BENT):
        value = minis[(first + at) % MINI_RING] - base
        total += value * value
        flat += EVEN * value
        tilt += TILT[at] * value
        bow += BOW[at] * value
    # What was learned further back may hold the bends of a young curve.
    noise = math.sqrt(max(total - flat * flat - tilt * tilt - bow * bow, 0.0) / (MINI_BENT - 3))
    at = lead - 1
    level = mean_minis(minis, stop, stop + lead)
    excess = level - (base + EVEN * flat + TILT_AHEAD[at] * tilt + BOW_AHEAD[at] * bow)
    ahead = EVEN * EVEN + TILT_AHEAD[at] * TILT_AHEAD[at] + BOW_AHEAD[at] * BOW_AHEAD[at]
    score = excess / (noise * math.sqrt(1.0 / lead + ahead) + 1e-300)
    scratch[0], scratch[1] = excess, noise
    rise = level - mean_minis(minis, stop - 1 - NEAR, stop - 1)
    least = knobs[LEVEL_Z] * noise * math.sqrt(1.0 / lead + 1.0 / NEAR)
    newest = mean_minis(minis, stop + lead - 2, stop + lead)
    newest -= base + EVEN * flat + TILT_NEWEST[at] * tilt + BOW_NEWEST[at] * bow
    if score <= knobs[SUSPECT_Z] or newest <= KEPT * excess:
        return 0.0
    has_risen = rise > max(RISEN * excess, least)
    return score if has_risen or missed_by(stop, lead, minis) > MISSED_Z * noise else 0.0


def missed_by(stop: int, lead: int, minis: Numbers) -> float:
    """How far lines through ``lead`` mini-blocks before and after the one that is left out miss each other in
    its middle, beyond what a decline that slows makes; for independent noise of standard deviation 1."""
    before, after = slope_of(stop - 1 - lead, stop - 1, minis), slope_of(stop, stop + lead, minis)
    out = 0.5 * (lead + 1)
    gap = mean_minis(minis, stop, stop + lead) - out * after
    gap -= mean_minis(minis, stop - 1 - lead, stop - 1) + out * before
    gap -= SLOWING * (lead + 1) * max(after - before, 0.0)
    return gap / math.sqrt(2.0 / lead + 24.0 * out * out / (lead * (lead * lead - 1.0)))


def watch_bend(
    ints: Counts, floats: Numbers, minis: Numbers, scratch: Numbers, knobs: Sequence[float]
) -> int:
    """The same at the few places at which a step would have lasted long enough by now."""
    now, first = ints[MINIS], ints[FROM]
    best, best_lead, excess, noise = 0.0, 0, 0.0, 0.0
    for lead in range(HOLD, LEAD + 1):
        score = bend_score(now - lead, lead, ints, minis, scratch, knobs)
        if score > best:
            best, best_lead, excess, noise = score, lead, scratch[0], scratch[1]
    if best == 0.0:
        return END
    stop = now - best_lead
    base = mean_minis(minis, stop - 1 - NEAR, stop - 1)
    if base <= 6.0 * noise or not is_step_of_size(excess, base, noise, knobs):
        return END
    fit_before(first, max(first, stop - PAST), stop, minis, floats, scratch)
    floats[SIGMA] = noise
    floats[SCORE] = best
    return suspect(BENT, stop, base, excess, ints, floats)


def is_lasting_bend(
    tau: int, ints: Counts, floats: Numbers, minis: Numbers, scratch: Numbers, knobs: Sequence[float]
) -> bool:
    """Whether a step at ``tau``, or inside that mini-block, stands above the parabola with all since."""
    since = ints[MINIS] - tau
    if since <= HOLD or since > LEAD + HOLD:
        return False
    for stop in range(tau, tau + 2):
        score = bend_score(stop, min(ints[MINIS] - stop, LEAD), ints, minis, scratch, knobs)
        if score > knobs[CONFIRM_Z]:
            floats[SCORE] = score
            return True
    return False
