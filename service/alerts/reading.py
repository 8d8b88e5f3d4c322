"""What the store is asked about channels and deliveries: for the API, health and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, func, select, tuple_

from ..tables import alert_deliveries, alert_results
from .outbox import DeliveryKind, DeliveryState, alerts_in

_LATE_S = 60.0
"""A message that waits or fails for so long is told of: retries have had their chance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How often a channel took or refused a message, and when last."""

    result: str
    messages: int
    at: float
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStand:
    """How a channel does."""

    results: tuple[Result, ...] = ()
    waiting: int = 0
    oldest_waiting_at: float | None = None
    is_failing: bool = False
    """Whether the last message was not taken, and that is not over in a moment."""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRow:
    """A delivery as lists show it."""

    id: str
    seq: int
    channel: str
    kind: str
    state: str
    run_id: str
    run: str
    alerts: tuple[tuple[str, str, str], ...]
    """Incident, event and sentence of each."""
    created_at: float
    due_at: float
    attempts: int
    finished_at: float | None
    detail: str


def stands(db: Connection, now: float) -> dict[str, ChannelStand]:
    """Every channel that was ever told anything, by name."""
    results: dict[str, list[Result]] = {}
    for row in db.execute(select(alert_results).order_by(alert_results.c.channel, alert_results.c.result)):
        one = Result(result=row.result, messages=row.messages, at=row.at, detail=row.detail)
        results.setdefault(row.channel, []).append(one)
    waiting = _waiting(db, now)
    return {
        name: _stand(tuple(results.get(name, ())), *waiting.get(name, (0, None, 0)))
        for name in sorted(results.keys() | waiting.keys())
    }


def list_deliveries(
    db: Connection,
    *,
    channel: str | None = None,
    state: str | None = None,
    after: tuple[float | int | str, ...] | None = None,
    limit: int = 100,
) -> list[DeliveryRow]:
    """Deliveries, newest first; an Alertmanager's repetitions are left out."""
    table = alert_deliveries
    wanted = select(table).where(table.c.kind != DeliveryKind.REFRESH.value)
    if channel is not None:
        wanted = wanted.where(table.c.channel == channel)
    if state is not None:
        wanted = wanted.where(table.c.state == state)
    if after is not None:
        wanted = wanted.where(tuple_(table.c.seq) < tuple_(*after))
    rows = db.execute(wanted.order_by(table.c.seq.desc()).limit(limit))
    return [
        DeliveryRow(
            **{name: row._mapping[name] for name in DeliveryRow.__slots__ if name != "alerts"},
            alerts=tuple((one["incident"], one["event"], one["sentence"]) for one in alerts_in(row.payload)),
        )
        for row in rows
    ]


def failing(found: Mapping[str, ChannelStand]) -> Sequence[tuple[str, str]]:
    """The channels that do not work, each with why."""
    return [(name, one.why) for name, one in found.items() if one.is_failing]


def _waiting(db: Connection, now: float) -> dict[str, tuple[int, float | None, int]]:
    """Per channel: deliveries whose time has come, the oldest of them, and how many are long overdue."""
    table = alert_deliveries
    due = (table.c.state == DeliveryState.WAITING.value) & (table.c.kind != DeliveryKind.REFRESH.value)
    due &= (table.c.due_at <= now) | (table.c.attempts > 0)
    late = func.count().filter(table.c.created_at < now - _LATE_S)
    columns = (table.c.channel, func.count(), func.min(table.c.created_at), late)
    rows = db.execute(select(*columns).where(due).group_by(table.c.channel))
    return {row[0]: (int(row[1]), row[2], int(row[3])) for row in rows}


def _stand(results: tuple[Result, ...], waiting: int, oldest: float | None, late: int) -> ChannelStand:
    last = max(results, key=lambda one: one.at, default=None)
    why = ""
    if last is not None and last.result == "given_up":
        why = f"a message was given up: {last.detail}"
    elif late and last is not None and last.result == "failed":
        why = f"{waiting} messages wait, the last try failed: {last.detail}"
    elif late:
        why = f"{waiting} messages wait and no worker sends them"
    return ChannelStand(
        results=results, waiting=waiting, oldest_waiting_at=oldest, is_failing=bool(why), why=why
    )
