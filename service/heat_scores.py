"""How bad each value of a metric is beside those of its peers: what a heat map colours.

Axes: T positions, R ranks.

A badness orders everything that a cell may hold: NaN before infinities, before a value that differs where
all must agree, before one that is missing, before numbers by how far they lie from the median of their
peers. Decides nothing: detectors judge by their own rules, this is for a person's eye.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from detectors.groups import equality_classes, peer_classes
from detectors.medians import row_medians
from firstfault.mesh import Layout
from firstfault.telemetry import Kind, MetricContract, Relation
from ingest.blocks import Flags, Floats, Ints

from .history_matrix import Matrix


class Mark(IntEnum):
    """What a cell holds, in ascending order of how bad it is."""

    NOTHING = 0
    VALUE = 1
    MISSING = 2
    LATE = 3
    DIFFERS = 4
    COUNTED = 5
    """A count of values that were not finite."""
    NEGATIVE_INFINITY = 6
    POSITIVE_INFINITY = 7
    NAN = 8


TIER = 1e6
"""Badness is mark × this + score: a score stays below it."""
_CLOSE = 1e-3
"""Relative difference that rounding explains where all must agree: sums in another order err by less."""
_SIGMAS_PER_MAD = 1.4826
"""Standard deviations of a Gaussian in its median absolute deviation."""
_LEAST_SPREAD = 1e-6
"""Spread of peers as a share of their median that is taken for rounding: equal peers would else make of the
last digit of one rank an infinite distance."""
_MAX_CLASSES = 64
"""More groups of peers are looked at as one: a thousand medians a position would cost seconds."""
_MAX_PLACES = 8
"""Distinct places of a median up to which rows are partitioned at all of them, rather than sorted."""
_MOST_DIFFER = 0.5
"""Share of values that differ from the most frequent one, above which a metric is local whatever its name."""
UPWARD = frozenset({"step_time_s", "probe_dropped", "probe_errors", "skipped"})
"""Metrics of which only more is worse."""


def badness(matrix: Matrix, contract: MetricContract, layout: Layout | None) -> Floats:
    """How bad each cell is, T × R; 0 where nothing was reported."""
    present_TR = matrix.present_TR
    if matrix.values_TR is None:
        assert matrix.high_TR is not None and matrix.low_TR is not None
        classes_R = _equal_classes(matrix, contract, layout)
        differs_TR = _minority(matrix.high_TR, present_TR, classes_R)
        differs_TR |= _minority(matrix.low_TR, present_TR, classes_R)
        return np.where(differs_TR, Mark.DIFFERS * TIER, np.where(present_TR, Mark.VALUE * TIER, 0.0))
    values_TR = matrix.values_TR
    finite_TR = present_TR & np.isfinite(values_TR)
    bad_TR = np.where(present_TR, Mark.VALUE * TIER, 0.0)
    if contract.kind is Kind.NONFINITE_COUNT:
        # a count is worse the greater it is, but never a mark of its own
        size_TR = np.minimum(np.maximum(values_TR, 0.0), 0.9 * TIER)
        bad_TR = np.where(finite_TR & (values_TR > 0), Mark.COUNTED * TIER + size_TR, bad_TR)
    elif not _mark_differing(bad_TR, finite_TR, matrix, contract, layout):
        classes_R = _peer_classes(matrix, contract, layout)
        _add_distances(bad_TR, values_TR, finite_TR, classes_R, is_upward=contract.name in UPWARD)
    bad_TR[present_TR & (values_TR == -np.inf)] = Mark.NEGATIVE_INFINITY * TIER
    bad_TR[present_TR & (values_TR == np.inf)] = Mark.POSITIVE_INFINITY * TIER
    bad_TR[present_TR & np.isnan(values_TR)] = Mark.NAN * TIER
    return bad_TR


def _equal_classes(matrix: Matrix, contract: MetricContract, layout: Layout | None) -> Ints:
    if contract.kind is Kind.REPEAT or not contract.axes(Relation.EQUAL):
        return np.arange(len(matrix.ranks_R))  # compared with nobody
    classes_R = equality_classes(contract, matrix.ranks_R, layout)
    return np.zeros(len(matrix.ranks_R), np.int64) if classes_R is None else classes_R


def _peer_classes(matrix: Matrix, contract: MetricContract, layout: Layout | None) -> Ints:
    """The group of each rank's peers; all ranks for a metric that no contract compares along any axis."""
    if not contract.axes(Relation.NOISE):
        return np.zeros(len(matrix.ranks_R), np.int64)
    return peer_classes(contract, matrix.ranks_R, layout)


