"""Where a curve changed: the change point in the window before an alarm, and how sure that is.

Axes: K points of a window, oldest first, at most `MAX_WINDOW`; C candidate change points; S shapes.

Two shapes are fitted by least squares at every possible change point, exactly, from cumulative sums:
a *step* (level a before, b after) and a *ramp* (level a before, then a straight line from it); the
shape with the smaller rest wins. Only changes upwards are fitted: a window may hold the fast decline of a
young run, which is the greater change. The interval holds every change point whose rest is within what
noise explains. Where that leaves more than one candidate, ruptures' KernelCPD (linear kernel) on the
same window confirms or refines a step. This runs at an alarm only, never per point.

Source: exact single change point by least squares, Hinkley, Biometrika 57 (1970); the interval is the
likelihood-ratio set of Siegmund, Confidence sets in change-point problems, Int. Stat. Rev. 56 (1988),
with the noise variance multiplied by its autocorrelation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingest.blocks import Flags, Floats, Ints

from .medians import median

MAX_WINDOW = 200
"""Points looked at: KernelCPD takes about 0.4 µs a point here, and older ones say little."""
MIN_BEFORE = 4
"""Points a level needs before the change; fewer leave it undefined."""
MIN_REFINED = 12
"""Points from which on ruptures is asked; of fewer it may find no segmentation."""
SURE = 7.0
"""Drop of the log likelihood (in units of the noise variance, halved) up to which a change point stays
possible: exp(-7) is about 1 in 1000."""

HIGH, LEAST_HIGH = 4.0, 3
"""Standard deviations, and values in a row beyond them, that are no noise any more."""
CLEAN = 2.0
"""Standard deviations up to which a value before those may be noise alone."""
BEFORE, WANDERS = 16, 0.25
"""Values before those, and the share of them that may not be clean: noise alone makes it a fortieth."""


@dataclass(frozen=True, slots=True)
class Onset:
    """Indices into the window: the change lies in ``(last_clean, first_bad]``, most likely at ``at``.

    ``at`` is the first point of the new regime. ``last_clean`` is -1 when the window holds no point
    that is clean for sure. ``shape`` is step or ramp; ``is_confirmed`` says ruptures agreed or that one
    candidate alone was left.
    """

    at: int
    last_clean: int
    first_bad: int
    shape: str
    is_confirmed: bool

    def in_iterations(self, iteration_K: Ints) -> dict[str, Any]:
        """The same as plain data, in the log's own counter."""
        return {
            "iteration": int(iteration_K[self.at]),
            "first_bad": int(iteration_K[self.first_bad]),
            "last_clean": int(iteration_K[self.last_clean]) if self.last_clean >= 0 else None,
            "shape": self.shape,
            "is_confirmed": self.is_confirmed,
        }


def from_first_high(found: Onset, values_K: Floats, *, base: float, sigma: float) -> Onset:
    """``found``, or the begin of the run of high values right before it.

    Growth that speeds up bends upwards in any scale: the ramp that fits it best begins late, at points that
    are plainly above the level already. ``base`` and ``sigma`` are those of the points before the growth;
    three values in a row beyond `HIGH` of them are part of it, and what is beyond `CLEAN` is not clean.

    >>> found = Onset(at=9, last_clean=8, first_bad=9, shape="ramp", is_confirmed=False)
    >>> from_first_high(found, np.array([0, 0, 0, 0, 0, 3, 5, 6, 8, 11, 20.0]), base=0.0, sigma=1.0)
    Onset(at=6, last_clean=4, first_bad=8, shape='ramp', is_confirmed=False)
    """
    high = _run_before(values_K[: found.at] > base + HIGH * sigma)
    at = found.at - high
    is_unclean_K = values_K[:at] > base + CLEAN * sigma
    last_clean = at - 1 - _run_before(is_unclean_K)
    before_K = is_unclean_K[max(last_clean + 1 - BEFORE, 0) : max(last_clean + 1, 0)]
    # A level that wanders is high now and then without growing: it says nothing of the begin.
    if high < LEAST_HIGH or len(before_K) == 0 or float(before_K.mean()) > WANDERS:
        return found
    return Onset(
        at=at,
        last_clean=min(found.last_clean, last_clean),
        first_bad=min(found.first_bad, at + LEAST_HIGH - 1),
        shape=found.shape,
        is_confirmed=False,
    )


def _run_before(is_high_K: Flags) -> int:
    """How many values at the end are high without a break."""
    low_K = np.flatnonzero(~is_high_K)
    return len(is_high_K) - 1 - int(low_K[-1]) if len(low_K) else len(is_high_K)


