"""What is to be told, put out in the transaction that changed the incident.

A *delivery* is one message for one channel about one run, of one alert or of several that came while it
waited. Until it was first tried it takes in what changes; from then on it stays as it is under its id, by
which a receiver knows it again, and what changes goes into another one behind it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, and_, delete, func, insert, select, update

from ..rows import next_seq, to_body, upsert
from ..tables import alert_deliveries, alert_told, incidents
from .config import AlertsConfig, ChannelKind
from .message import alert_of, sample_alert
from .telling import Event, Told, event_of, hears_of, why_over

if TYPE_CHECKING:
    from ..incident_rows import IncidentChange, VerdictWrite


class DeliveryKind(StrEnum):
    """What a delivery is for."""

    ALERT = "alert"
    REMINDER = "reminder"
    TEST = "test"
    REFRESH = "refresh"
    """An Alertmanager is told again of all that stands."""


class DeliveryState(StrEnum):
    """How far a delivery is."""

    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given_up"
    DROPPED = "dropped"
    """There was nothing left to tell, or the channel does not hear of it."""


def tell_changes(write: VerdictWrite, changes: Sequence[IncidentChange], config: AlertsConfig) -> bool:
    """Put out what a verdict changed about incidents; whether anything waits to be sent."""
    put_out = False
    for change in changes if config.channels else ():
        name = str(change.incident["id"])
        row = write.db.execute(select(incidents).where(incidents.c.id == name)).one()
        alert = alert_of(change.incident, write.verdict, write.run_id, row.opened_at)
        over = why_over(alert, row.state, is_withdrawn=row.is_withdrawn)
        for channel, settings in config.channels.items():
            told = _told(write.db, channel, name)
            event = event_of(_as_told(told), alert, row.state, over)
            if event is None or not (over or hears_of(settings, alert)):
                _refresh_told(write.db, channel, alert, told)
                continue
            # an Alertmanager groups by itself
            wait_s = 0.0 if settings.kind is ChannelKind.ALERTMANAGER else settings.cool_down_s
            _put(write.db, channel, _with_event(alert, event, over, write.now), write.now, wait_s)
            if settings.kind is ChannelKind.ALERTMANAGER:
                _keep_telling(write.db, channel, write.now)
            put_out = True
    return put_out


def alerts_in(payload: bytes) -> list[dict[str, Any]]:
    """The alerts of a delivery."""
    found: list[dict[str, Any]] = json.loads(payload)["alerts"]
    return found


def tell_decision(
    db: Connection, incident_id: str, state: str, now: float, muted_until: float | None = None
) -> None:
    """Put out that a person ended an incident, for the channels that were told of it.

    A mute sends nothing; where it ends, whoever was told is reminded of what still stands.
    """
    over = why_over({"certainty": "confirmed"}, state, is_withdrawn=False)
    mine = (alert_told.c.incident_id == incident_id) & alert_told.c.is_firing.is_(True)
    for told in db.execute(select(alert_told).where(mine)).all():
        alert = json.loads(told.alert)
        if over:
            _put(db, told.channel, _with_event(alert, Event.RESOLVED, over, now), now, 0.0)
        elif state == "muted" and muted_until is not None:
            _renew_reminder(db, told.channel, _with_event(alert, Event.REMINDER, "", now), now, muted_until)


def put_test(db: Connection, channel: str, now: float) -> str:
    """Put out a test message; its id."""
    return _insert(db, channel, [sample_alert(channel, now)], now, now, kind=DeliveryKind.TEST)


def _put(db: Connection, channel: str, alert: Mapping[str, Any], now: float, cool_down_s: float) -> None:
    """Put one alert out, into a delivery that nobody has tried yet if there is one."""
    waits = _waiting(db, channel, alert["run_id"])
    listed = alerts_in(waits.payload) if waits is not None else []
    before = next((one for one in listed if one["incident"] == alert["incident"]), None)
    others = [one for one in listed if one["incident"] != alert["incident"]]
    was = None if before is None else before["event"]
    if not alert["is_firing"] and was == Event.OPENED:
        _forget(db, channel, alert["incident"])  # it is over before anybody heard of it
        _replace(db, waits, others)
        return
    _note_told(db, channel, alert, now)
    if alert["is_firing"] and was == Event.RESOLVED:
        _replace(db, waits, others)  # it is back before anybody heard that it was gone
        return
    due_at = now if _is_urgent(alert) else _cooled(db, channel, alert["run_id"], now, cool_down_s)
    if waits is None:
        _insert(db, channel, [alert], now, due_at)
        return
    told = {**alert, "event": was} if was == Event.OPENED else alert
    _replace(db, waits, [*others, told], min(due_at, waits.due_at))


def _is_urgent(alert: Mapping[str, Any]) -> bool:
    """Whether no cool-down holds it back: it got worse, or a person ended it. What comes and goes by itself
    may flap."""
    return alert["event"] == Event.WORSENED or str(alert.get("over_because")).startswith("somebody")


def _with_event(alert: Mapping[str, Any], event: Event, over: str, now: float) -> dict[str, Any]:
    told = {**alert, "event": event.value, "is_firing": not over}
    return told | ({"over_because": over, "ended_at": now} if over else {})


def _insert(
    db: Connection,
    channel: str,
    alerts: Sequence[Mapping[str, Any]],
    now: float,
    due_at: float,
    *,
    kind: DeliveryKind = DeliveryKind.ALERT,
) -> str:
    name = f"msg_{uuid.uuid4().hex}"
    row = {
        "id": name,
        "seq": next_seq(db),
        "channel": channel,
        "kind": kind.value,
        "state": DeliveryState.WAITING.value,
    }
    about = {"run_id": alerts[0]["run_id"], "run": alerts[0]["run"], "key": alerts[0]["incident"]}
    times = {"created_at": now, "due_at": due_at, "attempts": 0, "detail": ""}
    payload = to_body({"alerts": list(alerts)})
    db.execute(insert(alert_deliveries).values(**row, **about, **times, payload=payload))
    return name


def _waiting(db: Connection, channel: str, run_id: str) -> Row[Any] | None:
    """The delivery about a run that nobody has tried yet."""
    table = alert_deliveries
    mine = (
        (table.c.channel == channel) & (table.c.run_id == run_id) & (table.c.kind == DeliveryKind.ALERT.value)
    )
    untried = (table.c.state == DeliveryState.WAITING.value) & (table.c.attempts == 0)
    return db.execute(select(table).where(mine & untried).with_for_update()).first()


def _about(channel: str, run_id: str) -> ColumnElement[bool]:
    """Deliveries of alerts about a run."""
    table = alert_deliveries
    is_alert = table.c.kind == DeliveryKind.ALERT.value
    return and_(table.c.channel == channel, table.c.run_id == run_id, is_alert)


def _replace(
    db: Connection,
    row: Any,  # of the driver's
    alerts: Sequence[Mapping[str, Any]],
    due_at: float | None = None,
) -> None:
    """A delivery that waits holds these alerts now; without any it is none."""
    mine = alert_deliveries.c.id == row.id
    if not alerts:
        db.execute(delete(alert_deliveries).where(mine))
        return
    values = {"payload": to_body({"alerts": list(alerts)}), "key": alerts[0]["incident"]}
    values |= {"due_at": row.due_at if due_at is None else due_at}
    db.execute(update(alert_deliveries).where(mine).values(**values))


def _cooled(db: Connection, channel: str, run_id: str, now: float, cool_down_s: float) -> float:
    """When a channel may hear of a run again."""
    table = alert_deliveries
    mine = (
        (table.c.channel == channel) & (table.c.run_id == run_id) & (table.c.kind == DeliveryKind.ALERT.value)
    )
    told = table.c.state.in_((DeliveryState.WAITING.value, DeliveryState.SENT.value))
    last = db.execute(select(func.max(table.c.due_at)).where(mine & told)).scalar()
    return now if last is None else max(now, float(last) + cool_down_s)


def _told(db: Connection, channel: str, incident_id: str) -> Row[Any] | None:
    mine = (alert_told.c.channel == channel) & (alert_told.c.incident_id == incident_id)
    return db.execute(select(alert_told).where(mine)).first()


def _as_told(row: Row[Any] | None) -> Told | None:
    if row is None:
        return None
    return Told(
        is_firing=bool(row.is_firing),
        certainty=row.certainty,
        severity=row.severity,
        has_ranks=bool(row.has_ranks),
    )


def _note_told(db: Connection, channel: str, alert: Mapping[str, Any], now: float) -> None:
    row = {
        "channel": channel,
        "incident_id": alert["incident"],
        "is_firing": alert["is_firing"],
        "certainty": alert["certainty"],
        "severity": alert["severity"],
        "has_ranks": bool(alert["ranks"]),
        "alert": to_body(alert),
        "told_at": now,
    }
    upsert(db, alert_told, ["channel", "incident_id"], row)


def _refresh_told(db: Connection, channel: str, alert: Mapping[str, Any], row: Row[Any] | None) -> None:
    """What a channel is told again, or when it is over, is as the incident is now."""
    if row is not None and row.is_firing:
        known = json.loads(row.alert)
        body = to_body({**alert, "event": known["event"], "is_firing": True})
        mine = (alert_told.c.channel == channel) & (alert_told.c.incident_id == alert["incident"])
        db.execute(update(alert_told).where(mine).values(alert=body))


def _forget(db: Connection, channel: str, incident_id: str) -> None:
    mine = (alert_told.c.channel == channel) & (alert_told.c.incident_id == incident_id)
    db.execute(delete(alert_told).where(mine))


def _renew_reminder(
    db: Connection, channel: str, alert: Mapping[str, Any], now: float, due_at: float
) -> None:
    """Remind of an incident at ``due_at``, and not at the end of a mute before."""
    table = alert_deliveries
    mine = (table.c.channel == channel) & (table.c.key == alert["incident"])
    waiting = (table.c.kind == DeliveryKind.REMINDER.value) & (table.c.state == DeliveryState.WAITING.value)
    db.execute(delete(table).where(mine & waiting))
    _insert(db, channel, [alert], now, due_at, kind=DeliveryKind.REMINDER)


def _keep_telling(db: Connection, channel: str, now: float) -> None:
    """An Alertmanager is told again and again of what stands, by whoever claims this delivery."""
    name = f"refresh-{channel}"
    if db.execute(select(alert_deliveries.c.id).where(alert_deliveries.c.id == name)).first() is None:
        row = {"id": name, "seq": next_seq(db), "channel": channel, "kind": DeliveryKind.REFRESH.value}
        about = {"run_id": "", "run": "", "key": "", "payload": to_body({"alerts": []}), "detail": ""}
        times = {"state": DeliveryState.WAITING.value, "created_at": now, "due_at": now, "attempts": 0}
        db.execute(insert(alert_deliveries).values(**row, **about, **times))
