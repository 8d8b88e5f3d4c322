"""Levels, noise and decline of a curve in mini-blocks: the arithmetic of whole-curve drift.

A *mini-block* is eight points, of which the mean of the four middle values stands for all; a ring holds
the last `MINI_RING` of them, number ``b`` at ``b % MINI_RING``. Plain Python that numba can compile: see
`kernels.Fold`.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import MutableSequence

Numbers = MutableSequence[float]
Counts = MutableSequence[int]

MINI = 8
"""Points of a mini-block: autocorrelation of 0.5 is gone after it (0.4 %)."""
SCRATCH = 64
"""Differences that the noise is measured from: its own error is then about 10 %."""
MINI_RING = 256
"""Mini-blocks remembered: 2048 points, the longest slope that is seen."""

# The fitted decline, inside the floats of the fold's state.
FIT_MIDDLE, FIT_U, FIT_Y, FIT_UU, FIT_SLOPE, FIT_N, FIT_REST, FIT_ORIGIN = range(12, 20)

FITS = SCRATCH
"""Where fits are remembered, behind the room for sorting: a step is looked for at the same places as time
goes on, and a fit to what came before a place does not change."""
FIT_SLOTS = 32
"""At least as many as places of a step."""
FIT_SIZE = 10
"""Place and beginning that a fit is of, each plus 1, and its eight numbers."""
ROOM = FITS + FIT_SLOTS * FIT_SIZE


def insert_value(mini: Numbers, count: int, value: float) -> None:
    """Put ``value`` into the first ``count`` sorted elements of ``mini``."""
    at = count
    while at > 0 and mini[at - 1] > value:
        mini[at] = mini[at - 1]
        at -= 1
    mini[at] = value


def mean_minis(minis: Numbers, start: int, stop: int) -> float:
    """Mean of the mini-blocks ``[start, stop)``, which the ring still holds."""
    total = 0.0
    for at in range(start, stop):
        total += minis[at % MINI_RING]
    return total / (stop - start)


def spread_of(width: int, most: int, first: int, now: int, minis: Numbers, scratch: Numbers) -> float:
    """Standard deviation of one mini-block, from third differences of neighbouring means of ``width``.

    Third differences see neither a decline nor how it bends, only how fast that changes. The last ``most``,
    about their median, clipped at three times the median deviation, so that a step in between is no noise.
    0 if too few.
    """
    count = min((now - first) // width - 3, most)
    if count < 6:
        return 0.0
    last = mean_minis(minis, now - width, now)
    second = mean_minis(minis, now - 2 * width, now - width)
    third = mean_minis(minis, now - 3 * width, now - 2 * width)
    for at in range(count):
        stop = now - (at + 3) * width
        fourth = mean_minis(minis, stop - width, stop)
        insert_value(scratch, at, last - 3.0 * second + 3.0 * third - fourth)
        last, second, third = second, third, fourth
    centre = scratch[count // 2]
    # The median deviation: walk outwards from the middle of the sorted differences.
    low, high, limit = count // 2, count // 2, 0.0
    while high - low + 1 <= count // 2:
        below = centre - scratch[low - 1] if low > 0 else math.inf
        above = scratch[high + 1] - centre if high + 1 < count else math.inf
        if below <= above:
            low -= 1
            limit = below
        else:
            high += 1
            limit = above
    limit *= 4.5
    total = 0.0
    for at in range(count):
        total += min(abs(scratch[at] - centre), limit)
    # 1.2533 turns a mean deviation of Gaussian noise into a standard deviation; a third difference of
    # means of n has 20 times the variance of a mean, which has 1/n of that of one.
    return 1.2533 * total / count * math.sqrt(width / 20.0)


def fit_decline(
    origin: int, start: int, stop: int, minis: Numbers, floats: Numbers, scratch: Numbers
) -> None:
    """Fit level + slope * log(time) to the mini-blocks ``[start, stop)`` by least squares.

    Healthy curves fall about evenly in the logarithm of time. Time counts from ``origin``, where the
    baseline begins; after a resume or a change that bends more than the curve does, which errs on the
    quiet side. A rise is never extrapolated. The logarithm is 2 (t - m) / (t + m), m the middle of the
    window: within 1 % up to a factor of 2.
    """
    middle = 0.5 * (start + stop) - origin
    n = stop - start
    sum_u, sum_y = 0.0, 0.0
    for at in range(start, stop):
        scratch[at - start] = log_time(at - origin, middle)
    for at in range(start, stop):
        sum_u += scratch[at - start]
        sum_y += minis[at % MINI_RING]
    mean_u, mean_y = sum_u / n, sum_y / n
    uu, uy, yy = 0.0, 0.0, 0.0
    for at in range(start, stop):
        u = scratch[at - start] - mean_u
        y = minis[at % MINI_RING] - mean_y
        uu += u * u
        uy += u * y
        yy += y * y
    slope = min(uy / uu, 0.0)
    floats[FIT_ORIGIN] = origin
    floats[FIT_MIDDLE] = middle
    floats[FIT_U] = mean_u
    floats[FIT_Y] = mean_y
    floats[FIT_UU] = uu
    floats[FIT_SLOPE] = slope
    floats[FIT_N] = n
    floats[FIT_REST] = math.sqrt(max(yy - slope * uy, 0.0) / (n - 2))


def fit_before(origin: int, start: int, stop: int, minis: Numbers, floats: Numbers, scratch: Numbers) -> None:
    """As `fit_decline`, remembered for the next mini-blocks."""
    slot = FITS + (stop % FIT_SLOTS) * FIT_SIZE
    if scratch[slot] == stop + 1.0 and scratch[slot + 1] == origin + 1.0:
        for i in range(FIT_SIZE - 2):
            floats[FIT_MIDDLE + i] = scratch[slot + 2 + i]
        return
    fit_decline(origin, start, stop, minis, floats, scratch)
    scratch[slot] = stop + 1.0
    scratch[slot + 1] = origin + 1.0
    for i in range(FIT_SIZE - 2):
        scratch[slot + 2 + i] = floats[FIT_MIDDLE + i]


def log_time(at: float, middle: float) -> float:
    """Logarithm of the time of mini-block ``at`` over that of ``middle``, near ``middle``."""
    return 2.0 * (at + 0.5 - middle) / (at + 0.5 + middle)


def expected(start: int, stop: int, floats: Numbers) -> float:
    """What the fitted decline expects as the mean of the mini-blocks ``[start, stop)``."""
    total = 0.0
    for at in range(start, stop):
        total += log_time(at - floats[FIT_ORIGIN], floats[FIT_MIDDLE])
    return floats[FIT_Y] + floats[FIT_SLOPE] * (total / (stop - start) - floats[FIT_U])


def step_score(rise: float, start: int, stop: int, sigma: float, floats: Numbers) -> float:
    """A rise of the mean over ``[start, stop)`` above the fit, in its own standard deviations."""
    first = log_time(start - floats[FIT_ORIGIN], floats[FIT_MIDDLE])
    last = log_time(stop - 1 - floats[FIT_ORIGIN], floats[FIT_MIDDLE])
    off = 0.5 * (first + last) - floats[FIT_U]
    variance = 1.0 / (stop - start) + 1.0 / floats[FIT_N] + off * off / floats[FIT_UU]
    return rise / (sigma * math.sqrt(variance) + 1e-300)


def slope_of(start: int, stop: int, minis: Numbers) -> float:
    """Slope per mini-block of a straight line through the mini-blocks ``[start, stop)``."""
    n = stop - start
    centre = 0.5 * (n - 1)
    tilt, tt = 0.0, 0.0
    for at in range(n):
        tilt += (at - centre) * minis[(start + at) % MINI_RING]
        tt += (at - centre) * (at - centre)
    return tilt / tt


def end_of_line(start: int, stop: int, is_last: bool, minis: Numbers) -> float:
    """Where a straight line through the mini-blocks ``[start, stop)`` ends: at ``stop``, or at ``start``."""
    # Half a mini-block further out than the middle of the outermost: where two sides meet.
    out = 0.5 * (stop - start) * slope_of(start, stop, minis)
    return mean_minis(minis, start, stop) + (out if is_last else -out)
