"""The route of the event stream."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response

from .stream import EventStream

router = APIRouter(prefix="/v1", tags=["stream"])

_MAX_SEQ = 2**63 - 1


@router.get(
    "/stream",
    response_class=Response,
    summary="What changes, as it changes",
    responses={
        200: {
            "description": "Server-sent events; `id` is the place to resume from. The first is `hello`, or"
            " `gap` where events between were pruned; then what the store tells of runs and incidents.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def stream(
    request: Request,
    after: Annotated[
        int | None, Query(ge=0, le=_MAX_SEQ, description="Resume after this place; new events only without.")
    ] = None,
    last_event_id: Annotated[
        str | None, Header(description="The same, as browsers send it; wins.", pattern="^[0-9]{1,18}$")
    ] = None,
) -> Response:
    """Sends what is stored from now on, or after the place given."""
    place = after if last_event_id is None else int(last_event_id)
    return EventStream(request.app.state.hub, place, request.scope["state"]["is_admitted"])
