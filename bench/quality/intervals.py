"""Intervals of confidence: a share, a rate, a median, and anything that can be drawn again.

>>> low, high = wilson(9, 10)
>>> round(low, 2), round(high, 2)
(0.6, 0.98)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from firstfault.drill.rig.shares import Share

T = TypeVar("T")
_DRAWS = 400
"""Bootstrap draws: the ends of an interval move by a twentieth of its width from one set to another."""


def wilson(hits: int, cases: int) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's score, which stays inside 0 and 1."""
    return Share(hits, cases).interval()


def exact_share(hits: int, cases: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson), for shares next to 0 or 1."""
    from scipy.stats import beta

    if cases == 0:
        return 0.0, 1.0
    low = 0.0 if hits == 0 else float(beta.ppf(0.025, hits, cases - hits + 1))
    high = 1.0 if hits == cases else float(beta.ppf(0.975, hits + 1, cases - hits))
    return low, high


def poisson_mean(count: int) -> tuple[float, float]:
    """The exact 95 % interval of a Poisson mean: Garwood, Biometrika 28 (1936)."""
    from scipy.stats import chi2

    low = float(chi2.ppf(0.025, 2 * count)) / 2 if count else 0.0
    return low, float(chi2.ppf(0.975, 2 * count + 2)) / 2


def exact_rate(count: int, exposure: float) -> tuple[float, float]:
    """The exact 95 % interval of a rate from a Poisson count, one-sided where nothing was seen."""
    if exposure <= 0:
        return 0.0, math.inf
    if count == 0:
        return 0.0, -math.log(0.05) / exposure
    low, high = poisson_mean(count)
    return low / exposure, high / exposure


def quantile_interval(values: Sequence[float], share: float) -> tuple[float, float]:
    """The 95 % interval of a quantile from the ranks of the ordered values: no shape is assumed."""
    from scipy.stats import binom

    ordered, cases = sorted(values), len(values)
    if not ordered:
        return math.nan, math.nan
    low = int(binom.ppf(0.025, cases, share)) - 1
    high = int(binom.ppf(0.975, cases, share))
    return ordered[max(low, 0)], ordered[min(high, cases - 1)]


def bootstrap(
    cases: Sequence[T], figure: Callable[[Sequence[T]], float], seed: int = 0
) -> tuple[float, float]:
    """The 95 % interval of ``figure`` by drawing the cases again, with replacement."""
    if not cases:
        return math.nan, math.nan
    rng = np.random.default_rng([seed, len(cases)])
    drawn = [figure([cases[at] for at in rng.integers(0, len(cases), len(cases))]) for _ in range(_DRAWS)]
    known = [value for value in drawn if not math.isnan(value)]
    if not known:
        return math.nan, math.nan
    low, high = np.quantile(known, (0.025, 0.975))
    return float(low), float(high)
