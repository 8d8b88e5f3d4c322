"""What people do with incidents, and what new evidence undoes of it.

    open ──→ acknowledged, muted ──→ resolved, false alarm ──→ open (by a person, or by new evidence)

Every step is an entry in the incident's log, which nobody can change, and an event in the stream.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, insert, select, update

from . import reading
from .alerts.outbox import tell_decision
from .reading import IncidentRow
from .rows import next_seq
from .tables import changes, incident_log, incidents
from .worsening import Incident, fresh_evidence, worsening

SYSTEM = "firstfault"
"""Who it was that opened an incident again; no token decides in its name, since entries say so apart."""
_HANDLING = ("open", "acknowledged", "muted", "resolved", "false_alarm")
ALLOWED: Mapping[str, tuple[str, ...]] = {
    "open": _HANDLING,
    "acknowledged": _HANDLING,
    "muted": _HANDLING,
    "resolved": ("open", "resolved", "false_alarm"),
    "false_alarm": ("open", "false_alarm"),
}
"""What each state may become. Who dealt with an incident and was wrong opens it again first: so that the log
says that it was. To remain what it is means a remark."""
_JUDGED = {"resolved": "real", "false_alarm": "false_alarm", "open": None}
"""What a person says of the alarm by these states; the others leave it as it was."""


class TransitionError(ValueError):
    """An incident cannot become this from what it is; the words say what it can."""


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

    Raises:
        TransitionError: it cannot become that from what it is.
    """
    # First, since it takes the row that orders all events: on PostgreSQL the lock that writers queue for.
    seq = next_seq(db)
    found = reading.find_incident(db, incident_id, now)
    if found is None:
        return False
    check(found)
    check_transition(found.state, decision)
    revision = found.revision + 1
    state: dict[str, object] = {"state": decision.state, "muted_until": decision.muted_until}
    if decision.state in _JUDGED and decision.state != found.state:
        state["judged"] = _JUDGED[decision.state]
    place = {"revision": revision, "seq": seq, "updated_at": now}
    db.execute(update(incidents).where(incidents.c.id == incident_id).values(**state, **place))
    _log(db, seq, incident_id, decision, now)
    about = {"run_id": found.run_id, "incident_id": incident_id, "revision": revision, "at": now}
    body = _told(decision)
    db.execute(insert(changes).values(seq=seq, kind="state", body=body, **about))
    tell_decision(db, incident_id, decision.state, now, decision.muted_until)
    return True


def check_transition(now_is: str, decision: Decision) -> None:
    """Refuse what an incident cannot become.

    Raises:
        TransitionError: with what it can.
    """
    wanted = decision.state
    if wanted not in ALLOWED[now_is]:
        others = ", ".join(name for name in ALLOWED[now_is] if name != now_is)
        raise TransitionError(f"an incident that is {now_is} can become {others}, not {wanted}")
    if wanted == now_is and not decision.note.strip():
        raise TransitionError(f"the incident is {now_is} already: a remark needs a note")


def reopening(state: str, before: Incident, now: Incident, *, is_back: bool) -> str:
    """Why an incident that somebody had dealt with is open again; empty where it stays as it is.

    A false alarm is one of the evidence that was there: only worse makes it open. A mute runs to its end.
    """
    worse = worsening(before, now)
    if is_back and state in ("resolved", "acknowledged"):
        return "later records had explained it away, and still later ones show it again"
    if state == "false_alarm":
        return worse
    return worse or fresh_evidence(before, now) if state == "resolved" else ""


def reopen(db: Connection, incident_id: str, why: str, now: float) -> None:
    """Open an incident for new evidence, with an entry and an event that say so; its row is new already."""
    decision = Decision(state="open", note=f"opened again: {why}", muted_until=None, who=SYSTEM)
    seq = next_seq(db)
    opened = {"state": decision.state, "muted_until": None}
    db.execute(update(incidents).where(incidents.c.id == incident_id).values(**opened))
    _log(db, seq, incident_id, decision, now, by_system=True)
    columns = (incidents.c.run_id, incidents.c.revision)
    run_id, revision = db.execute(select(*columns).where(incidents.c.id == incident_id)).one()
    about = {"run_id": run_id, "incident_id": incident_id, "revision": revision, "at": now}
    db.execute(insert(changes).values(seq=seq, kind="state", body=_told(decision), **about))


def _log(
    db: Connection, seq: int, incident_id: str, decision: Decision, now: float, *, by_system: bool = False
) -> None:
    said = {"who": decision.who, "state": decision.state, "note": decision.note}
    how = {"muted_until": decision.muted_until, "by_system": by_system}
    db.execute(insert(incident_log).values(seq=seq, incident_id=incident_id, at=now, **said, **how))


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
