"""`/v1/incidents/{id}/revisions`: what an incident was before."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request, Response

from service import reading
from service.revisions import MAX_REVISIONS, Revision, differences, list_revisions

from .answers import answer
from .context import context_of
from .incident_summary import Telling
from .parameters import IncidentId
from .problems import not_found
from .triage_models import FieldChange, RevisionAnswer, RevisionKind, RevisionList
from .values import timestamp

router = APIRouter(prefix="/v1/incidents", tags=["incidents"])

_SHOWN = 300
"""Characters of a value that are shown whole; of a longer one the size is."""


@router.get("/{incident_id}/revisions", response_model=RevisionList, summary="What an incident was before")
def get_revisions(request: Request, incident_id: IncidentId) -> Response:
    """Each change that is more than the run going on, with what differs; people's are in the log."""
    context = context_of(request)
    now = context.clock()
    with context.database.read() as db:
        row = reading.find_incident(db, incident_id, now)
        if row is None:
            raise not_found("incident", incident_id)
        kept = list_revisions(db, incident_id)
        told = Telling(db, now)
        pairs = zip([None, *kept], kept, strict=False)
        items = [_item(told, row.run_id, one, before) for before, one in pairs]
    # without the first the incident is older than the store's keeping of revisions
    is_forgotten = len(kept) >= MAX_REVISIONS or (bool(kept) and kept[0].kind != RevisionKind.NEW)
    return answer(RevisionList(items=items, forgotten=is_forgotten))


def _item(told: Telling, run_id: str, one: Revision, before: Revision | None) -> RevisionAnswer:
    changed = [] if before is None else differences(before.incident, one.incident)
    return RevisionAnswer(
        revision=one.revision,
        at=timestamp(one.at) or "",
        kind=RevisionKind(one.kind),
        **told.told(run_id, one.incident),
        changed=[
            FieldChange(field=name, before=_short(was), after=_short(is_now)) for name, was, is_now in changed
        ],
    )


def _short(value: Any) -> Any:  # any part of an incident's JSON
    if len(json.dumps(value)) <= _SHOWN:
        return value
    return f"{len(value)} entries" if isinstance(value, list | dict) else f"{str(value)[:_SHOWN]}…"
