"""`/v1/runs`: lists, one run, its verdict and its history."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy import Connection

from detectors.evidence import Label
from service import reading
from service.reading import RunQuery, RunRow

from .answers import answer, body_of, spliced, tagged
from .context import Context, context_of
from .health import stale_reasons
from .history_of_run import KEY_TYPES, change_event, change_key, event_key, last_change, positioned
from .models import EventKind, EventPage, Freshness, RunAnswer, RunPage, RunSummary, State, VerdictAnswer
from .pages import from_cursor, to_cursor
from .parameters import Cursor, Limit, Name, RunId
from .problems import not_found
from .run_summary import summaries, summary
from .values import Answer, timestamp

router = APIRouter(prefix="/v1/runs", tags=["runs"])

RunSeverity = Literal["critical", "warning", "info", "none"]
Order = Literal["newest", "severity"]
_KEYS: Mapping[str, Sequence[type]] = {"newest": (float, str), "severity": (int, float, str)}


@router.get("", response_model=RunPage, summary="Runs, newest first")
def list_runs(
    request: Request,
    *,
    run: Annotated[Name | None, Query(description="Only the run of exactly this name.")] = None,
    label: Annotated[Label | None, Query(description="Only runs of this label.")] = None,
    severity: Annotated[RunSeverity | None, Query(description="Only runs of this severity.")] = None,
    text: Annotated[
        str | None, Query(max_length=256, description="Only runs whose name holds this, in any case.")
    ] = None,
    state: Annotated[
        State | None, Query(description="Only runs with a confirmed incident in this state.")
    ] = None,
    order: Annotated[
        Order, Query(description="Newest first, or the worst first and then newest.")
    ] = "newest",
    cursor: Cursor = None,
    limit: Limit = None,
) -> Response:
    """What is watched, or was."""
    context = context_of(request)
    size = context.page_size(limit)
    query = RunQuery(
        run=run,
        label=label,
        severity=severity,
        text=text,
        state=state,
        order=order,
        after=from_cursor(f"runs/{order}", cursor, _KEYS[order]),
        limit=size + 1,
    )
    with context.database.read() as db:
        rows = reading.list_runs(db, query, context.clock())
        items = [RunSummary(**one) for one in summaries(db, rows[:size], context.clock())]
    more = len(rows) > size
    place = to_cursor(f"runs/{order}", reading.place_of_run(rows[size - 1], order)) if more else None
    return answer(RunPage(items=items, next=place))


@router.get("/{run_id}", response_model=RunAnswer, summary="One run in a sentence")
def get_run(request: Request, run_id: RunId) -> Response:
    """Its label and what happened; the evidence is in its verdict."""
    context = context_of(request)
    with context.database.read() as db:
        row, freshness = _run(db, context, run_id)
        states = reading.incident_states(db, [run_id], context.clock()).get(run_id, {})
    told = summary(row, states)
    return tagged(request, body_of(RunAnswer(**told, freshness=freshness)))


@router.get("/{run_id}/verdict", response_model=VerdictAnswer, summary="What is concluded of a run")
def get_verdict(request: Request, run_id: RunId) -> Response:
    """The canonical verdict, byte for byte as it is stored and published."""
    context = context_of(request)
    with context.database.read() as db:
        row, verdict, freshness = _verdict(db, context, run_id)
    return tagged(request, spliced(_VerdictHead(run_id=row.run_id, freshness=freshness), "verdict", verdict))


@router.get("/{run_id}/events", response_model=EventPage, summary="The history of a run")
def list_events(
    request: Request,
    run_id: RunId,
    kind: Annotated[EventKind | None, Query(description="Only events of this kind.")] = None,
    cursor: Cursor = None,
    limit: Limit = None,
) -> Response:
    """Incidents and annotations by their position in the run, then changes in the order of the stream."""
    context = context_of(request)
    size = context.page_size(limit)
    after = event_key(from_cursor("events", cursor, KEY_TYPES))
    with context.database.read() as db:
        verdict = reading.verdict_bytes(db, run_id)
        if verdict is None:
            raise not_found("run", run_id)
        placed = [] if kind is EventKind.CHANGE else positioned(json.loads(verdict))
        placed = [one for one in placed if one[0] > after and kind in (None, one[1].kind)]
        if kind in (None, EventKind.CHANGE) and len(placed) <= size:
            rows = reading.changes_after(db, last_change(after), size + 1 - len(placed), run_id)
            placed += [(change_key(row), change_event(row)) for row in rows]
    more = to_cursor("events", placed[size - 1][0]) if len(placed) > size else None
    return answer(EventPage(items=[event for _, event in placed[:size]], next=more))


class _VerdictHead(Answer):
    """A `VerdictAnswer` without the bytes that are spliced in."""

    run_id: str
    freshness: Freshness


def _verdict(db: Connection, context: Context, run_id: str) -> tuple[RunRow, bytes, Freshness]:
    """A run with its verdict and how fresh that is, all of one moment."""
    row, freshness = _run(db, context, run_id)
    verdict = reading.verdict_bytes(db, run_id)
    assert verdict is not None, "both are of one transaction"
    return row, verdict, freshness


def _run(db: Connection, context: Context, run_id: str) -> tuple[RunRow, Freshness]:
    """A run and how fresh its verdict is, of one moment."""
    row = reading.find_run(db, run_id)
    if row is None:
        raise not_found("run", run_id)
    reasons = stale_reasons(db, context)
    freshness = Freshness(
        revision=row.revision,
        updated_at=timestamp(row.updated_at) or "",
        judged_to_iteration=row.judged_to,
        stale=bool(reasons),
        stale_reasons=reasons,
        quiet_since=timestamp(row.quiet_since),
    )
    return row, freshness
