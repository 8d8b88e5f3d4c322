"""Summaries of one metric over its ranks, iteration by iteration, and how they fold into coarser ones.

Axes: T positions, R ranks, N summary rows, B buckets.

Statistics are over finite values; what is not finite is counted, and so survives every fold. A row whose
statistics are NaN had no finite value. A fold keeps extremes (with the rank of the first of equals) and adds
counts; quartiles do not fold, so a coarser row shows those of its last position that had any: real values
of one moment rather than a mean that one spike would own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstfault.telemetry import WHOLE_ITERATION
from ingest.blocks import Flags, Floats, Ints, Ranks

Columns = Mapping[str, NDArray[Any]]
"""Rows as named arrays of equal length: the keys of `COLUMNS`."""

COUNTS = ("positions", "reported", "missing", "nan", "posinf", "neginf")
QUARTILES = ("p25", "median", "p75")
STATISTICS = ("min", *QUARTILES, "max")
COLUMNS: Mapping[str, type[np.generic]] = {
    "iteration": np.int64,
    "last_iteration": np.int64,
    "microbatch": np.int32,
    "time": np.float64,
    **dict.fromkeys(COUNTS, np.int64),
    **dict.fromkeys(STATISTICS, np.float64),
    "min_rank": np.int32,
    "max_rank": np.int32,
}
"""First and last iteration of the row; newest record time (NaN: unknown); positions that reported the metric;
over them values reported, ranks that reported nothing, and values of each non-finite kind; statistics of the
finite values; ranks of the extremes, -1 where no value was finite."""

LEVEL_BITS = 4
"""Each level of the pyramid joins 16 times the iterations of the one below."""
MAX_LEVEL = 15
"""16 ** 15 iterations: all that a 63-bit counter can tell apart."""
_WORTH_KEEPING = 0.75
"""A level with more than this share of the rows below it saves no reading: counters that advance by
millions would otherwise be stored six times over."""


def summarise(
    iteration_T: Ints,
    microbatch_T: NDArray[np.int32],
    time_T: Floats,
    *,
    ranks_R: Ranks,
    values_TR: Floats,
    present_TR: Flags,
) -> Columns:
    """One row for each position where some rank reported the metric."""
    some_T = present_TR.any(axis=1)
    if not some_T.all():
        iteration_T, microbatch_T, time_T = iteration_T[some_T], microbatch_T[some_T], time_T[some_T]
        values_TR, present_TR = values_TR[some_T], present_TR[some_T]
    finite_TR = present_TR & np.isfinite(values_TR)
    all_finite = bool(finite_TR.all())
    reported_T = np.full(len(iteration_T), len(ranks_R))
    if not all_finite:
        reported_T = np.count_nonzero(present_TR, axis=1)
    rows: dict[str, NDArray[Any]] = {
        "iteration": iteration_T,
        "last_iteration": iteration_T,
        "microbatch": microbatch_T,
        "time": time_T,
        "positions": np.ones(len(iteration_T), np.int64),
        "reported": reported_T,
        "missing": len(ranks_R) - reported_T,
        **_nonfinite_counts(values_TR, present_TR, all_finite),
    }
    # NaN sorts last, so the finite values of a row are its first ones
    sorted_TR = np.sort(values_TR if all_finite else np.where(finite_TR, values_TR, np.nan), axis=1)
    finite_T = np.full(len(iteration_T), len(ranks_R))
    if not all_finite:
        finite_T = np.count_nonzero(finite_TR, axis=1)
    for name, share in zip(STATISTICS, (0.0, 0.25, 0.5, 0.75, 1.0), strict=True):
        rows[name] = _quantile(sorted_TR, finite_T, share, same=all_finite)
    low_T = _filled(values_TR, finite_TR, all_finite, np.inf).argmin(1)
    high_T = _filled(values_TR, finite_TR, all_finite, -np.inf).argmax(1)
    rows["min_rank"] = _rank_of(ranks_R, finite_T, low_T)
    rows["max_rank"] = _rank_of(ranks_R, finite_T, high_T)
    return rows


def fold(rows: Columns, starts: Ints) -> Columns:
    """Rows ``starts[b]`` up to ``starts[b + 1]`` made one, for each b."""
    size = len(rows["iteration"])
    if len(starts) == size:
        return rows
    stops = np.append(starts[1:], size)
    at_N = np.arange(size)
    folded: dict[str, NDArray[Any]] = {
        "iteration": rows["iteration"][starts],
        "last_iteration": np.maximum.reduceat(rows["last_iteration"], starts),
        "microbatch": np.full(len(starts), WHOLE_ITERATION, np.int32),
        "time": np.fmax.reduceat(rows["time"], starts),
    }
    for name in COUNTS:
        folded[name] = np.add.reduceat(rows[name], starts)
    for name, best, rank in (("min", np.fmin, "min_rank"), ("max", np.fmax, "max_rank")):
        folded[name] = best.reduceat(rows[name], starts)
        is_best_N = rows[name] == np.repeat(folded[name], stops - starts)
        first_B = np.minimum.reduceat(np.where(is_best_N, at_N, size), starts)
        folded[rank] = np.append(rows[rank], np.int32(-1))[first_B]
    last_B = np.maximum.reduceat(np.where(np.isnan(rows["median"]), -1, at_N), starts)
    for name in QUARTILES:
        folded[name] = np.where(last_B < 0, np.nan, rows[name][last_B])
    return folded


def bucket_starts(iteration_N: Ints, level: int, metric_N: Ints | None = None) -> Ints:
    """Where a new bucket of ``level``, or a new metric, begins among ascending rows."""
    bucket_N = iteration_N >> (LEVEL_BITS * level)
    is_new = np.diff(bucket_N) != 0
    if metric_N is not None:
        is_new |= np.diff(metric_N) != 0
    return np.flatnonzero(np.append(True, is_new)) if len(iteration_N) else np.empty(0, np.int64)


def pyramid(rows: Columns, metric_N: Ints) -> list[tuple[int, Columns, Ints]]:
    """(level, rows, metric of each) from the rows themselves, level 0, to the coarsest level worth keeping.

    ``rows`` ascend by metric, then by iteration. Buckets are aligned to the counter, so that how rows are cut
    into files carries no meaning.
    """
    levels = [(0, rows, metric_N)]
    metrics = len(bucket_starts(np.zeros(len(metric_N), np.int64), 0, metric_N))
    for level in range(1, MAX_LEVEL + 1):
        _, below, metric_B = levels[-1]
        if len(metric_B) <= metrics:
            break
        starts = bucket_starts(below["iteration"], level, metric_B)
        if len(starts) <= _WORTH_KEEPING * len(metric_B):
            levels.append((level, fold(below, starts), metric_B[starts]))
    return levels


def joined(parts: Sequence[Columns]) -> Columns:
    """Rows one after the other."""
    if len(parts) == 1:
        return parts[0]
    return {
        name: np.concatenate([np.empty(0, dtype), *(part[name] for part in parts)], dtype=dtype)
        for name, dtype in COLUMNS.items()
    }


def picked(rows: Columns, where: NDArray[Any] | slice) -> Columns:
    """Some of the rows, by mask, index or slice."""
    return {name: column[where] for name, column in rows.items()}


def names_in(kinds: Iterable[Mapping[str, object]]) -> list[str]:
    """Every name in any of the mappings, sorted."""
    return sorted({name for kind in kinds for name in kind})


def _nonfinite_counts(values_TR: Floats, present_TR: Flags, all_finite: bool) -> dict[str, Ints]:
    if all_finite:
        return {name: np.zeros(len(values_TR), np.int64) for name in ("nan", "posinf", "neginf")}
    return {
        "nan": np.count_nonzero(present_TR & np.isnan(values_TR), axis=1),
        "posinf": np.count_nonzero(present_TR & (values_TR == np.inf), axis=1),
        "neginf": np.count_nonzero(present_TR & (values_TR == -np.inf), axis=1),
    }


def _quantile(sorted_TR: Floats, finite_T: Ints, share: float, *, same: bool) -> Floats:
    """Linear between order statistics; two weighted terms, since a difference of large values overflows.

    ``same``: as many values are finite in every row, which spares looking each of them up.
    """
    if not len(sorted_TR):
        return np.empty(0)
    last_T = np.maximum((finite_T[:1] if same else finite_T) - 1, 0)
    place_T = last_T * share
    below_T = place_T.astype(np.int64)
    above_T = np.minimum(below_T + 1, last_T)
    weight_T = place_T - below_T
    if same:
        low_T, high_T = sorted_TR[:, below_T[0]], sorted_TR[:, above_T[0]]
        if not weight_T[0]:
            return low_T.copy()  # not a view that keeps all values alive
    else:
        row_T = np.arange(len(sorted_TR))
        low_T, high_T = sorted_TR[row_T, below_T], sorted_TR[row_T, above_T]
    return np.where(low_T == high_T, low_T, low_T * (1.0 - weight_T) + high_T * weight_T)


def _filled(values_TR: Floats, finite_TR: Flags, all_finite: bool, filler: float) -> Floats:
    return values_TR if all_finite else np.where(finite_TR, values_TR, filler)


def _rank_of(ranks_R: Ranks, finite_T: Ints, column_T: Ints) -> NDArray[np.int32]:
    return np.where(finite_T > 0, ranks_R[column_T], -1).astype(np.int32)
