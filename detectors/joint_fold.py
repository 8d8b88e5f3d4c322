"""How far the scores of one rank at one row are from what scores of this job go together: the distance fold.

For each row and rank with a score in every metric: the scores less their own recent averages (a shift of one
metric is peer outlier's business), clipped, and from them the squared Mahalanobis distance.
"""

# ruff: noqa: PLR0917, PLR0124
# A compiled fold takes its state as flat arrays by position, and NaN is what differs from itself.

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from .kernels import Fold
from .order_statistics import Numbers

Counts = MutableSequence[int]

CURSOR, COLUMNS, METRICS = range(3)
INTS = 3

FOLLOW = 64.0
"""Points over which a score's own average is taken."""
CLIP = 4.0
"""One wild score makes one large distance, and no lasting shift of distances."""


def distance(
    base: int, at: int, metrics: int, score_V: Sequence[float], centre: Numbers, precision: Sequence[float],
    centred: Numbers,
) -> float:  # fmt: skip
    """Squared distance of the scores from ``base`` on; -1 where one is missing. Moves the averages along."""
    for m in range(metrics):
        score = score_V[base + m]
        if score != score:
            return -1.0
        score -= centre[at + m]
        centred[m] = CLIP if score > CLIP else -CLIP if score < -CLIP else score
    for m in range(metrics):
        centre[at + m] += centred[m] / FOLLOW
    total = 0.0
    for i in range(metrics):
        for j in range(metrics):
            total += precision[i * metrics + j] * centred[i] * centred[j]
    return total if total > 0.0 else 0.0


def fold_distances(
    score_V: Sequence[float], ints: Counts, centre: Numbers, precision: Sequence[float], centred: Numbers,
    given_N: Numbers,
) -> int:  # fmt: skip
    """Distances of all vectors of scores, row by row and rank by rank, into ``given_N``; -1 for none."""
    metrics, columns = ints[METRICS], ints[COLUMNS]
    while ints[CURSOR] < len(given_N):
        n = ints[CURSOR]
        ints[CURSOR] = n + 1
        at = (n % columns) * metrics
        given_N[n] = distance(n * metrics, at, metrics, score_V, centre, precision, centred)
    return 0


FOLD = Fold(fold_distances, distance)
