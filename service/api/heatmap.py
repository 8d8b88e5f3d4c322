"""`/v1/runs/{run_id}/heatmap`: every rank of a metric over a run in as many cells as a screen has."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from pydantic import Field

from service import heatmap
from service.heat_grid import Best
from service.heat_rows import Row
from service.heat_scores import TIER, Mark
from service.heatmap import HeatAsk, HeatMap, UnknownWayError

from .answers import answer
from .context import context_of
from .curves import Attempt, RankList, choose_attempt, expanded_ranks, history_of
from .parameters import Metric, RunId
from .problems import not_kept
from .values import Answer, Whole

router = APIRouter(prefix="/v1/runs", tags=["curves"])

_LAST = 2**63 - 2
_ROWS, _COLUMNS = 100, 200
"""Of an answer unless told otherwise: cells of 4 × 6 pixels on a screen of a laptop."""
_MARKS = " .mlxc-+n"
"""A letter for each `Mark`, in its order; ``e`` is a value known as an extreme alone."""
_MAX_TEXT = 16
"""Characters of a checksum in a cell: two that differ do so in the first 64 bits, and a row stays small."""
_MAX_SPANS = 4


class HeatColumns(Answer):
    """The iterations of each column."""

    iteration: list[Whole] = Field(description="First iteration of the column.")
    last_iteration: list[Whole] = Field(description="Last iteration of the column.")


class HeatCells(Answer):
    """One row: the worst of each of its cells."""

    marks: str = Field(
        description="A letter a column: . a value, e one known only as an extreme of all ranks, n NaN,"
        " + and - infinities, c a count of values that are not finite, x differs where all must agree,"
        " m missing, l late: not reported any more, and a space where nothing is known."
    )
    score: list[float | None] = Field(
        description="Of a value: standard deviations from the median of its peers; of a count, how large."
    )
    value: list[float | str | None] = Field(description="The worst value; of a checksum its first digits.")
    rank: list[int | None] = Field(description="The rank that had it; empty where the row is one rank.")
    iteration: list[Whole | None] = Field(description="When; empty where each column is one iteration.")


class HeatRow(HeatCells):
    """One rank, or several that are looked at together."""

    group: str = Field(description="Host or place in the layout; empty for plain ranks.")
    ranks: str = Field(description="As ranges: 0-3,7; cut with … where they are many.")
    first_rank: int
    rank_count: int
    host: str | None = Field(description="Of a row of one rank, if the run told.")


class HeatAnswer(Answer):
    """Ranks × iterations of a metric, each cell the worst of what lies in it."""

    run_id: str
    metric: str
    attempt: int
    attempts: list[int]
    by: str = Field(description="What rows are grouped by.")
    ways: list[str] = Field(description="What they can be grouped by in this run.")
    kept: list[list[Whole]] = Field(description="First and last iterations of which single ranks are kept.")
    is_cut: bool = Field(description="Too many values to look at all: the first iterations are missing.")
    columns: HeatColumns
    any: HeatCells = Field(description="The worst of all ranks.")
    rows: list[HeatRow]


@router.get("/{run_id}/heatmap", response_model=HeatAnswer, summary="The worst of ranks × iterations")
def get_heatmap(
    request: Request,
    run_id: RunId,
    *,
    metric: Metric,
    attempt: Attempt = None,
    start: Annotated[
        int | None,
        Query(alias="from", ge=0, le=_LAST, description="First iteration; without, where ranks are kept."),
    ] = None,
    to: Annotated[int | None, Query(ge=0, le=_LAST, description="Last iteration, inside.")] = None,
    by: Annotated[
        str | None, Query(max_length=64, description="Group rows: rank, host, or an axis of the layout.")
    ] = None,
    ranks: Annotated[RankList | None, Query(description="Only these ranks: 0,3,8-15.")] = None,
    rows: Annotated[
        int, Query(ge=1, le=1000, description="Most rows; fewer where times columns they are too many cells.")
    ] = _ROWS,
    columns: Annotated[int, Query(ge=1, le=2000, description="Most columns.")] = _COLUMNS,
) -> Response:
    """The worst of each cell, never the mean.

    NaN, then infinities, then counts of values that are not finite, then what differs from its replicas, then
    what is late or missing, then numbers by their distance from their peers.
    """
    context = context_of(request)
    history, attempts = history_of(context, run_id)
    chosen = choose_attempt(attempt, attempts)
    ask = HeatAsk(
        run_id=run_id,
        attempt=chosen,
        metric=metric,
        start=start,
        stop=None if to is None else to + 1,
        by=by,
        ranks=expanded_ranks(ranks),
        rows=max(1, min(rows, context.config.max_heatmap_cells // columns)),
        columns=min(columns, context.config.max_heatmap_cells),
    )
    try:
        found = heatmap.read_heatmap(history, ask)
    except UnknownWayError as error:
        raise not_kept(f"by {error}") from error
    return answer(_answer(ask, attempts, found))


def _answer(ask: HeatAsk, attempts: list[int], found: HeatMap | None) -> HeatAnswer:
    """The picture as columns; without any cell where nothing of the metric is kept there."""
    about: dict[str, Any] = {
        "run_id": ask.run_id,
        "metric": ask.metric,
        "attempt": ask.attempt,
        "attempts": attempts,
    }
    if found is None:
        nothing = HeatCells(marks="", score=[], value=[], rank=[], iteration=[])
        return HeatAnswer(
            **about,
            by=ask.by or "rank",
            ways=["rank"],
            kept=[],
            is_cut=False,
            columns=HeatColumns(iteration=[], last_iteration=[]),
            any=nothing,
            rows=[],
        )
    is_wide = bool((found.last_B > found.first_B).any())
    rows = [_row(found, at, is_wide=is_wide) for at in range(len(found.rows))]
    return HeatAnswer(
        **about,
        by=found.by,
        ways=list(found.ways),
        kept=[list(one) for one in found.kept],
        is_cut=found.is_cut,
        columns=HeatColumns(iteration=found.first_B.tolist(), last_iteration=found.last_B.tolist()),
        any=HeatCells(**_cells(found.any, None, is_wide=is_wide, has_ranks=True)),
        rows=rows,
    )


def _row(found: HeatMap, at: int, *, is_wide: bool) -> HeatRow:
    row = found.rows[at]
    best = Best(*(getattr(found.best, name)[at] for name in Best.__dataclass_fields__))
    hosts = {} if found.layout is None else found.layout.hosts
    first = int(row.ranks[0])
    return HeatRow(
        group=row.group,
        ranks=_ranges(row),
        first_rank=first,
        rank_count=len(row.ranks),
        host=hosts.get(first) if len(row.ranks) == 1 else None,
        **_cells(best, found.extreme_GB[at], is_wide=is_wide, has_ranks=len(row.ranks) > 1),
    )


def _cells(
    best: Best, extreme_B: NDArray[np.bool_] | None, *, is_wide: bool, has_ranks: bool
) -> dict[str, Any]:
    mark_B = (best.bad // TIER).astype(int)
    score_B = np.where(mark_B == Mark.VALUE, best.bad - Mark.VALUE * TIER, np.nan)
    letters = [_MARKS[mark] for mark in mark_B.tolist()]
    if extreme_B is not None:
        letters = [
            "e" if is_one and letter == "." else letter
            for letter, is_one in zip(letters, extreme_B, strict=True)
        ]
    ranks, iterations = best.rank.tolist(), best.iteration.tolist()
    return {
        "marks": "".join(letters),
        "score": [None if math.isnan(one) else float(f"{one:.3g}") for one in score_B.tolist()],
        "value": [_value(*one) for one in zip(mark_B.tolist(), best.value, best.text, strict=True)],
        "rank": [None if one < 0 else one for one in ranks] if has_ranks else [],
        "iteration": [None if one < 0 else one for one in iterations] if is_wide else [],
    }


def _value(mark: int, value: float, text: str | None) -> float | str | None:
    if mark in (Mark.NOTHING, Mark.MISSING, Mark.LATE):
        return None
    if text is not None:
        return text[:_MAX_TEXT]
    if math.isfinite(value):
        return float(f"{value:.7g}")
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _ranges(row: Row) -> str:
    """Ranks as ranges, the first few of them."""
    starts = np.flatnonzero(np.append(True, np.diff(row.ranks) != 1))
    stops = np.append(starts[1:], len(row.ranks)) - 1
    pairs = [(int(row.ranks[a]), int(row.ranks[b])) for a, b in zip(starts, stops, strict=True)]
    shown = ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in pairs[:_MAX_SPANS])
    return shown + (",…" if len(pairs) > _MAX_SPANS else "")
