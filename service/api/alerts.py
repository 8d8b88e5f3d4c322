"""`/v1/alerts`: who is told of incidents, and what became of each message."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import Field

from detectors.evidence import Certainty, Label
from detectors.incident import Severity
from service.alerts.config import ChannelConfig, ChannelKind
from service.alerts.outbox import DeliveryKind, DeliveryState, put_test
from service.alerts.reading import ChannelStand, DeliveryRow, list_deliveries, stands
from service.alerts.secrets import shown_address

from .answers import answer
from .context import context_of
from .pages import from_cursor, to_cursor
from .parameters import Cursor, Limit
from .problems import not_found
from .values import Answer, Timestamp, Whole, timestamp

router = APIRouter(prefix="/v1/alerts", tags=["alerts"])

ChannelName = Annotated[
    str, Path(pattern="^[a-z0-9][a-z0-9_-]{0,39}$", description="As the settings name it.")
]


class ResultAnswer(Answer):
    """How often a channel did one thing with a message."""

    result: str = Field(description="sent, failed (and tried again) or given_up.")
    messages: Whole
    at: Timestamp | None = Field(description="When last.")
    detail: str = Field(description="In words, of the last one.")


class ChannelAnswer(Answer):
    """A channel: what it hears of, and how it does. No address or secret is shown whole."""

    name: str
    kind: ChannelKind | None = Field(description="Null: it was told before, and is not in these settings.")
    target: str | None = Field(description="Scheme and host; the rest may be a secret.")
    min_severity: Severity | None
    min_certainty: Certainty | None
    labels: list[Label] = Field(description="Only these; empty: all.")
    runs: str | None = Field(description="Pattern of the names of runs.")
    tells_resolved: bool | None
    waiting: Whole = Field(description="Messages whose time has come and that were not taken yet.")
    oldest_waiting_at: Timestamp | None
    is_failing: bool
    results: list[ResultAnswer]


class ChannelPage(Answer):
    """All channels."""

    items: list[ChannelAnswer]
    next: str | None


class DeliveredAlert(Answer):
    """One alert in a message."""

    id: str = Field(description="The incident's.")
    event: str = Field(description="opened, worsened, resolved, reminder or test.")
    sentence: str


class DeliveryAnswer(Answer):
    """One message to one channel."""

    id: str = Field(description="A webhook gets it as `webhook-id`, each time that it is tried.")
    channel: str
    kind: DeliveryKind
    state: DeliveryState
    run: str
    run_id: str
    incidents: list[DeliveredAlert]
    created_at: Timestamp
    due_at: Timestamp | None
    attempts: Whole
    finished_at: Timestamp | None
    detail: str


class DeliveryPage(Answer):
    """Some messages, newest first, and the cursor of the next page."""

    items: list[DeliveryAnswer]
    next: str | None


class TestAnswer(Answer):
    """A test message that was put out."""

    id: str


@router.get("/channels", response_model=ChannelPage, summary="Who is told of incidents")
def get_channels(request: Request) -> Response:
    """Every channel of the settings, and those that were told before, with their last results."""
    context = context_of(request)
    with context.database.read() as db:
        found = stands(db, context.clock())
    known = context.alerts.channels
    names = sorted(known.keys() | found.keys())
    items = [_channel(name, known.get(name), found.get(name, ChannelStand())) for name in names]
    return answer(ChannelPage(items=items, next=None))


@router.post(
    "/channels/{name}/test", response_model=TestAnswer, status_code=202, summary="Send a test message"
)
def try_channel(request: Request, name: ChannelName) -> Response:
    """A message marked as a test; a worker sends it, and `/v1/alerts/deliveries` says what became of it."""
    context = context_of(request)
    if name not in context.alerts.channels:
        raise not_found("channel", name)
    with context.database.write() as db:
        put_out = put_test(db, name, context.clock())
    return answer(TestAnswer(id=put_out), status=202)


@router.get("/deliveries", response_model=DeliveryPage, summary="Messages to channels, newest first")
def get_deliveries(
    request: Request,
    *,
    channel: Annotated[
        str | None, Query(pattern="^[a-z0-9][a-z0-9_-]{0,39}$", description="Only to this channel.")
    ] = None,
    state: Annotated[DeliveryState | None, Query(description="Only in this state.")] = None,
    cursor: Cursor = None,
    limit: Limit = None,
) -> Response:
    """What was sent, waits, or was given up; kept as long as the settings say."""
    context = context_of(request)
    size = context.page_size(limit)
    after = from_cursor("deliveries", cursor, (int,))
    with context.database.read() as db:
        rows = list_deliveries(db, channel=channel, state=state, after=after, limit=size + 1)
    place = to_cursor("deliveries", (rows[size - 1].seq,)) if len(rows) > size else None
    return answer(DeliveryPage(items=[_delivery(row) for row in rows[:size]], next=place))


def _channel(name: str, settings: ChannelConfig | None, stand: ChannelStand) -> ChannelAnswer:
    results = [
        ResultAnswer(result=one.result, messages=one.messages, at=timestamp(one.at), detail=one.detail)
        for one in stand.results
    ]
    return ChannelAnswer(
        name=name,
        kind=None if settings is None else settings.kind,
        target=None if settings is None else shown_address(name, settings),
        min_severity=None if settings is None else settings.min_severity,
        min_certainty=None if settings is None else settings.min_certainty,
        labels=[] if settings is None else list(settings.labels),
        runs=None if settings is None else settings.runs,
        tells_resolved=None if settings is None else settings.tells_resolved,
        waiting=stand.waiting,
        oldest_waiting_at=timestamp(stand.oldest_waiting_at),
        is_failing=stand.is_failing,
        results=results,
    )


def _delivery(row: DeliveryRow) -> DeliveryAnswer:
    return DeliveryAnswer(
        id=row.id,
        channel=row.channel,
        kind=DeliveryKind(row.kind),
        state=DeliveryState(row.state),
        run=row.run,
        run_id=row.run_id,
        incidents=[DeliveredAlert(id=name, event=event, sentence=told) for name, event, told in row.alerts],
        created_at=timestamp(row.created_at) or "",
        due_at=timestamp(row.due_at),
        attempts=row.attempts,
        finished_at=timestamp(row.finished_at),
        detail=row.detail,
    )
