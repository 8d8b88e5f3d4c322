"""Incidents in the store: by id, with their suspects and evidence, and what changed about them.

Writing the same incident again changes nothing, so that what is read again after a crash is not told
twice. What changed goes into the event stream and the outbox in the same transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from . import tables
from .revisions import keep_revision
from .rows import next_seq, to_body, upsert
from .schema_3 import hosts_of
from .triage import reopen, reopening
from .worsening import worsening

KAFKA_CHANNEL = "kafka"
"""Where verdicts are published; the key is the incident's id."""
_SEVERITIES = ("critical", "warning", "info")
_SPECIAL = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentChange:
    """What storing a verdict changed: an incident that is new, became more certain, moved or went away."""

    kind: str
    """``new``, ``worsened``, ``changed`` or ``withdrawn``."""
    incident: Mapping[str, Any]
    before: Mapping[str, Any] | None = None
    """What was stored under its id; None when new."""
    reopened: str = ""
    """Why it is open again though somebody had dealt with it; empty where it is not."""
    seq: int = 0
    """Its number in the event stream and in the outbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictWrite:
    """One verdict on its way into the store, inside its transaction."""

    db: Connection
    run_id: str
    verdict: Mapping[str, Any]
    canonical: bytes
    now: float


def severity_of(incidents: Sequence[Mapping[str, Any]]) -> str:
    """The worst severity of incidents that have not recovered; ``none`` without one."""
    found = {one["severity"] for one in incidents if one["certainty"] != "recovered"}
    return next((level for level in _SEVERITIES if level in found), "none")


def store_incidents(write: VerdictWrite) -> tuple[IncidentChange, ...]:
    """Write the verdict's incidents, mark what it no longer holds; the changes, in verdict order."""
    held, db = tables.incidents, write.db
    known = {row.id: row for row in db.execute(select(held).where(held.c.run_id == write.run_id))}
    changes: list[IncidentChange] = []
    for incident in write.verdict["incidents"]:
        row = known.pop(str(incident["id"]), None)
        body = to_body(incident)
        if row is not None and row.body == body and not row.is_withdrawn:
            continue
        changes.append(_change(write, incident, body, row))
    changes += [_withdraw(write, row) for row in known.values() if not row.is_withdrawn]
    return tuple(changes)


def _change(
    write: VerdictWrite,
    incident: Mapping[str, Any],
    body: bytes,
    row: Any,  # a row of the driver's, or None
) -> IncidentChange:
    """Write an incident that is new or not what it was."""
    before = None if row is None else json.loads(row.body)
    is_back = row is not None and bool(row.is_withdrawn)
    kind = _kind_of_change(before, incident, is_back=is_back)
    reopened = "" if before is None else reopening(row.state, before, incident, is_back=is_back)
    _write_incident(write, incident, body, row)
    place = (str(incident["id"]), 1 if row is None else row.revision + 1, write.now)
    keep_revision(write.db, place, "returned" if is_back else kind, body, None if row is None else row.body)
    return IncidentChange(kind=kind, incident=incident, before=before, reopened=reopened)


def _withdraw(
    write: VerdictWrite,
    row: Any,  # a row of the driver's
) -> IncidentChange:
    """Mark an incident that the verdict holds no longer."""
    held, gone = tables.incidents, json.loads(row.body)
    values = {"is_withdrawn": True, "revision": row.revision + 1, "updated_at": write.now}
    write.db.execute(update(held).where(held.c.id == row.id).values(**values))
    place = (str(row.id), row.revision + 1, write.now)
    keep_revision(write.db, place, "withdrawn", bytes(row.body), None)
    return IncidentChange(kind="withdrawn", incident=gone, before=gone)


def tell_incidents(write: VerdictWrite, changes: Sequence[IncidentChange]) -> tuple[IncidentChange, ...]:
    """Put the changes into the event stream and the outbox; gives them with their numbers."""
    held, db = tables.incidents, write.db
    told: list[IncidentChange] = []
    for change in changes:
        incident, first = change.incident, change.incident["first"]
        name = str(incident["id"])
        body = {
            "run": str(write.verdict["run"]),
            "label": incident["label"],
            "pattern": incident["pattern"],
            "certainty": incident["certainty"],
            "severity": incident["severity"],
            "attempt": first["attempt"],
            "iteration": first["iteration"],
            "ranks": first["ranks"][:16],
            "rank_count": first["rank_count"],
        }
        seq = next_seq(db)
        revision = select(held.c.revision).where(held.c.id == name)
        row = {"seq": seq, "kind": f"incident_{change.kind}", "incident_id": name}
        add_change(write, row | {"revision": int(db.execute(revision).scalar_one())}, body)
        db.execute(update(held).where(held.c.id == name).values(seq=seq))
        _put_out(write, seq, name)
        if change.reopened:
            reopen(db, name, change.reopened, write.now)
        told.append(replace(change, seq=seq))
    return tuple(told)


