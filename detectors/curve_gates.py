"""Gates of the curve detectors from error rates: how many standard deviations a stated rate is worth.

A curve is tested at every mini-block and at many places; neighbouring tests share most of their points, so
that fewer count as independent. The noise is learned from few differences, which makes the tails those of
Student's t. Source of its quantile: Fisher and Cornish, Technometrics 2 (1960), the expansion in 1 / nu.
"""

from __future__ import annotations

from statistics import NormalDist

STEP_TESTS = 300_000
"""Independent tests for a step in a million points: 125 000 mini-blocks of 24 places each, which share most
of their points. Counted, not derived; the measured rates stand beside the settings."""
STEP_FREEDOM = 48
"""Degrees of freedom of the noise about a step: 40 third differences of mini-blocks, each shared by three,
and the 48 mini-blocks of the fit."""
SLOPE_TESTS = 120_000
"""Independent tests for a slope in a million points: 7 800 levels of 128 points, each against up to 15."""
SLOPE_FREEDOM = 13
"""Degrees of freedom of the noise of a level of 128 points: that many third differences are remembered."""


def student_sigmas(chance: float, freedom: float) -> float:
    """The value that a Student t of ``freedom`` degrees exceeds with this chance.

    >>> round(student_sigmas(1e-5, 48), 2)  # 4.26 for noise that is known
    4.73
    """
    z = NormalDist().inv_cdf(1.0 - chance)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )


def step_sigmas(per_million: float) -> float:
    """The gate of the step test that healthy noise passes so often in a million points."""
    return student_sigmas(per_million / STEP_TESTS, STEP_FREEDOM)


def slope_sigmas(per_million: float) -> float:
    """The same of the slope test."""
    return student_sigmas(per_million / SLOPE_TESTS, SLOPE_FREEDOM)


def normal_sigmas(chance: float) -> float:
    """The value that Gaussian noise exceeds with this chance."""
    return NormalDist().inv_cdf(1.0 - chance)
