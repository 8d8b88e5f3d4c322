"""Ranks × iterations of one metric as a picture has room for them: the worst of each cell.

Where the values of single ranks are kept every cell is known. Elsewhere in the run only the extremes of all
ranks are, with who had them: those cells show them, and the others stay empty rather than guessed.

Axes: N rows of a curve, R ranks, G rows, B columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from detectors.medians import median
from firstfault.mesh import Layout
from firstfault.telemetry import Kind, MetricContract, contract_of
from ingest.blocks import Floats, Ints, Ranks

from .heat_grid import Best, Grid
from .heat_rows import HOST, RANK, Row, rows_of, ways
from .heat_scores import TIER, UPWARD, Mark, badness
from .history_curve import Curve
from .history_matrix import Matrix
from .history_reader import HistoryReader
from .history_summary import Columns

MAX_CELLS_READ = 1 << 25
"""Cells looked at for one picture, the newest first: 33 M take seconds, 330 iterations of 100 000 ranks."""
MANY_RANKS = 4000
"""From here on rows are hosts unless told otherwise: nobody looks through more ranks."""
_CURVE_ROWS = 4
"""Rows of the curve read for a column: each keeps its own extremes, so that few are as good as all."""
_SIGMAS_PER_HALF = 1.349
"""Standard deviations of a Gaussian between its quartiles."""
_LONG_GAP = 8
"""Usual distances between columns that hold something, from which a gap is shown as one."""
_NO_RANK = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatAsk:
    """What is asked for; ``start`` and ``stop`` of None are those of what is kept of single ranks."""

    run_id: str
    attempt: int
    metric: str
    start: int | None
    stop: int | None
    by: str | None
    ranks: set[int] | None
    rows: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """The picture; ``any`` is the worst of all ranks in each column."""

    by: str
    ways: Sequence[str]
    first_B: Ints
    last_B: Ints
    rows: Sequence[Row]
    best: Best
    any: Best
    extreme_GB: NDArray[np.bool_]
    """Cells that are known as an extreme of all ranks alone."""
    kept: Sequence[tuple[int, int]]
    is_cut: bool
    layout: Layout | None


class UnknownWayError(ValueError):
    """Rows cannot be grouped so: the layout of the run has no such axis, or no hosts."""


def read_heatmap(history: HistoryReader, ask: HeatAsk) -> HeatMap | None:
    """The picture; None if nothing of the metric is kept there.

    Raises:
        UnknownWayError: ``ask.by`` is none of `ways`.
    """
    layout = history.layout(ask.run_id, ask.attempt)
    if ask.by is not None and ask.by not in ways(layout):
        raise UnknownWayError(f"must be one of {', '.join(ways(layout))}, got {ask.by!r}")
    kept = history.kept(ask.run_id, ask.attempt)
    start = ask.start if ask.start is not None else (kept[0][0] if kept and ask.stop is None else 0)
    curve = history.curve(
        ask.run_id, ask.attempt, ask.metric, start, ask.stop, points=_CURVE_ROWS * ask.columns
    )
    span = _span(curve, kept, start, ask.stop)
    if span is None:
        return None
    reading = _Reading(ask, layout, contract_of(ask.metric), _edges(*span, ask.columns), curve)
    universe = _universe(layout, curve)
    while True:
        fold = partial(reading.fold, universe)
        done = history.fold_matrices(ask.run_id, ask.attempt, ask.metric, span, fold)
        if len(done.unknown) == 0 or ask.ranks is not None:
            break
        universe = np.union1d(universe, done.unknown).astype(np.int32)
    return None if done.grid is None else reading.picture(done.grid, kept, is_cut=done.is_cut)


@dataclass(frozen=True, slots=True)
class _Folded:
    grid: Grid | None
    unknown: Ranks
    is_cut: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    bad: float
    rank: int
    iteration: int
    value: float


@dataclass(frozen=True, slots=True)
class _Reading:
    ask: HeatAsk
    layout: Layout | None
    contract: MetricContract
    edges_B: Ints
    curve: Curve

    def fold(self, universe: Ranks, pieces: Iterable[Matrix]) -> _Folded:
        """All pieces in one grid, and the ranks among them that it had no room for."""
        is_cut, unknown, held = False, np.empty(0, np.int32), 0
        listed: Iterator[Matrix] = iter(pieces)
        newest = next(listed, None)
        if newest is not None:
            universe = np.union1d(universe, newest.ranks_R).astype(np.int32)
        shown = universe if self.ask.ranks is None else universe[np.isin(universe, list(self.ask.ranks))]
        if not len(shown):
            return _Folded(None, unknown, is_cut)
        by = self.ask.by or (HOST if len(shown) > MANY_RANKS and HOST in ways(self.layout) else RANK)
        grid = Grid(rows_of(shown, self.layout, by, self.ask.rows), self.edges_B, by)
        while newest is not None:
            if held > MAX_CELLS_READ:
                is_cut = True
                break
            held += newest.present_TR.size
            unknown = np.union1d(unknown, np.setdiff1d(newest.ranks_R, universe))
            grid.take(newest, badness(newest, self.contract, self.layout))
            newest = next(listed, None)
        grid.finish()
        return _Folded(grid, unknown.astype(np.int32), is_cut)

    def picture(self, grid: Grid, kept: Sequence[tuple[int, int]], *, is_cut: bool) -> HeatMap | None:
        """The grid with what the curve knows, less the columns that hold nothing."""
        any_ = _worst_row(grid.best)
        extreme_GB = np.zeros(grid.best.bad.shape, bool)
        if len(self.curve.columns["iteration"]):
            _add_curve(grid, any_, extreme_GB, self.curve, self.contract)
        full_B = np.flatnonzero(any_.bad > 0)
        if not len(full_B):
            return None
        shown_B = _with_gaps(full_B)
        first_B = self.edges_B[:-1][shown_B]
        last_B = np.append(first_B[1:], self.edges_B[full_B[-1] + 1]) - 1
        return HeatMap(
            by=grid.by,
            ways=ways(self.layout),
            first_B=first_B,
            last_B=last_B,
            rows=grid.rows,
            best=_columns_of(grid.best, shown_B),
            any=_columns_of(any_, shown_B),
            extreme_GB=extreme_GB[:, shown_B],
            kept=kept,
            is_cut=is_cut,
            layout=self.layout,
        )


def _span(
    curve: Curve, kept: Sequence[tuple[int, int]], start: int, stop: int | None
) -> tuple[int, int] | None:
    """The first and last iteration that anything may be known of."""
    found = [(first, last) for first, last in kept if last >= start and (stop is None or first < stop)]
    iteration_N, last_N = curve.columns["iteration"], curve.columns["last_iteration"]
    if len(iteration_N):
        found.append((int(iteration_N[0]), int(last_N.max())))
    if not found:
        return None
    first, last = min(one[0] for one in found), max(one[1] for one in found)
    return max(start, first), last if stop is None else min(stop - 1, last)


def _edges(first: int, last: int, columns: int) -> Ints:
    width = -(-(last - first + 1) // columns)
    return np.append(np.arange(first, last + 1, width), last + 1)


def _universe(layout: Layout | None, curve: Curve) -> Ranks:
    """The ranks that are known before any value of one is read."""
    told = [] if layout is None else [*layout.coordinates, *layout.hosts]
    extremes = np.concatenate([curve.columns["min_rank"], curve.columns["max_rank"]])
    return np.union1d(np.array(told, np.int32), extremes[extremes >= 0]).astype(np.int32)


def _worst_row(best: Best) -> Best:
    """The worst of all rows in each column."""
    row_B, column_B = best.bad.argmax(axis=0), np.arange(best.bad.shape[1])
    return Best(*(getattr(best, name)[row_B, column_B] for name in Best.__dataclass_fields__))


def _columns_of(best: Best, at_B: NDArray[np.intp]) -> Best:
    return Best(*(getattr(best, name)[..., at_B] for name in Best.__dataclass_fields__))


def _with_gaps(full_B: NDArray[np.intp]) -> NDArray[np.intp]:
    """The columns that hold something, and the first of each long gap between them."""
    step_B = np.diff(full_B)
    usual = median(step_B.astype(np.float64)) if len(step_B) else 1.0
    gaps = full_B[:-1][step_B > _LONG_GAP * usual] + 1
    return np.union1d(full_B, gaps)


def _add_curve(
    grid: Grid, any_: Best, extreme_GB: NDArray[np.bool_], curve: Curve, contract: MetricContract
) -> None:
    """Put in what the curve over all ranks knows: what is not finite, and extremes with their ranks."""
    rows = curve.columns
    column_N = np.searchsorted(grid.edges_B, rows["iteration"], side="right") - 1
    column_N = np.clip(column_N, 0, len(grid.edges_B) - 2)
    row_of = dict(zip(grid.ranks_R.tolist(), grid.row_R.tolist(), strict=True))
    for mark, name, value in (
        (Mark.NAN, "nan", np.nan),
        (Mark.POSITIVE_INFINITY, "posinf", np.inf),
        (Mark.NEGATIVE_INFINITY, "neginf", -np.inf),
    ):
        for at in np.flatnonzero(rows[name] > 0).tolist():
            seen = _Seen(mark * TIER, _NO_RANK, int(rows["iteration"][at]), value)
            _raise(any_, int(column_N[at]), seen)
    is_upward = contract.name in UPWARD or contract.kind is Kind.NONFINITE_COUNT
    for which in ("max",) if is_upward else ("max", "min"):
        bad_N = _badness_of(rows, which, contract)
        for at in np.flatnonzero(rows[f"{which}_rank"] >= 0).tolist():
            column, rank = int(column_N[at]), int(rows[f"{which}_rank"][at])
            seen = _Seen(float(bad_N[at]), rank, int(rows["iteration"][at]), float(rows[which][at]))
            if grid.last_B[column] >= 0:
                continue  # where single ranks are kept they are the truth
            _raise(any_, column, seen)
            row = row_of.get(rank)
            if row is not None:
                extreme_GB[row, column] |= _raise(grid.best, (row, column), seen)


def _badness_of(columns: Columns, which: str, contract: MetricContract) -> Floats:
    """How bad the extremes of a curve are: a count by itself, a value by the quartiles."""
    extreme_N = columns[which]
    if contract.kind is Kind.NONFINITE_COUNT:
        size_N = np.clip(np.nan_to_num(extreme_N), 0.0, 0.9 * TIER)
        return np.where(size_N > 0, Mark.COUNTED * TIER + size_N, Mark.VALUE * TIER)
    median_N = columns["median"]
    spread_N = (columns["p75"] - columns["p25"]) / _SIGMAS_PER_HALF
    known_N = spread_N[np.isfinite(spread_N)]
    usual = median(known_N) if len(known_N) else 0.0
    least_N = np.maximum(np.abs(median_N) * 1e-6, np.finfo(np.float64).tiny)
    with np.errstate(over="ignore", invalid="ignore"):
        score_N = np.abs(extreme_N - median_N) / np.fmax(np.fmax(spread_N, usual), least_N)
    score_N = np.minimum(np.nan_to_num(score_N, nan=0.0, posinf=TIER), 0.9 * TIER)
    return np.asarray(Mark.VALUE * TIER + score_N)


def _raise(best: Best, cell: int | tuple[int, int], seen: _Seen) -> bool:
    """Put something into a cell that holds less bad; whether it did."""
    if seen.bad <= best.bad[cell]:
        return False
    best.bad[cell], best.rank[cell] = seen.bad, seen.rank
    best.iteration[cell], best.value[cell] = seen.iteration, seen.value
    return True