def add_change(write: VerdictWrite, row: Mapping[str, Any], body: Mapping[str, Any]) -> None:
    """One row of the event stream; ``row`` has ``seq``, ``kind``, ``revision``, maybe ``incident_id``."""
    about = {"run_id": write.run_id, "at": write.now, "body": to_body(body)}
    write.db.execute(insert(tables.changes).values(**row, **about))


def _put_out(write: VerdictWrite, seq: int, key: str) -> None:
    """A message for outside; an unsent older one of the same key need not be told any more."""
    outbox = tables.outbox
    mine = (outbox.c.channel == KAFKA_CHANNEL) & (outbox.c.key == key)
    write.db.execute(delete(outbox).where(mine))
    row = {"seq": seq, "channel": KAFKA_CHANNEL, "key": key, "payload": write.canonical}
    write.db.execute(insert(outbox).values(**row, created_at=write.now))


def _write_incident(
    write: VerdictWrite,
    incident: Mapping[str, Any],
    body: bytes,
    row: Any,  # a row of the driver's, or None
) -> None:
    first, name = incident["first"], str(incident["id"])
    values = {
        "id": name,
        "run_id": write.run_id,
        "run": str(write.verdict["run"]),
        **{key: incident[key] for key in ("label", "pattern", "certainty", "severity")},
        "is_withdrawn": False,
        "first_attempt": first["attempt"],
        "first_iteration": first["iteration"],
        "body": body,
        "updated_at": write.now,
        "opened_at": write.now if row is None else row.opened_at,
        "state": "open" if row is None else row.state,
        "revision": 1 if row is None else row.revision + 1,
        "seq": 0 if row is None else row.seq,
        "suspect_hosts": hosts_of(first),
    }
    upsert(write.db, tables.incidents, ["id"], values)
    _write_suspects(write.db, name, first)
    _write_evidence(write.db, name, incident.get("evidence", ()))


def _write_suspects(db: Connection, name: str, first: Mapping[str, Any]) -> None:
    ranks = tables.incident_ranks
    db.execute(delete(ranks).where(ranks.c.incident_id == name))
    known = {one["rank"]: one for one in first.get("suspects", ())}
    rows = [
        {"incident_id": name, "rank": rank, "host": one.get("host"), "device": one.get("device")}
        for rank in first["ranks"]
        for one in (known.get(rank, {}),)
    ]
    if rows:
        db.execute(insert(ranks), rows)


def _write_evidence(db: Connection, name: str, listed: Sequence[Mapping[str, Any]]) -> None:
    evidence = tables.evidence
    db.execute(delete(evidence).where(evidence.c.incident_id == name))
    rows = [_evidence_row(name, place, one) for place, one in enumerate(listed)]
    if rows:
        db.execute(insert(evidence), rows)


def _evidence_row(name: str, place: int, one: Mapping[str, Any]) -> dict[str, Any]:
    statistic, statistic_kind = tables.to_columns(_number(one["statistic"]))
    threshold, threshold_kind = tables.to_columns(_number(one["threshold"]))
    return {
        "incident_id": name,
        "place": place,
        "detector": one["detector"],
        "metric": one["metric"],
        "iteration": one["iteration"],
        "statistic_value": statistic,
        "statistic_kind": statistic_kind,
        "threshold_value": threshold,
        "threshold_kind": threshold_kind,
    }


def _number(value: float | str | None) -> float | None:
    """A number as JSON of ours has it: non-finite ones are strings."""
    return _SPECIAL[value] if isinstance(value, str) else value


def _kind_of_change(before: Mapping[str, Any] | None, incident: Mapping[str, Any], *, is_back: bool) -> str:
    if before is None or is_back:
        return "new"
    return "worsened" if worsening(before, incident) else "changed"
