"""The state of whole-curve drift as flat arrays: where each number stands, and how far the tests look."""

from __future__ import annotations

import numpy as np

from .drift_levels import MINI, MINI_RING, ROOM
from .kernels import Array

# What the fold reports (its return value).
END, SUSPECTED, CONFIRMED, LEARNED_ON, PASSED, EXPLAINED, STUCK, FLAT, HANDED_OVER, REFINED = range(10)
# Phases.
QUIET, SUSPICIOUS, SHIFTED = range(3)
# Kinds of change.
STEP, SLOPE, BENT = 1, 2, 3

# Integers of the state.
CURSOR, POINTS, IN_MINI, MINIS, FROM, PHASE, KIND, TAU, SUSPECTED_AT, MARKED, MARK = range(11)
SAME_RUN, IS_STUCK, RUN_START, EXPLAINED_BY, LONGEST, MARKED_FROM, DIGIT_STEPS = range(11, 18)
INTS = 18
# Floats of the state; `drift_levels` has the eight before the last.
LAST, REPEATS, REPEAT_CHANCE, STEP_SIZE, NOISE_STEP, NOISE_SLOPE = range(6)
BASE, SIGMA, JUMP, SCORE, LEVEL, BEFORE_RUN = range(6, 12)
GRID = 20
FLOATS = 21
# Knobs: indices into the array that CurveDriftConfig.knobs gives.
(
    SUSPECT_Z,
    CONFIRM_Z,
    SLOPE_Z,
    MIN_STEP,
    MIN_SLOPE,
    STUCK_CHANCE,
    STUCK_POINTS,
    SMALL_STEP_Z,
    LEVEL_Z,
    EXPLOSION_RISE,
    GAP_Z,
) = range(11)
KNOBS = 11

COARSE = 12
"""Steps one after another of one digit of the log after which its noise is not told from its rounding: noise
as large as a digit makes a fifth of its steps longer, and so many short ones in 1 of 15 looks."""
RING = 512
"""Points remembered for the onset of a step."""
SIDE = 24
"""Greatest number of mini-blocks on each side of a step: 192 points."""
PAST = 48
"""Mini-blocks before a step to which the decline is fitted: 384 points."""
MINI_BENT = 32
"""Mini-blocks through which the parabola of `drift_bend` is laid: 256 points."""
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
AT_ONCE = 3
"""Least mark (see `curve.MARKS`) that explains a step only where it happened: a change of the batch, the data
or the state. What comes later steps for another reason."""
HOLD = 5
"""Least mini-blocks a step must last: with the mini-block that it falls into they are full within 48 points,
and spikes that recover within 25 points have been back for as long."""
JUDGED = 32
"""Mini-blocks for which a step is compared with the fitted decline: 256 points, two thirds of what it was
fitted to."""
RELEASE = 64
"""Mini-blocks after which a suspicion that did not settle is dropped, and its level becomes normal; up to
then a confirmed step is withdrawn if the run learns on after all."""
REDATED = 10
"""Mini-blocks after which the onset of a confirmed rise is looked for anew, and again: a rise that goes on
shows ever better when it began."""
FASTER_Z = 3.5
"""By how many of its standard deviations the decline must be faster after a step than before to withdraw it:
of 26 looks at one that is not, some 6 of them independent, 1 in 700 goes so far."""
EXPLOSION_Z = 16.0
"""Rise of the level, in sigma of a mini-block, below which nothing is an explosion: of a single point that
is 6 sigma where noise is independent and 9 at a correlation of 0.6; `explosion` asks for 8."""


def make_state() -> tuple[Array, ...]:
    """Fresh state: integers, floats, mini-block, ring of mini-blocks and of their first iterations,
    ring of values and of their iterations, room for sorting and for fits."""
    return (
        np.zeros(INTS, np.int64),
        np.zeros(FLOATS),
        np.zeros(MINI),
        np.zeros(MINI_RING),
        np.zeros(MINI_RING, np.int64),
        np.zeros(RING),
        np.zeros(RING, np.int64),
        np.zeros(ROOM),
    )
