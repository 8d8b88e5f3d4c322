"""How far healthy scores of a group reach: the gate of a wild step at a stated rate, whatever the tails.

Scores are counted in bins of their size, each direction by itself. A few dozen Student distributions, from
Gaussian to two degrees of freedom and of several scales, are weighed by how likely they make these counts;
the gate is where the weighted probability of a greater score (the posterior predictive) falls to the wanted
one. So few scores leave heavy tails possible and the gate high, and Gaussian noise soon brings it down to
what Gaussian noise needs. A bin holds wild scores at a small rate whatever the distribution: one fault does
not teach that tails are heavy.

Source: a Bayes factor over a grid of Student distributions (Geweke, Bayesian treatment of the independent
Student-t linear model, J. Applied Econometrics 8 (1993)), here on counts, so that it is a fold.

Axes: K distributions, B bins, J gates of the table.
"""

# ruff: noqa: PLR0917
# A compiled fold takes its state as flat arrays by position.

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ingest.blocks import Floats

from .order_statistics import Numbers
from .peer_levels import CLIP, GATE_DOWN, GATE_UP, NEXT_GATE, ROWS, TAIL_BINS, TAIL_DOWN, TAIL_UP

TAIL_EDGES = (1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 10.0, 13.0, 17.0, 25.0)
TAIL_STEPS = (*np.arange(3.0, 8.0, 0.1).tolist(), *np.geomspace(8.0, 400.0, 40).tolist())
"""Gates that probabilities are known at; between two of them they are drawn straight, which errs upward."""
FREEDOMS = (math.inf, 30.0, 15.0, 10.0, 7.0, 5.0, 4.0, 3.0, 2.0)
PRIORS = (0.8, 0.05, 0.04, 0.035, 0.03, 0.02, 0.015, 0.007, 0.003)
"""Weights before anything is seen: norms and losses are averages over many tokens."""
SCALES = (0.8, 0.87, 0.93, 1.0, 1.07, 1.15, 1.25)
"""Of one direction, over the scale that the learned variance gives: noise may be skewed."""
SCALE_SPREAD = 0.1
MEDIAN_NOISE = 0.45
"""Of the median that a value is measured from, in scales of that value: nearly Gaussian whatever the noise,
so that the middle of scores looks better behaved than their tails are."""
WILD_SHARE = 1e-6
"""Probability of each bin that no distribution takes away."""
MODELS = len(FREEDOMS) * len(SCALES)
STEPS = len(TAIL_STEPS)
EDGES = TAIL_BINS - 1
MODEL = 1 + TAIL_BINS + STEPS
"""Numbers of one distribution in the table: logarithm of its weight, those of its bins, its probabilities."""
OTHER_SHARE = 0.5
"""What a score of the other direction says of this one: noise is mostly even."""
FIRST_GATE_ROWS = 48.0
RENEWED_AFTER = 64.0
"""Rows after which gates are found anew, and half of the rows so far before that."""
MEMORY_ROWS = 4096.0
"""Rows over which counts fade, and the rows so far before that: the first scores are those of scales that
are not known well yet."""
LEAST_MEMORY = 512.0


@lru_cache(maxsize=1)
def tail_table() -> Floats:
    """Edges, steps, and the distributions one after another, as `renew_gates` reads them."""
    rows = []
    for freedom, weight in zip(FREEDOMS, PRIORS, strict=True):
        size_N, beyond_N = _survival(freedom)
        unit = _scale_of_clipped(size_N, beyond_N)
        spread = np.array([math.exp(-0.5 * (math.log(scale) / SCALE_SPREAD) ** 2) for scale in SCALES])
        for scale, share in zip(SCALES, spread / spread.sum(), strict=True):
            own = unit * scale
            edge_B = np.interp(np.array(TAIL_EDGES) / own, size_N, beyond_N)
            bin_B = -np.diff(np.concatenate(([1.0], edge_B, [0.0]))) + WILD_SHARE
            step_J = 0.5 * np.interp(np.array(TAIL_STEPS) / own, size_N, beyond_N)
            rows.append(np.concatenate(([math.log(weight * share)], np.log(bin_B), step_J)))
    return np.concatenate([TAIL_EDGES, TAIL_STEPS, *rows])


def count_score(score: float, share: float, g: int, group: Numbers, tails: Sequence[float]) -> None:
    """Put ``share`` of a score into its bin."""
    size, at = (score, g + TAIL_UP) if score > 0.0 else (-score, g + TAIL_DOWN)
    place = 0
    while place < EDGES and size >= tails[place]:
        place += 1
    group[at + place] += share


