"""Which scores go together: a robust covariance, fitted once by scikit-learn and kept as plain numbers.

Axes: N vectors, M metrics.
"""

from __future__ import annotations

import numpy as np

from ingest.blocks import Floats

LEAST_OWN = 1e-4
"""Share of a metric's variance that the metrics before it must leave unexplained. Of two that are the same
number the second says nothing, and the covariance of both has no inverse."""
_CLIP = 4.0  # as `joint_fold.CLIP`


def fit(scores_NM: Floats) -> tuple[list[int], Floats]:
    """(the metrics that count, their M × M precision) of ``scores_NM``, whose averages are near 0.

    Minimum covariance determinant (`sklearn.covariance.MinCovDet`: Rousseeuw and Van Driessen, A fast
    algorithm for the minimum covariance determinant estimator, Technometrics 41 (1999)): the vectors are
    those of all ranks, and a rank that is wrong already while they are gathered must not teach its own
    error. Up to half of them may be wild. It needs several times as many vectors as metrics and the
    inverse of the covariance, so it is for the few curves of a rank, not for hundreds of layers;
    principal components would do for those, but mix the metrics that a verdict should name.

    >>> rng = np.random.default_rng(0)
    >>> together_N = rng.normal(size=400)
    >>> kept, precision = fit(np.stack([together_N, together_N, rng.normal(size=400)], axis=1))
    >>> kept, precision.shape
    ([0, 2], (2, 2))
    """
    clipped_NM = np.ascontiguousarray(np.clip(scores_NM, -_CLIP, _CLIP))
    kept = independent(clipped_NM)
    if len(kept) < 2:
        return kept, np.zeros((len(kept), len(kept)))
    from sklearn.covariance import MinCovDet

    # The seed chooses the first subsets only, from which the search descends: a fixed one for equal bytes.
    robust = MinCovDet(assume_centered=True, random_state=0).fit(clipped_NM[:, kept])
    return kept, np.ascontiguousarray(robust.precision_, np.float64)


def independent(scores_NM: Floats) -> list[int]:
    """The metrics, in order, that are no linear combination of the ones before."""
    kept: list[int] = []
    for metric in range(scores_NM.shape[1]):
        rest_N = scores_NM[:, metric]
        whole = float(np.dot(rest_N, rest_N))
        if kept:
            known_NK = scores_NM[:, kept]
            rest_N = rest_N - known_NK @ np.linalg.lstsq(known_NK, rest_N, rcond=None)[0]
        if whole > 0.0 and float(np.dot(rest_N, rest_N)) > LEAST_OWN * whole:
            kept.append(metric)
    return kept
