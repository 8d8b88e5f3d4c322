"""`/v1/runs/{run_id}/curves` and `/matrix`: a metric over its ranks, and of every rank.

Axes: B rows of a curve, T positions, R ranks.

Bodies are columns. Downsampling keeps extremes and counts, and says that it took place. A number that is
not finite is text, and what was not reported is null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, WithJsonSchema

from firstfault.telemetry import WHOLE_ITERATION
from service import reading
from service.history_curve import Curve
from service.history_matrix import Matrix
from service.history_reader import HistoryReader

from .answers import answer, spliced
from .context import Context, context_of
from .models import CELLS
from .parameters import ID, Metric, RunId
from .problems import ProblemError, bad_parameter, not_found
from .values import Answer, Number, Timestamp, Whole, timestamp

router = APIRouter(prefix="/v1/runs", tags=["curves"])

_LAST = 2**63 - 2
_MAX_RANKS = 100_000
_RANKS = re.compile(r"[0-9]{1,10}(-[0-9]{1,10})?(,[0-9]{1,10}(-[0-9]{1,10})?)*")
_MAX_RANK_LIST = 2000
"""Characters of a list of ranks."""
_NAMED = 20
"""Metrics named in the answer to a wrong one."""
_COUNTS = ("positions", "reported", "missing", "nan", "posinf", "neginf")
_STATISTICS = ("min", "p25", "median", "p75", "max")


def _check_ranks(text: str) -> str:
    if len(text) > _MAX_RANK_LIST or not _RANKS.fullmatch(text):
        raise ValueError("must be ranks and ranges of ranks with commas between: 0,3,8-15")
    return text


RankList = Annotated[
    str,
    AfterValidator(_check_ranks),
    # narrower than what is taken, which no pattern can say: in all no more than _MAX_RANKS
    WithJsonSchema({"type": "string", "pattern": "^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}){0,100}$"}),
]
Attempt = Annotated[int | None, Query(ge=0, lt=2**31, description="The last one that has any without.")]
From = Annotated[int, Query(alias="from", ge=0, le=_LAST, description="First iteration.")]
To = Annotated[int | None, Query(ge=0, le=_LAST, description="Last iteration, inside; to the end without.")]


def _row_schema(schema: dict[str, Any]) -> None:
    schema["items"] = CELLS


class CurveColumns(Answer):
    """One value a row in each column.

    Statistics are of the finite values of a row. Where it has none they are NaN or an infinity, whichever
    was reported. Quartiles of a row that stands for several positions are those of the last of them.
    """

    iteration: list[Whole] = Field(description="First iteration of the row.")
    last_iteration: list[Whole] = Field(description="Last iteration of the row.")
    microbatch: list[int | None] = Field(description="Null where the value is of the whole iteration.")
    time: list[Timestamp | None] = Field(description="Newest time in the records of the row.")
    positions: list[Whole] = Field(description="Positions that the row stands for.")
    reported: list[Whole] = Field(description="Values reported.")
    missing: list[Whole] = Field(description="Ranks times positions that reported nothing.")
    nan: list[Whole]
    posinf: list[Whole]
    neginf: list[Whole]
    min: list[Number]
    p25: list[Number]
    median: list[Number]
    p75: list[Number]
    max: list[Number]
    min_rank: list[int | None] = Field(description="The rank of the least finite value.")
    max_rank: list[int | None] = Field(description="The rank of the greatest finite value.")


class CurveAnswer(Answer):
    """A metric over its ranks, ascending by iteration."""

    run_id: str
    metric: str
    attempt: int
    attempts: list[int] = Field(description="The attempts of which anything is kept.")
    is_downsampled: bool = Field(
        description="Whether rows may stand for several positions; extremes survive."
    )
    columns: CurveColumns


class _MatrixHead(Answer):
    """A `MatrixAnswer` without its cells."""

    run_id: str
    metric: str
    attempt: int
    incident_id: str | None
    is_cut: bool = Field(description="Too large: the first iterations of the range are missing.")
    iteration: list[Whole]
    microbatch: list[int | None]
    ranks: list[int]


class MatrixAnswer(_MatrixHead):
    """A metric of every rank: one row of ``values`` an iteration, one cell a rank.

    A cell is a number, one of the texts NaN, Infinity and -Infinity, a checksum as hexadecimal text, or
    null: not reported.
    """

    values: list[list[Any]] = Field(json_schema_extra=_row_schema)


@router.get("/{run_id}/curves", response_model=CurveAnswer, summary="A metric over its ranks")
def get_curve(
    request: Request,
    run_id: RunId,
    *,
    metric: Metric,
    attempt: Attempt = None,
    start: From = 0,
    to: To = None,
    points: Annotated[
        int | None, Query(ge=1, lt=2**31, description="Most rows of the answer; 1000 without, if allowed.")
    ] = None,
) -> Response:
    """Counts, extremes with their ranks, and quartiles of each iteration, or of groups of them."""
    context = context_of(request)
    rows = context.curve_points(points)
    history, attempts = _history_of(context, run_id)
    chosen = _choose(attempt, attempts)
    curve = history.curve(run_id, chosen, metric, start, None if to is None else to + 1, points=rows)
    if not len(curve.columns["iteration"]):
        _check_metric(metric, history.metrics(run_id))
    return answer(
        CurveAnswer(
            run_id=run_id,
            metric=metric,
            attempt=chosen,
            attempts=attempts,
            is_downsampled=curve.is_downsampled,
            columns=_columns(curve),
        )
    )


@router.get("/{run_id}/matrix", response_model=MatrixAnswer, summary="A metric of every rank")
def get_matrix(
    request: Request,
    run_id: RunId,
    *,
    metric: Metric,
    incident: Annotated[
        str | None,
        Query(pattern=ID, description="The window frozen for this incident; excludes the range."),
    ] = None,
    attempt: Attempt = None,
    start: From = 0,
    to: To = None,
    ranks: Annotated[RankList | None, Query(description="Only these ranks: 0,3,8-15.")] = None,
) -> Response:
    """As long as the flight recorder holds it, or as it was frozen for an incident."""
    context = context_of(request)
    history, attempts = _history_of(context, run_id)
    chosen, wanted = _choose(attempt, attempts), _expanded(ranks)
    if incident is None:
        matrix = history.matrix(run_id, chosen, metric, start, None if to is None else to + 1, ranks=wanted)
    else:
        window = history.window(incident)
        if window is None or window.run_id != run_id:
            raise not_found("frozen window of an incident of this run", incident)
        chosen = window.attempt
        matrix = history.window_matrix(incident, metric, ranks=wanted)
    if matrix is None:
        raise ProblemError(404, "not-kept", f"no values of single ranks of {metric!r} are kept there")
    return _matrix_answer(run_id, chosen, incident, matrix)


def _history_of(context: Context, run_id: str) -> tuple[HistoryReader, list[int]]:
    """The history and the attempts of a run that has any.

    Raises:
        ProblemError: 404, no such run, or nothing of it is kept.
    """
    with context.database.read() as db:
        if reading.find_run(db, run_id) is None:
            raise not_found("run", run_id)
    attempts = [] if context.history is None else context.history.attempts(run_id)
    if context.history is None or not attempts:
        raise ProblemError(404, "not-kept", "no history of this run is kept")
    return context.history, attempts


def _choose(attempt: int | None, attempts: Sequence[int]) -> int:
    if attempt is None:
        return attempts[-1]
    if attempt not in attempts:
        raise ProblemError(404, "not-kept", f"no history of attempt {attempt} of this run is kept")
    return attempt


def _check_metric(metric: str, known: Sequence[str]) -> None:
    if metric not in known:
        named = ", ".join(known[:_NAMED]) + (", …" if len(known) > _NAMED else "")
        raise ProblemError(404, "not-kept", f"no curve of {metric!r} is kept; there are: {named}")


def _expanded(ranks: str | None) -> set[int] | None:
    """The ranks that a text names; None for all."""
    if ranks is None:
        return None
    found: set[int] = set()
    for part in ranks.split(","):
        first, _, last = part.partition("-")
        stop = int(last or first) + 1
        if stop - int(first) + len(found) > _MAX_RANKS:
            raise bad_parameter("ranks", f"must name at most {_MAX_RANKS} ranks")
        found.update(range(int(first), stop))
    return found


def _columns(curve: Curve) -> CurveColumns:
    columns = curve.columns
    given: dict[str, Any] = {
        name: columns[name].tolist() for name in ("iteration", "last_iteration", *_COUNTS)
    }
    ranks: dict[str, Any] = {
        name: [None if rank < 0 else rank for rank in columns[name].tolist()]
        for name in ("min_rank", "max_rank")
    }
    statistics: dict[str, Any] = {name: _statistic(name, columns).tolist() for name in _STATISTICS}
    return CurveColumns(
        **given,
        **ranks,
        **statistics,
        microbatch=_microbatches(columns["microbatch"]),
        time=[timestamp(one) for one in columns["time"].tolist()],
    )


def _statistic(name: str, columns: Any) -> NDArray[np.float64]:
    """A statistic; where no value was finite, what was reported instead."""
    finite_B = columns[name]
    has_up_B, has_down_B, has_nan_B = (columns[kind] > 0 for kind in ("posinf", "neginf", "nan"))
    only_up_B = has_up_B & ~has_nan_B & (~has_down_B | (name == "max"))
    only_down_B = has_down_B & ~has_nan_B & (~has_up_B | (name == "min"))
    stand_in_B = np.select([only_up_B, only_down_B], [np.inf, -np.inf], np.nan)
    return np.where(np.isnan(finite_B), stand_in_B, finite_B)


def _microbatches(microbatch: NDArray[np.int32]) -> list[int | None]:
    return [None if one == WHOLE_ITERATION else one for one in microbatch.tolist()]


def _matrix_answer(run_id: str, attempt: int, incident: str | None, matrix: Matrix) -> Response:
    head = _MatrixHead(
        run_id=run_id,
        metric=matrix.metric,
        attempt=attempt,
        incident_id=incident,
        is_cut=matrix.is_cut,
        iteration=matrix.iteration_T.tolist(),
        microbatch=_microbatches(matrix.microbatch_T),
        ranks=matrix.ranks_R.tolist(),
    )
    cells = json.dumps(_cells(matrix), allow_nan=False, separators=(",", ":")).encode()
    return Response(spliced(head, "values", cells), media_type="application/json")


def _cells(matrix: Matrix) -> list[list[Any]]:
    """Rows of cells as JSON can hold them."""
    if matrix.values_TR is None:
        size_T, size_R = matrix.present_TR.shape
        return [[matrix.checksum(t, r) for r in range(size_R)] for t in range(size_T)]
    cells_TR = matrix.values_TR.astype(object)
    for text, is_TR in (
        ("NaN", np.isnan(matrix.values_TR)),
        ("Infinity", matrix.values_TR == np.inf),
        ("-Infinity", matrix.values_TR == -np.inf),
        (None, ~matrix.present_TR),
    ):
        cells_TR[is_TR] = text
    rows: list[list[Any]] = cells_TR.tolist()
    return rows
