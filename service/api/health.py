"""`/healthz` and `/readyz`.

Nothing here asks the broker, so that an answer comes at once above all when something is away. A service
that is degraded is still ready: it answers from the store and says what is wrong. Only a store that cannot
be read makes it unready, or traffic would flap with the broker.
"""

from __future__ import annotations

from enum import StrEnum

from fastapi import APIRouter, Request, Response
from sqlalchemy import Connection

from service import reading
from service.alerts.reading import failing, stands
from service.errors import StoreError

from .answers import answer
from .context import Context, context_of
from .guards import TokenScope
from .values import Answer, Timestamp, timestamp
from .workers import Reason, Workers

router = APIRouter(tags=["health"])


class Readiness(StrEnum):
    """How well the service is."""

    READY = "ready"
    DEGRADED = "degraded"
    UNREADY = "unready"


class ReasonAnswer(Answer):
    """One thing that is not as it should be."""

    code: str
    detail: str | None = None
    """In words; only for whoever may read."""


class HealthAnswer(Answer):
    """The process lives."""

    status: str


class ReadyAnswer(Answer):
    """Whether the service answers, and what is wrong besides."""

    status: Readiness
    checked_at: Timestamp
    reasons: list[ReasonAnswer]


@router.get("/healthz", response_model=HealthAnswer, summary="Whether the process lives")
async def healthz() -> Response:
    """Answers as long as the process turns; asks nothing of the store."""
    return answer(HealthAnswer(status="ok"))


@router.get(
    "/readyz",
    response_model=ReadyAnswer,
    summary="Whether the service answers, and what is wrong",
    responses={503: {"model": ReadyAnswer, "description": "The store cannot be read."}},
)
def readyz(request: Request) -> Response:
    """200 while the store can be read, whatever else is away; ``reasons`` say what is."""
    context = context_of(request)
    status = Readiness.READY
    try:
        with context.database.read() as db:
            reasons = degradations(db, context)
    except StoreError as error:
        status, reasons = Readiness.UNREADY, [Reason("store-unavailable", str(error))]
    if reasons and status is Readiness.READY:
        status = Readiness.DEGRADED
    # details name runs and brokers: not for whoever can reach the port
    grant = request.scope["state"]["grant"]
    may_read = grant is not None and TokenScope.READ in grant.scopes
    told = [ReasonAnswer(code=one.code, detail=one.detail if may_read else None) for one in reasons]
    body = ReadyAnswer(status=status, checked_at=timestamp(context.clock()) or "", reasons=told)
    return answer(body, status=503 if status is Readiness.UNREADY else 200)


def stale_reasons(db: Connection, context: Context) -> list[str]:
    """Why newer telemetry may exist that no verdict knows; empty if all of it is judged."""
    reasons = [*workers_of(db, context).reasons(), *context.further_reasons()]
    return [one.detail for one in reasons if one.makes_stale]


def degradations(db: Connection, context: Context) -> list[Reason]:
    """All that is not as it should be."""
    reasons = [*workers_of(db, context).reasons(), *context.further_reasons()]
    silent = reading.runs_with_silent_ranks(db, context.clock())
    if silent:
        of = "1 run" if silent == 1 else f"{silent} runs"
        words = f"ranks of {of} have gone silent: see /v1/incidents?label=stall"
        reasons.append(Reason("rank-silent", words, makes_stale=False))
    for channel, why in failing(stands(db, context.clock())):
        words = f"the alert channel {channel} does not work: {why}"
        reasons.append(Reason("alerts-failing", words, makes_stale=False))
    return reasons


def workers_of(db: Connection, context: Context) -> Workers:
    """What the workers of the store last said."""
    spoken, owned = reading.component_health(db), reading.owned_parts(db)
    return Workers(spoken, owned, context.config, context.clock())
