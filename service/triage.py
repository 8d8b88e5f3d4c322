"""What people do with incidents: the one place outside the worker that writes about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, insert, update

from . import reading
from .reading import IncidentRow
from .rows import next_seq
from .tables import changes, incident_log, incidents


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What one person makes of an incident."""

    state: str
    note: str
    muted_until: float | None
    who: str


def decide(
    db: Connection,
    incident_id: str,
    decision: Decision,
    now: float,
    check: Callable[[IncidentRow], None] = lambda _: None,
) -> bool:
    """Set the state of an incident, with an entry in its log and an event; False if there is none such.

    ``db`` is inside `Database.write`. ``check`` sees the incident as it stands under the write lock, and
    refuses by raising: between its look and the change nobody else can write.
    """
    # First, since it takes the row that orders all events: on PostgreSQL the lock that writers queue for.
    seq = next_seq(db)
    found = reading.find_incident(db, incident_id, now)
    if found is None:
        return False
    check(found)
    revision = found.revision + 1
    state = {"state": decision.state, "muted_until": decision.muted_until}
    place = {"revision": revision, "seq": seq, "updated_at": now}
    db.execute(update(incidents).where(incidents.c.id == incident_id).values(**state, **place))
    entry = {"who": decision.who, "state": decision.state, "note": decision.note}
    db.execute(insert(incident_log).values(seq=seq, incident_id=incident_id, at=now, **entry))
    about = {"run_id": found.run_id, "incident_id": incident_id, "revision": revision, "at": now}
    body = _told(decision)
    db.execute(insert(changes).values(seq=seq, kind="state", body=body, **about))
    return True


def _told(decision: Decision) -> bytes:
    """A decision as the event stream has it."""
    until = decision.muted_until
    told = {
        "who": decision.who,
        "state": decision.state,
        "note": decision.note,
        "muted_until": None if until is None else datetime.fromtimestamp(until, UTC).isoformat(),
    }
    return json.dumps(told, sort_keys=True, separators=(",", ":")).encode()