def _mark_differing(
    bad_TR: Floats,
    finite_TR: Flags,
    matrix: Matrix,
    contract: MetricContract,
    layout: Layout | None,
) -> bool:
    """Mark what differs where all must agree; False where the metric is no such one."""
    assert matrix.values_TR is not None
    values_TR = matrix.values_TR
    is_exact = contract.axes(Relation.EQUAL) and contract.name.startswith("canary_")
    if not is_exact and contract.kind is not Kind.AGREED and contract.name not in ("lr", "loss_scale"):
        return False
    tolerance = 0.0 if is_exact else _CLOSE
    differs_TR = np.zeros(values_TR.shape, bool)
    for columns in _columns(_equal_classes(matrix, contract, layout)):
        middle_T = _medians(values_TR[:, columns], finite_TR[:, columns])
        away_TR = np.abs(values_TR[:, columns] - middle_T[:, np.newaxis])
        # the middle of two that differ is neither: then both do, which is what is known
        differs_TR[:, columns] = away_TR > tolerance * np.abs(middle_T[:, np.newaxis])
    differs_TR &= finite_TR
    if not is_exact and np.count_nonzero(differs_TR) > _MOST_DIFFER * np.count_nonzero(finite_TR):
        return False
    bad_TR[differs_TR] = Mark.DIFFERS * TIER
    return True


def _add_distances(
    bad_TR: Floats, values_TR: Floats, finite_TR: Flags, classes_R: Ints, *, is_upward: bool
) -> None:
    """Add to each finite value how many standard deviations of its peers it lies from their median."""
    for columns in _columns(classes_R):
        own_TR, own_finite_TR = values_TR[:, columns], finite_TR[:, columns]
        middle_T = _medians(own_TR, own_finite_TR)
        with np.errstate(over="ignore", invalid="ignore"):  # a distance too large for a float is one
            away_TR = own_TR - middle_T[:, np.newaxis]
            spread_T = _SIGMAS_PER_MAD * _medians(np.abs(away_TR), own_finite_TR)
            # few ranks tell little of their spread at one position: never less than is usual around it
            known_T = spread_T[np.isfinite(spread_T)]
            usual = float(row_medians(known_T[np.newaxis])[0]) if len(known_T) else 0.0
            least_T = np.maximum(np.abs(middle_T) * _LEAST_SPREAD, np.finfo(np.float64).tiny)
            scale_T = np.fmax(np.fmax(spread_T, usual), least_T)
            score_TR = away_TR / scale_T[:, np.newaxis]
        score_TR = np.maximum(score_TR, 0.0) if is_upward else np.abs(score_TR)
        score_TR = np.minimum(np.nan_to_num(score_TR, nan=0.0, posinf=TIER), 0.9 * TIER)
        bad_TR[:, columns] += np.where(own_finite_TR, score_TR, 0.0)


def _columns(classes_R: Ints) -> list[NDArray[np.intp] | slice]:
    """The places of each class of ranks."""
    distinct = np.unique(classes_R)
    if not 1 < len(distinct) <= _MAX_CLASSES:
        return [slice(None)]
    return [np.flatnonzero(classes_R == one) for one in distinct]


def _medians(values_TR: Floats, valid_TR: Flags) -> Floats:
    """The median of the valid values of each position; NaN without any."""
    count_T = np.count_nonzero(valid_TR, axis=1)
    filled_TR = values_TR if valid_TR.all() else np.where(valid_TR, values_TR, np.nan)
    low_T, high_T = np.maximum(count_T - 1, 0) // 2, np.minimum(count_T // 2, np.maximum(count_T - 1, 0))
    # NaN goes to the end of either; a partition of 100 000 ranks costs a fifth of sorting them
    places = sorted({*np.unique(low_T).tolist(), *np.unique(high_T).tolist()})
    is_alike = len(places) <= _MAX_PLACES
    ordered_TR = np.partition(filled_TR, places, axis=1) if is_alike else np.sort(filled_TR, axis=1)
    row_T = np.arange(len(ordered_TR))
    # halves first: the sum of two large values overflows
    middle_T: Floats = ordered_TR[row_T, low_T] / 2.0 + ordered_TR[row_T, high_T] / 2.0
    return middle_T


def _minority(words_TR: NDArray[np.uint64], present_TR: Flags, classes_R: Ints) -> Flags:
    """Values that are not the most frequent one of their class; in a tie for that, all."""
    differs_TR = np.zeros(words_TR.shape, bool)
    distinct = np.unique(classes_R)
    if len(distinct) == len(classes_R):
        return differs_TR
    columns_of = (
        [np.flatnonzero(classes_R == one) for one in distinct] if len(distinct) > 1 else [slice(None)]
    )
    for columns in columns_of:
        own_TR, here_TR = words_TR[:, columns], present_TR[:, columns]
        first_T = own_TR[np.arange(len(own_TR)), here_TR.argmax(axis=1)]
        odd_T = np.flatnonzero((here_TR & (own_TR != first_T[:, np.newaxis])).any(axis=1))
        for row in odd_T.tolist():  # positions at which a class is split are few
            found, counts = np.unique(own_TR[row][here_TR[row]], return_counts=True)
            most = found[counts == counts.max()]
            is_odd = here_TR[row] & ((own_TR[row] != most[0]) | (len(most) > 1))
            differs_TR[row, columns] = is_odd
    return differs_TR
