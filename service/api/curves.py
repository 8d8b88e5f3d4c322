"""`/v1/runs/{run_id}/curves` and `/matrix`: a metric over its ranks, and of every rank.

Bodies are columns, as JSON or as an Arrow stream. Downsampling keeps extremes and counts, and says that it
took place. In JSON a number that is not finite is text; what was not reported is null in both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import AfterValidator, WithJsonSchema

from service import reading
from service.history_curve import Curve
from service.history_matrix import Matrix
from service.history_reader import HistoryReader

from .answers import answer, spliced
from .arrow_answers import curve_stream, matrix_stream
from .columns import (
    CurveAnswer,
    CurveHead,
    MatrixAnswer,
    MatrixHead,
    cells_of,
    columns_of,
    curve_of,
    microbatches,
)
from .context import Context, context_of
from .negotiation import ARROW, wants_arrow
from .parameters import ID, Metric, RunId
from .problems import bad_parameter, not_found, not_kept

router = APIRouter(prefix="/v1/runs", tags=["curves"])

_LAST = 2**63 - 2
_MAX_RANKS = 100_000
_RANKS = re.compile(r"[0-9]{1,10}(-[0-9]{1,10})?(,[0-9]{1,10}(-[0-9]{1,10})?)*")
_MAX_RANK_LIST = 2000
"""Characters of a list of ranks."""
_NAMED = 20
"""Metrics named in the answer to a wrong one."""


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


_COLUMNS: dict[int | str, dict[str, Any]] = {
    200: {"content": {ARROW: {"schema": {"type": "string", "format": "binary"}}}}
}
_VARY = {"Vary": "Accept"}


@router.get(
    "/{run_id}/curves", response_model=CurveAnswer, responses=_COLUMNS, summary="A metric over its ranks"
)
def get_curve(
    request: Request,
    run_id: RunId,
    *,
    metric: Metric,
    attempt: Attempt = None,
    start: From = 0,
    to: To = None,
    ranks: Annotated[
        RankList | None,
        Query(description="Of these ranks alone (0,3,8-15), as far back as values of single ranks are kept."),
    ] = None,
    points: Annotated[
        int | None, Query(ge=1, lt=2**31, description="Most rows of the answer; 1000 without, if allowed.")
    ] = None,
) -> Response:
    """Counts, extremes with their ranks, and quartiles of each iteration, or of groups of them."""
    context = context_of(request)
    rows = context.curve_points(points)
    history, attempts = history_of(context, run_id)
    part = _Part(
        choose_attempt(attempt, attempts),
        metric,
        start,
        None if to is None else to + 1,
        expanded_ranks(ranks),
    )
    curve, is_cut, of_ranks = _curve(history, run_id, part, rows)
    head = CurveHead(
        run_id=run_id,
        metric=metric,
        attempt=part.attempt,
        attempts=attempts,
        ranks=of_ranks,
        is_downsampled=curve.is_downsampled,
        is_cut=is_cut,
        kept=[list(one) for one in history.kept(run_id, part.attempt)],
    )
    if wants_arrow(request):
        return _varied(curve_stream(head, curve))
    return _varied(answer(CurveAnswer(**head.model_dump(), columns=columns_of(curve))))


@router.get(
    "/{run_id}/matrix", response_model=MatrixAnswer, responses=_COLUMNS, summary="A metric of every rank"
)
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
    history, attempts = history_of(context, run_id)
    chosen, wanted = choose_attempt(attempt, attempts), expanded_ranks(ranks)
    if incident is None:
        matrix = history.matrix(run_id, chosen, metric, start, None if to is None else to + 1, ranks=wanted)
    else:
        window = history.window(incident)
        if window is None or window.run_id != run_id:
            raise not_found("frozen window of an incident of this run", incident)
        chosen = window.attempt
        matrix = history.window_matrix(incident, metric, ranks=wanted)
    if matrix is None:
        raise not_kept(f"no values of single ranks of {metric!r} are kept there")
    return _varied(_matrix_answer(matrix, _matrix_head(run_id, chosen, incident, matrix), request))


@dataclass(frozen=True, slots=True)
class _Part:
    """What of a metric is asked for: an attempt, iterations ``start`` up to ``stop``, some ranks or all."""

    attempt: int
    metric: str
    start: int
    stop: int | None
    ranks: set[int] | None


def _curve(
    history: HistoryReader, run_id: str, part: _Part, points: int
) -> tuple[Curve, bool, list[int] | None]:
    """The curve, whether its beginning is cut off, and the ranks that it is made of (None: all).

    Raises:
        ProblemError: 404, there is none.
    """
    place = (run_id, part.attempt, part.metric, part.start, part.stop)
    if part.ranks is None:
        curve = history.curve(*place, points=points)
        if not len(curve.columns["iteration"]):
            _check_metric(part.metric, history.metrics(run_id))
        return curve, False, None
    matrix = history.matrix(*place, ranks=part.ranks)
    if matrix is None or matrix.values_TR is None:
        detail = f"no numbers of these ranks of {part.metric!r} are kept there"
        raise not_kept(detail)
    return curve_of(matrix, points), matrix.is_cut, matrix.ranks_R.tolist()


def _varied(response: Response) -> Response:
    """The answer, marked as one that depends on what was accepted."""
    response.headers.update(_VARY)
    return response


def history_of(context: Context, run_id: str) -> tuple[HistoryReader, list[int]]:
    """The history and the attempts of a run that has any.

    Raises:
        ProblemError: 404, no such run, or nothing of it is kept.
    """
    with context.database.read() as db:
        if reading.find_run(db, run_id) is None:
            raise not_found("run", run_id)
    attempts = [] if context.history is None else context.history.attempts(run_id)
    if context.history is None or not attempts:
        raise not_kept("no history of this run is kept")
    return context.history, attempts


def choose_attempt(attempt: int | None, attempts: Sequence[int]) -> int:
    if attempt is None:
        return attempts[-1]
    if attempt not in attempts:
        raise not_kept(f"no history of attempt {attempt} of this run is kept")
    return attempt


def _check_metric(metric: str, known: Sequence[str]) -> None:
    if metric not in known:
        named = ", ".join(known[:_NAMED]) + (", …" if len(known) > _NAMED else "")
        raise not_kept(f"no curve of {metric!r} is kept; there are: {named}")


def expanded_ranks(ranks: str | None) -> set[int] | None:
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


def _matrix_head(run_id: str, attempt: int, incident: str | None, matrix: Matrix) -> MatrixHead:
    return MatrixHead(
        run_id=run_id,
        metric=matrix.metric,
        attempt=attempt,
        incident_id=incident,
        is_cut=matrix.is_cut,
        iteration=matrix.iteration_T.tolist(),
        microbatch=microbatches(matrix.microbatch_T),
        ranks=matrix.ranks_R.tolist(),
    )


def _matrix_answer(matrix: Matrix, head: MatrixHead, request: Request) -> Response:
    if wants_arrow(request):
        return matrix_stream(head, matrix)
    cells = json.dumps(cells_of(matrix), allow_nan=False, separators=(",", ":")).encode()
    return Response(spliced(head, "values", cells), media_type="application/json")