def renew_gates(g: int, wanted: float, group: Numbers, tails: Sequence[float], weight_K: Numbers) -> None:
    """Where it is due, find both gates anew and let the counts fade."""
    rows = group[g + ROWS]
    if rows < group[g + NEXT_GATE]:
        return
    passed = min(max(0.5 * rows, FIRST_GATE_ROWS / 4.0), RENEWED_AFTER)
    group[g + NEXT_GATE] = rows + passed
    group[g + GATE_UP] = gate_of(g + TAIL_UP, g + TAIL_DOWN, wanted, group, tails, weight_K)
    group[g + GATE_DOWN] = gate_of(g + TAIL_DOWN, g + TAIL_UP, wanted, group, tails, weight_K)
    kept = 1.0 - passed / min(max(rows, LEAST_MEMORY), MEMORY_ROWS)
    for place in range(g + TAIL_UP, g + TAIL_UP + 2 * TAIL_BINS):
        group[place] *= kept


def gate_of(
    at: int, other: int, wanted: float, counts: Sequence[float], tails: Sequence[float], weight_K: Numbers
) -> float:
    """The score that is passed with probability ``wanted`` in the direction whose counts are ``at``."""
    weigh_models(at, other, counts, tails, weight_K)
    low, high = 0, STEPS - 1
    if probability_at(high, tails, weight_K) >= wanted:
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        if probability_at(middle, tails, weight_K) >= wanted:
            low = middle
        else:
            high = middle
    above, below = probability_at(low, tails, weight_K), probability_at(high, tails, weight_K)
    share = min(max((above - wanted) / (above - below), 0.0), 1.0) if above > below else 1.0
    return tails[EDGES + low] + share * (tails[EDGES + high] - tails[EDGES + low])


def weigh_models(
    at: int, other: int, counts: Sequence[float], tails: Sequence[float], weight_K: Numbers
) -> None:
    """The weight of each distribution, given what was counted; they add up to 1."""
    best = -math.inf
    for k in range(MODELS):
        row = EDGES + STEPS + k * MODEL
        likely = tails[row]
        for b in range(TAIL_BINS):
            likely += (counts[at + b] + OTHER_SHARE * counts[other + b]) * tails[row + 1 + b]
        weight_K[k] = likely
        best = max(best, likely)
    total = 0.0
    for k in range(MODELS):
        # exp by + and * alone, so that the compiled and the plain form give the same bits
        weight = max(1.0 + (weight_K[k] - best) / 1024.0, 0.0)
        for _ in range(10):
            weight *= weight
        weight_K[k] = weight
        total += weight
    for k in range(MODELS):
        weight_K[k] /= total


def probability_at(step: int, tails: Sequence[float], weight_K: Sequence[float]) -> float:
    """Probability that a score of one direction passes that step, over all distributions."""
    total = 0.0
    for k in range(MODELS):
        if weight_K[k] > 0.0:
            total += weight_K[k] * tails[EDGES + STEPS + k * MODEL + 1 + TAIL_BINS + step]
    return total


@lru_cache(maxsize=64)
def student(freedom: float) -> tuple[Floats, Floats]:
    """Sizes, and the probability of a greater one, both directions together, of a Student distribution."""
    size_N = np.concatenate((np.linspace(0.0, 10.0, 4001), np.geomspace(10.0, 1e7, 6001)[1:]))
    if math.isinf(freedom):
        return size_N, np.array([math.erfc(size / math.sqrt(2.0)) for size in size_N.tolist()])
    density_N = (1.0 + size_N**2 / freedom) ** (-0.5 * (freedom + 1.0))
    piece_N = 0.5 * (density_N[1:] + density_N[:-1]) * np.diff(size_N)
    beyond_N = np.concatenate((np.cumsum(piece_N[::-1])[::-1], [0.0]))
    return size_N, beyond_N / beyond_N[0]


def _survival(freedom: float) -> tuple[Floats, Floats]:
    """The same of a value that is measured from a median (`MEDIAN_NOISE`)."""
    size_N, own_N = student(freedom)
    beyond_N = np.zeros(len(size_N))
    for node, weight in zip(*np.polynomial.hermite_e.hermegauss(15), strict=True):
        far_N = size_N + node * MEDIAN_NOISE
        one_sided_N = 0.5 * np.interp(np.abs(far_N), size_N, own_N)
        beyond_N += weight * np.where(far_N >= 0.0, one_sided_N, 1.0 - one_sided_N)
    return size_N, beyond_N / beyond_N[0]


def _scale_of_clipped(size_N: Floats, beyond_N: Floats) -> float:
    """The scale at which the variance of clipped values, as it is learned, is 1."""
    share_N = -np.diff(beyond_N)
    square_N = (0.5 * (size_N[1:] + size_N[:-1])) ** 2
    scale = 1.0
    for _ in range(60):
        scale /= math.sqrt(float(np.dot(share_N, np.minimum(scale * scale * square_N, CLIP * CLIP))))
    return scale
