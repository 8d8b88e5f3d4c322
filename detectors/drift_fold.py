"""The point-by-point part of whole-curve drift: level tests on mini-blocks, and repeated values.

Eight points make a *mini-block*; the mean of its four middle values stands for it, so that two wild
points cannot move it. Three tests run on mini-blocks, one on points:

* *step*: the last k mini-blocks, for every k up to 24, against what the 48 before them lead to expect (a
  windowed generalized likelihood ratio: the change may lie anywhere in between), and against the level
  of the 6 just before;
* *slope*: the last 16 against the best 16 of the last 256;
* *no learning*: the first 64 mini-blocks end where they began;
* *stuck*: the same bits again and again, more often than this curve repeats values by itself.

The noise of a mini-block is measured from third differences of neighbours and of means of 4 (of 16 too
for slopes), and the greatest counts: noise that is correlated over time shows in the longer ones. It is
frozen while a change is suspected. A decline is carried on for 256 points at most (512 to withdraw) and in
the logarithm of time, which bends as healthy curves do; nothing is suspected unless the level has risen.

A step that lasts for `HOLD` mini-blocks is confirmed. Whether it is the lasting step of a fault or that of a
change of data that nobody told of, after which the excess decays over some hundred iterations, cannot be seen
by then; a confirmed step is withdrawn when two thirds of the excess have decayed.

Source: windowed GLR, Lai, Sequential changepoint detection in quality control, JRSS B 57 (1995), eq. 8,
with the known level before the change replaced by a fit.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import Sequence

from .drift_bend import bend_score, is_lasting_bend, missed_by, watch_bend
from .drift_course import (
    comes_again,
    gentlest_decline,
    is_lasting_rise,
    lasting_slope,
    lasting_step,
    learns_faster,
    settle,
    watch_shifted,
    watch_suspicious,
)
from .drift_levels import (
    MINI,
    MINI_RING,
    Counts,
    Numbers,
    end_of_line,
    expected,
    fit_before,
    fit_decline,
    insert_value,
    log_time,
    mean_minis,
    slope_of,
    spread_of,
    step_score,
)
from .drift_repeats import (
    end_row,
    watch_repeats,
)
from .drift_state import (
    BASE,
    CURSOR,
    END,
    FLAT,
    FROM,
    GRACE,
    IN_MINI,
    LEVEL,
    MARK,
    MARKED,
    MARKED_FROM,
    MINIS,
    NOISE_STEP,
    PHASE,
    POINTS,
    RELEASE,
    RING,
    SAME_RUN,
    SCORE,
    SHIFTED,
    SUSPICIOUS,
    WIDE,
)
from .drift_tests import (
    fall_before,
    is_gap,
    is_rise,
    is_step_of_size,
    learn_noise,
    noise_about_fit,
    suspect,
    watch_slope,
    watch_step,
    weigh_step,
)
from .kernels import Fold


def close_mini(
    mini: Numbers, ints: Counts, floats: Numbers, minis: Numbers, scratch: Numbers, knobs: Sequence[float]
) -> int:
    """A mini-block is full: learn or test."""
    minis[ints[MINIS] % MINI_RING] = (mini[2] + mini[3] + mini[4] + mini[5]) * 0.25
    ints[MINIS] += 1
    ints[IN_MINI] = 0
    if ints[PHASE] == SUSPICIOUS:
        return watch_suspicious(ints, floats, minis, scratch, knobs)
    if ints[PHASE] == SHIFTED:
        return watch_shifted(ints, floats, minis)
    code = watch_step(ints, floats, minis, scratch, knobs)
    if code == END:
        code = watch_bend(ints, floats, minis, scratch, knobs)
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
        # A loss that begins at 0 was not computed yet, and is no level.
        if not math.isfinite(value) or (value == 0.0 and ints[POINTS] == 0):
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
    fit_before,
    expected,
    slope_of,
    end_of_line,
    step_score,
    is_step_of_size,
    suspect,
    settle,
    noise_about_fit,
    fall_before,
    is_rise,
    is_gap,
    weigh_step,
    watch_step,
    watch_slope,
    missed_by,
    bend_score,
    watch_bend,
    is_lasting_bend,
    is_lasting_rise,
    comes_again,
    lasting_slope,
    gentlest_decline,
    lasting_step,
    watch_suspicious,
    learns_faster,
    watch_shifted,
    end_row,
    watch_repeats,
    close_mini,
    inlines=True,
)
