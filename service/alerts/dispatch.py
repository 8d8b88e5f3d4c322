"""Who sends which delivery, and what became of it: leases and results in the store.

A sender *claims* a delivery for a while. If it dies, the lease runs out and another sends the same message
under the same id: at least once, and a receiver can tell. Deliveries about one run keep their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, exists, or_, select, update

from ..rows import upsert
from ..tables import alert_deliveries, alert_results, alert_told
from .outbox import DeliveryKind, DeliveryState, alerts_in

_MAX_DETAIL = 300
_NOBODY_S = 3600.0
"""A message is due for so long beyond its time only if no worker knows its channel."""
_FORGET_TOLD_S = 30 * 86_400.0
"""An incident that was over for a month and comes back is told as a new one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message that is ours to send."""

    id: str
    kind: DeliveryKind
    channel: str
    run: str
    alerts: tuple[dict[str, Any], ...]
    attempts: int
    """This one included."""
    created_at: float
    give_up_at: float
    owner: str
    """Who has claimed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """How long a claim holds, and how long a delivery is tried."""

    owner: str
    seconds: float
    give_up_after_s: float


def has_due(db: Connection, channel: str, now: float) -> bool:
    """Whether a delivery waits for whoever claims it."""
    return db.execute(select(alert_deliveries.c.id).where(_due(channel, now)).limit(1)).first() is not None


def claim_next(db: Connection, channel: str, lease: Lease, now: float) -> Delivery | None:
    """Make the next due delivery of a channel ours for a while; None if there is none."""
    table = alert_deliveries
    wanted = select(table).where(_due(channel, now)).order_by(table.c.due_at, table.c.seq).limit(1)
    row = db.execute(wanted.with_for_update(skip_locked=True)).first()
    if row is None:
        return None
    give_up_at = row.give_up_at if row.give_up_at is not None else now + lease.give_up_after_s
    values = {"attempts": row.attempts + 1, "give_up_at": give_up_at}
    held = {"lease_owner": lease.owner, "lease_until": now + lease.seconds}
    db.execute(update(table).where(table.c.id == row.id).values(**values, **held))
    return Delivery(
        id=row.id,
        kind=DeliveryKind(row.kind),
        channel=channel,
        run=row.run,
        alerts=tuple(alerts_in(row.payload)),
        attempts=row.attempts + 1,
        created_at=row.created_at,
        give_up_at=give_up_at,
        owner=lease.owner,
    )


def finish(db: Connection, delivery: Delivery, state: DeliveryState, now: float, detail: str) -> None:
    """The delivery was sent, given up or dropped."""
    values = {"state": state.value, "finished_at": now, "detail": detail[:_MAX_DETAIL]}
    _settle(db, delivery, values)


def put_off(db: Connection, delivery: Delivery, due_at: float, detail: str) -> None:
    """The delivery failed, or is muted for now: it is due again at ``due_at``."""
    _settle(db, delivery, {"due_at": due_at, "detail": detail[:_MAX_DETAIL]})


def untried(db: Connection, delivery: Delivery, due_at: float, detail: str) -> None:
    """Nothing was tried: the delivery waits until ``due_at``, and its time has not begun."""
    fresh = {"attempts": delivery.attempts - 1, "give_up_at": None} if delivery.attempts == 1 else {}
    _settle(db, delivery, {"due_at": due_at, "detail": detail[:_MAX_DETAIL], **fresh})


def count(db: Connection, channel: str, result: str, now: float, detail: str) -> None:
    """Count what a channel made of a message."""
    table = alert_results
    row = {"channel": channel, "result": result, "messages": 1, "at": now, "detail": detail[:_MAX_DETAIL]}
    told = {"at": now, "detail": detail[:_MAX_DETAIL]}
    upsert(db, table, ["channel", "result"], row, {"messages": table.c.messages + 1, **told})


def end_refresh_if_over(db: Connection, delivery: Delivery, due_at: float) -> None:
    """An Alertmanager is told again at ``due_at``, unless nothing stands there any more."""
    held = (alert_told.c.is_firing.is_(True)) | alert_told.c.labels.is_not(None)
    mine = (alert_told.c.channel == delivery.channel) & held
    if db.execute(select(alert_told.c.incident_id).where(mine).limit(1)).first() is None:
        db.execute(delete(alert_deliveries).where(alert_deliveries.c.id == delivery.id))
        return
    _settle(db, delivery, {"due_at": due_at, "attempts": 0, "give_up_at": None, "detail": ""})


def prune(db: Connection, now: float, keep_s: float, give_up_after_s: float) -> None:
    """Forget what was sent long ago; give up what nobody sends, since no settings have its channel."""
    table = alert_deliveries
    forgotten = (table.c.state == DeliveryState.WAITING.value) & (table.c.lease_until.is_(None))
    forgotten &= table.c.due_at < now - give_up_after_s - _NOBODY_S
    values = {
        "state": DeliveryState.GIVEN_UP.value,
        "finished_at": now,
        "detail": "no worker has this channel",
    }
    db.execute(update(table).where(forgotten).values(**values))
    db.execute(delete(table).where(table.c.finished_at < now - keep_s))
    over = alert_told.c.is_firing.is_(False) & (alert_told.c.told_at < now - _FORGET_TOLD_S)
    db.execute(delete(alert_told).where(over & alert_told.c.labels.is_(None)))


def told_of(db: Connection, channel: str, limit: int) -> list[Row[Any]]:
    """What an Alertmanager holds or should hold, the newest first."""
    mine = (alert_told.c.channel == channel) & (
        alert_told.c.is_firing.is_(True) | alert_told.c.labels.is_not(None)
    )
    order = (alert_told.c.told_at.desc(), alert_told.c.incident_id)
    return list(db.execute(select(alert_told).where(mine).order_by(*order).limit(limit)).all())


def note_labels(db: Connection, channel: str, labels: Mapping[str, str | None]) -> None:
    """Under which labels (JSON) an Alertmanager holds each incident now; None where it does not."""
    for incident, text in labels.items():
        mine = (alert_told.c.channel == channel) & (alert_told.c.incident_id == incident)
        db.execute(update(alert_told).where(mine).values(labels=text))


def _due(channel: str, now: float) -> ColumnElement[bool]:
    """Deliveries that nobody is at, and that no older one about the same run is in front of."""
    table, older = alert_deliveries, alert_deliveries.alias("older")
    is_free = or_(table.c.lease_until.is_(None), table.c.lease_until < now)
    mine = and_(
        table.c.channel == channel, table.c.state == DeliveryState.WAITING.value, table.c.due_at <= now
    )
    in_front = and_(
        older.c.channel == channel,
        older.c.run_id == table.c.run_id,
        older.c.kind == DeliveryKind.ALERT.value,
        older.c.state == DeliveryState.WAITING.value,
        older.c.seq < table.c.seq,
    )
    is_first = or_(table.c.kind != DeliveryKind.ALERT.value, ~exists(select(older.c.id).where(in_front)))
    return and_(mine, is_free, is_first)


def _settle(db: Connection, delivery: Delivery, values: Mapping[str, Any]) -> None:
    """Let go of a delivery, if it is still ours: another may have it since our lease ran out."""
    table = alert_deliveries
    mine = (table.c.id == delivery.id) & (table.c.lease_owner == delivery.owner)
    db.execute(update(table).where(mine).values(**values, lease_owner=None, lease_until=None))
