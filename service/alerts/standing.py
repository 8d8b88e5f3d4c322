"""All that stands, told to an Alertmanager: it knows an alert by its labels and forgets what is not repeated.

Whatever was put out, the whole of what stands is sent, with an end some time ahead; and of what the
Alertmanager holds under labels that no longer stand, the end is told. So a message that was lost, labels that
changed with the severity or with a host that became known, and a mute all come right with the next one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row

from ..database import Database
from ..mutes import muted_now
from . import dispatch
from .carriers import Letter, Outcome, send_state
from .dispatch import Delivery
from .message import Alert, labels_of
from .outbox import DeliveryKind

_MOST = 1000
"""Alerts in one message, the newest: a megabyte."""
_LASTS = 4.0
"""An alert is over after so many times without being repeated: a worker that restarts misses one or two."""
_TEST_LASTS_S = 60.0


def tell_standing(database: Database, letter: Letter, delivery: Delivery) -> Outcome:
    """Send what stands and what is over; note under which labels the Alertmanager holds each."""
    until = letter.now + _LASTS * letter.config.resend_every_s
    if delivery.kind is DeliveryKind.TEST:
        return send_state(letter, [(alert, letter.now + _TEST_LASTS_S) for alert in delivery.alerts])
    with database.read() as db:
        rows = dispatch.told_of(db, letter.channel, _MOST)
        standing = {
            row.incident_id: json.loads(row.alert)
            for row in rows
            if row.is_firing and muted_now(db, row.incident_id, letter.now) is None
        }
    labels = {incident: _text(alert) for incident, alert in standing.items()}
    over = _over(rows, set(labels.values()), letter.now)
    alerts = [(alert, until) for alert in standing.values()] + over
    outcome = send_state(letter, alerts) if alerts else Outcome(is_sent=True, detail="nothing stands")
    if outcome.is_sent:
        now_held = {row.incident_id: labels.get(row.incident_id) for row in rows}
        changed = {
            row.incident_id: now_held[row.incident_id]
            for row in rows
            if row.labels != now_held[row.incident_id]
        }
        with database.write() as db:
            dispatch.note_labels(db, letter.channel, changed)
    return outcome


def _over(rows: Sequence[Row[Any]], standing: set[str], now: float) -> list[tuple[Alert, float]]:
    """What the Alertmanager holds under labels that do not stand any more."""
    ended: dict[str, tuple[Alert, float]] = {}
    for row in rows:
        if row.labels is not None and row.labels not in standing:
            ended[row.labels] = {**json.loads(row.alert), "labels": json.loads(row.labels)}, now
    return list(ended.values())


def _text(alert: Alert) -> str:
    return json.dumps(labels_of(alert), sort_keys=True)
