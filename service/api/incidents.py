"""`/v1/incidents`: lists, one incident, and what a person makes of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import AwareDatetime
from sqlalchemy import Connection

from detectors.evidence import Certainty, Label
from detectors.incident import Severity
from service import reading
from service.mutes import MAX_MUTE_S
from service.reading import IncidentQuery, IncidentRow
from service.triage import ALLOWED, Decision, TransitionError, decide

from .answers import answer, etag_of, spliced, tag_matches, tagged
from .context import context_of
from .incident_summary import Telling
from .models import (
    IncidentAnswer,
    IncidentPage,
    IncidentSummary,
    LogEntry,
    State,
    StateChange,
)
from .pages import from_cursor, to_cursor
from .parameters import Cursor, IncidentId, LabelText, Limit, Name
from .problems import ProblemError, ProblemItem, not_found
from .values import timestamp

router = APIRouter(prefix="/v1/incidents", tags=["incidents"])


@router.get("", response_model=IncidentPage, summary="Incidents, newest first")
def list_incidents(
    request: Request,
    *,
    run: Annotated[Name | None, Query(description="Only of the run of exactly this name.")] = None,
    label: Annotated[Label | None, Query(description="Only of this label.")] = None,
    state: Annotated[State | None, Query(description="Only in this state.")] = None,
    certainty: Annotated[Certainty | None, Query(description="Only of this certainty.")] = None,
    severity: Annotated[Severity | None, Query(description="Only of this severity.")] = None,
    rank: Annotated[int | None, Query(ge=0, lt=2**31, description="Only with this rank suspected.")] = None,
    host: Annotated[LabelText | None, Query(description="Only with a suspect on this host.")] = None,
    since: Annotated[
        AwareDatetime | None, Query(description="Only what changed at this time (RFC 3339) or later.")
    ] = None,
    cursor: Cursor = None,
    limit: Limit = None,
) -> Response:
    """What went wrong, over all runs; those that later records explained away are left out."""
    context = context_of(request)
    size = context.page_size(limit)
    query = IncidentQuery(
        run=run,
        label=label,
        state=state,
        certainty=certainty,
        severity=severity,
        rank=rank,
        host=host,
        since=None if since is None else since.timestamp(),
        after=from_cursor("incidents", cursor, (float, str)),
        limit=size + 1,
    )
    with context.database.read() as db:
        rows = reading.list_incidents(db, query, context.clock())
        told = Telling(db, context.clock())
        items = [IncidentSummary(**told.summary(row)) for row in rows[:size]]
    last = rows[size - 1] if len(rows) > size else None
    place = None if last is None else to_cursor("incidents", (last.opened_at, last.id))
    return answer(IncidentPage(items=items, next=place))


@router.get("/{incident_id}", response_model=IncidentAnswer, summary="One incident with its evidence")
def get_incident(request: Request, incident_id: IncidentId) -> Response:
    """The canonical incident, byte for byte, with what people made of it; the ETag is for `If-Match`."""
    context = context_of(request)
    with context.database.read() as db:
        body = _body(db, incident_id, context.clock())
    return tagged(request, body)


@router.post(
    "/{incident_id}/state", response_model=IncidentAnswer, summary="Say what you make of an incident"
)
def set_state(
    request: Request,
    incident_id: IncidentId,
    change: StateChange,
    if_match: Annotated[
        str | None, Header(description="ETag of the incident as you saw it; 412 if it has changed since.")
    ] = None,
) -> Response:
    """Acknowledge, mute, resolve, reopen, or call a false alarm; written to the incident's log."""
    context = context_of(request)
    now = context.clock()
    _check_mute(change.until(), now)
    decision = Decision(
        state=change.state,
        note=change.note,
        muted_until=change.until(),
        who=request.scope["state"]["grant"].name,
    )
    with context.database.write() as db:

        def check(_: IncidentRow) -> None:
            tag = etag_of(_body(db, incident_id, now))
            if if_match is not None and not tag_matches([if_match], tag, is_weak_fine=False):
                raise ProblemError(
                    412,
                    "changed",
                    "the incident has changed since you read it; look again",
                    headers={"ETag": tag},
                )

        try:
            is_there = decide(db, incident_id, decision, now, check)
        except TransitionError as error:
            raise ProblemError(409, "transition", str(error)) from error
        if not is_there:
            raise not_found("incident", incident_id)
        body = _body(db, incident_id, now)
    return Response(body, media_type="application/json", headers={"ETag": etag_of(body)})


def _check_mute(until: float | None, now: float) -> None:
    if until is not None and not now < until <= now + MAX_MUTE_S:
        detail = "must be in the future, and at most a year away"
        raise ProblemError(
            422,
            "invalid-request",
            f"muted_until {detail}",
            errors=[ProblemItem(detail=detail, pointer="#/muted_until")],
        )


class _IncidentHead(IncidentSummary):
    """An `IncidentAnswer` without the bytes that are spliced in."""

    log: list[LogEntry]
    allowed: list[State]


def _body(db: Connection, incident_id: str, now: float) -> bytes:
    """An incident's answer: a function of what is stored, and of whether a mute is over."""
    row = reading.find_incident(db, incident_id, now)
    if row is None:
        raise not_found("incident", incident_id)
    entries = [
        LogEntry(
            at=timestamp(one.at) or "",
            who=one.who,
            state=State(one.state),
            note=one.note,
            muted_until=timestamp(one.muted_until),
            by_system=one.by_system,
        )
        for one in reading.incident_history(db, incident_id)
    ]
    allowed = [State(name) for name in ALLOWED[row.state]]
    head = _IncidentHead(**Telling(db, now).summary(row), log=entries, allowed=allowed)
    return spliced(head, "incident", row.body)