def find_onset(
    values_K: Floats,
    *,
    use_log: bool,
    is_from_start: bool = False,
    refine: bool = True,
    shapes: tuple[str, ...] = ("step", "ramp"),
) -> Onset:
    """The most likely change point of ``values_K``, which rise at some point and stay up.

    With ``use_log`` the logarithm is fitted where all values are positive: growth is multiplicative.
    ``is_from_start`` says that nothing was observed before the window: one point before the change is
    then enough, since the first loss is that of a model that nothing has touched yet. ``refine`` asks
    ruptures where more than one candidate is left; its import takes a second.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> level = np.where(np.arange(60) < 40, 2.0, 3.0) * np.exp(rng.normal(0, 0.01, 60))
    >>> found = find_onset(level, use_log=True)
    >>> (found.at, found.last_clean, found.first_bad, found.shape)
    (40, 39, 40, 'step')
    """
    y_K = np.asarray(values_K[-MAX_WINDOW:], np.float64)
    skipped = len(values_K) - len(y_K)
    is_from_start = is_from_start and skipped == 0
    least = 1 if is_from_start else MIN_BEFORE
    if use_log and bool((y_K > 0).all()):
        y_K = np.log(y_K)
    K = len(y_K)
    if least + 2 > K:
        last = skipped + K - 1
        return Onset(at=last, last_clean=-1, first_bad=last, shape="step", is_confirmed=False)
    y_K = y_K / (float(np.max(np.abs(y_K))) or 1.0)
    c_C = np.arange(least, K)
    shape, at, low, high = _fit(y_K, c_C, shapes)
    is_confirmed = low == high
    if refine and not is_confirmed and shape == "step" and K >= MIN_REFINED:
        at, is_confirmed = _refine(y_K, at, low, high)
    # A change at the first candidate may as well lie before the window, unless nothing does.
    last_clean = skipped + low - 1 if low > least or is_from_start else -1
    return Onset(
        at=skipped + at,
        last_clean=last_clean,
        first_bad=skipped + high,
        shape=shape,
        is_confirmed=is_confirmed,
    )


def _fit(y_K: Floats, c_C: Ints, shapes: tuple[str, ...]) -> tuple[str, int, int, int]:
    """(best shape, most likely change point, first and last possible one) of the candidates."""
    rest_SC = np.stack(
        [_rest_of_steps(y_K, c_C) if shape == "step" else _rest_of_ramps(y_K, c_C) for shape in shapes]
    )
    # A candidate stays possible if either shape allows it.
    rest_C = rest_SC.min(axis=0)
    best = int(rest_C.argmin())
    at = int(c_C[best])
    possible_C = np.flatnonzero(rest_C - rest_C[best] <= 2.0 * SURE * _noise_variance(y_K, at))
    shape = shapes[int(rest_SC[:, best].argmin())]
    return shape, at, int(c_C[possible_C[0]]), int(c_C[possible_C[-1]])


def _rest_of_steps(y_K: Floats, c_C: Ints) -> Floats:
    """Sum of squares left by a step up at each candidate c: points [0, c) and [c, K)."""
    K = len(y_K)
    sum_K = np.concatenate(([0.0], np.cumsum(y_K)))
    total = float(np.dot(y_K, y_K))
    before_C = sum_K[c_C]
    after_C = sum_K[-1] - before_C
    is_rise_C = after_C * c_C > before_C * (K - c_C)
    level = float(sum_K[-1]) ** 2 / K
    return np.asarray(total - np.where(is_rise_C, before_C**2 / c_C + after_C**2 / (K - c_C), level))


def _rest_of_ramps(y_K: Floats, c_C: Ints) -> Floats:
    """Sum of squares left by y = a + b * max(0, t - c + 1) at each candidate c, a free, b free but >= 0."""
    K = len(y_K)
    n_C = (K - c_C).astype(np.float64)
    # Sums over the hinge u = 1 … n of the points from c on.
    u1_C = n_C * (n_C + 1) / 2
    u2_C = n_C * (n_C + 1) * (2 * n_C + 1) / 6
    tail_K = np.concatenate((np.cumsum(y_K[::-1])[::-1], [0.0]))
    # sum of u*y over the tail: each y_t counts once for every candidate start at or before t.
    uy_K = np.cumsum(tail_K[:-1][::-1])[::-1]
    uy_C = uy_K[c_C]
    mean = float(y_K.mean())
    suu_C = u2_C - u1_C**2 / K
    suy_C = uy_C - u1_C * mean
    syy = float(np.dot(y_K - mean, y_K - mean))
    return np.asarray(syy - np.maximum(suy_C, 0.0) ** 2 / suu_C)


def _noise_variance(y_K: Floats, at: int) -> float:
    """Variance of one point about its level before ``at``, times (1 + phi) / (1 - phi) for its AR(1).

    Fewer than `MIN_BEFORE` points before have none: the steps between all points stand in.
    """
    before_K = y_K[:at] if at >= MIN_BEFORE else y_K
    # Differences do not see a decline; their median does not see a spike.
    sigma = median(np.abs(np.diff(before_K))) / 0.6745 / math.sqrt(2.0)
    if at < MIN_BEFORE:
        return sigma**2
    centred_K = before_K - before_K.mean()
    power = float(np.dot(centred_K, centred_K))
    phi = float(np.dot(centred_K[1:], centred_K[:-1])) / power if power > 0 else 0.0
    phi = min(max(phi, 0.0), 0.9)
    variance = max(sigma**2, power / at / 4.0)
    return variance * (1 + phi) / (1 - phi)


def _refine(y_K: Floats, at: int, low: int, high: int) -> tuple[int, bool]:
    """ruptures' best single change point if it is possible too and a rise, and whether it agrees with ``at``.

    Its greatest change may be the decline before: that of a young run is larger than a growth of few points.
    """
    import ruptures

    found = int(ruptures.KernelCPD(kernel="linear", min_size=2).fit(y_K.reshape(-1, 1)).predict(n_bkps=1)[0])
    if low <= found <= high and y_K[found:].mean() > y_K[:found].mean():
        return found, True
    return at, False
