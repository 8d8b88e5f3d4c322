"""What the store is asked: every query of the API, over SQLite and PostgreSQL alike.

Each function takes a connection inside a transaction of `Database.read`, reads a bounded number of
rows and keeps nothing: the caller lets the connection go before it answers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, and_, case, exists, func, select, tuple_

from .tables import changes, health, incident_log, incident_ranks, incidents, partitions, rejected, runs

SEVERITIES = ("none", "info", "warning", "critical")
"""From the least to the worst."""
_MAX_LOG = 200
"""Entries of one incident's log that are shown: more than people write about any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run with the digest of its verdict (`digest.digest_of`)."""

    run_id: str
    run: str
    label: str
    severity: str
    judged_to: int | None
    revision: int
    first_seen_at: float
    updated_at: float
    newest_record_at: float | None
    quiet_since: float | None
    digest: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentRow:
    """An incident with its canonical body; ``state`` is what holds now: a mute ends by itself."""

    id: str
    run_id: str
    run: str
    state: str
    muted_until: float | None
    is_withdrawn: bool
    body: bytes
    revision: int
    opened_at: float
    updated_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """What one person did with an incident, or what opened it again (``by_system``)."""

    at: float
    who: str
    state: str
    note: str
    muted_until: float | None
    by_system: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """One event of the stream."""

    seq: int
    kind: str
    run_id: str
    incident_id: str | None
    revision: int
    at: float
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunQuery:
    """Which runs, in which order, after which place."""

    run: str | None = None
    label: str | None = None
    severity: str | None = None
    text: str | None = None
    """Only runs whose name holds this, in any case."""
    state: str | None = None
    """Only runs with a confirmed incident that is in this state."""
    order: str = "newest"
    """``newest`` first, or by ``severity`` and then newest first."""
    after: tuple[Any, ...] | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentQuery:
    """Which incidents, newest first; None does not filter."""

    run: str | None = None
    label: str | None = None
    state: str | None = None
    certainty: str | None = None
    severity: str | None = None
    rank: int | None = None
    host: str | None = None
    since: float | None = None
    """Only what changed at this time or later."""
    after: tuple[Any, ...] | None = None
    limit: int = 100


def list_runs(db: Connection, query: RunQuery, now: float) -> list[RunRow]:
    """The runs that ``query`` asks for."""
    order = [_severity_rank(runs.c.severity)] if query.order == "severity" else []
    order += [runs.c.first_seen_at, runs.c.run_id]
    wanted = _columns(RunRow, runs)
    for name in ("run", "label", "severity"):
        if getattr(query, name) is not None:
            wanted = wanted.where(runs.c[name] == getattr(query, name))
    if query.text is not None:
        wanted = wanted.where(runs.c.run.icontains(query.text, autoescape=True))
    if query.state is not None:
        is_so = (incidents.c.run_id == runs.c.run_id, *_stands(), _state_at(now) == query.state)
        wanted = wanted.where(exists().where(*is_so))
    if query.after is not None:
        wanted = wanted.where(tuple_(*order) < tuple_(*query.after))
    rows = db.execute(wanted.order_by(*(one.desc() for one in order)).limit(query.limit))
    return [RunRow(**row._mapping) for row in rows]


def place_of_run(row: RunRow, order: str) -> tuple[Any, ...]:
    """Where a run stands in `list_runs`."""
    place = (row.first_seen_at, row.run_id)
    return (SEVERITIES.index(row.severity), *place) if order == "severity" else place


def find_run(db: Connection, run_id: str) -> RunRow | None:
    """One run by its id."""
    row = db.execute(_columns(RunRow, runs).where(runs.c.run_id == run_id)).first()
    return None if row is None else RunRow(**row._mapping)


def verdict_bytes(db: Connection, run_id: str) -> bytes | None:
    """The canonical verdict of a run, byte for byte."""
    found = db.execute(select(runs.c.verdict).where(runs.c.run_id == run_id)).scalar()
    return None if found is None else bytes(found)


def incident_states(db: Connection, run_ids: Sequence[str], now: float) -> dict[str, dict[str, int]]:
    """How many confirmed incidents of each run are in which state; runs without any are left out."""
    state = _state_at(now).label("state")
    counted = (
        select(incidents.c.run_id, state, func.count())
        .where(incidents.c.run_id.in_(run_ids), *_stands())
        .group_by(incidents.c.run_id, state)
    )
    found: dict[str, dict[str, int]] = {}
    for run_id, name, count in db.execute(counted):
        found.setdefault(run_id, {})[name] = count
    return found


def list_incidents(db: Connection, query: IncidentQuery, now: float) -> list[IncidentRow]:
    """The incidents that ``query`` asks for, newest first."""
    wanted = _incident_columns(now).where(*_incident_filters(query, now))
    if query.after is not None:
        wanted = wanted.where(tuple_(incidents.c.opened_at, incidents.c.id) < tuple_(*query.after))
    order = (incidents.c.opened_at.desc(), incidents.c.id.desc())
    return [_incident(row._mapping) for row in db.execute(wanted.order_by(*order).limit(query.limit))]


def find_incident(db: Connection, incident_id: str, now: float) -> IncidentRow | None:
    """One incident by its id, withdrawn or not."""
    row = db.execute(_incident_columns(now).where(incidents.c.id == incident_id)).first()
    return None if row is None else _incident(row._mapping)


def incident_history(db: Connection, incident_id: str) -> list[LogRow]:
    """What people did with an incident, oldest first; the last `_MAX_LOG` entries."""
    wanted = _columns(LogRow, incident_log).where(incident_log.c.incident_id == incident_id)
    rows = db.execute(wanted.order_by(incident_log.c.seq.desc()).limit(_MAX_LOG))
    return [LogRow(**row._mapping) for row in rows][::-1]


def change_span(db: Connection) -> tuple[int, int]:
    """First and last place of the event stream that is kept; (0, 0) before the first event."""
    first, last = db.execute(select(func.min(changes.c.seq), func.max(changes.c.seq))).one()
    return first or 0, last or 0


def changes_after(db: Connection, seq: int, limit: int, run_id: str | None = None) -> list[ChangeRow]:
    """Events after place ``seq`` in their order, of one run or of all."""
    wanted = _columns(ChangeRow, changes).where(changes.c.seq > seq)
    if run_id is not None:
        wanted = wanted.where(changes.c.run_id == run_id)
    rows = [row._mapping for row in db.execute(wanted.order_by(changes.c.seq).limit(limit))]
    return [ChangeRow(**{**row, "body": bytes(row["body"])}) for row in rows]


def component_health(db: Connection) -> dict[str, tuple[float, dict[str, Any]]]:
    """When each component last spoke, and what it said of itself."""
    rows = db.execute(select(health.c.component, health.c.at, health.c.body).order_by(health.c.component))
    return {component: (at, json.loads(body)) for component, at, body in rows}


def owned_parts(db: Connection) -> set[tuple[str, str]]:
    """Source and part of what some worker has claimed and not let go of."""
    claimed = select(partitions.c.source, partitions.c.part).where(partitions.c.owner.is_not(None))
    return {(row.source, row.part) for row in db.execute(claimed)}


def runs_with_silent_ranks(db: Connection, now: float) -> int:
    """How many runs have an incident of ranks that stopped, which nobody has dealt with."""
    counted = select(func.count(incidents.c.run_id.distinct())).where(
        incidents.c.pattern == "hang",
        incidents.c.certainty == "confirmed",
        incidents.c.is_withdrawn.is_(False),
        _state_at(now) == "open",
    )
    return int(db.execute(counted).scalar_one())


def rejected_counts(db: Connection) -> dict[str, int]:
    """Rejected records and values by reason; the store bounds the reasons."""
    return {row.reason: row.records for row in db.execute(select(rejected.c.reason, rejected.c.records))}


def label_counts(db: Connection) -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    """Runs by label; incidents that are not withdrawn by label and certainty."""
    of_runs = db.execute(select(runs.c.label, func.count()).group_by(runs.c.label))
    by = (incidents.c.label, incidents.c.certainty)
    of_incidents = db.execute(
        select(*by, func.count()).where(incidents.c.is_withdrawn.is_(False)).group_by(*by)
    )
    return (
        {row[0]: row[1] for row in of_runs},
        {(row[0], row[1]): row[2] for row in of_incidents},
    )


def _columns(row: type, table: Any) -> Select[Any]:
    return select(*(table.c[one.name] for one in fields(row)))


def _incident_columns(now: float) -> Select[Any]:
    names = [one.name for one in fields(IncidentRow) if one.name != "state"]
    return select(*(incidents.c[name] for name in names), _state_at(now).label("state"))


def _incident(row: RowMapping) -> IncidentRow:
    until = row["muted_until"] if row["state"] == "muted" else None
    return IncidentRow(
        **{**row, "body": bytes(row["body"]), "is_withdrawn": bool(row["is_withdrawn"]), "muted_until": until}
    )


def _stands() -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    """Confirmed, and not explained away by later records."""
    return incidents.c.certainty == "confirmed", incidents.c.is_withdrawn.is_(False)


def _state_at(now: float) -> ColumnElement[str]:
    """The person's state as it holds at ``now``: a mute that is over is open again."""
    is_over = and_(incidents.c.state == "muted", incidents.c.muted_until <= now)
    return case((is_over, "open"), else_=incidents.c.state)


def _incident_filters(query: IncidentQuery, now: float) -> list[ColumnElement[bool]]:
    filters: list[ColumnElement[bool]] = [
        incidents.c[name] == getattr(query, name)
        for name in ("run", "label", "certainty", "severity")
        if getattr(query, name) is not None
    ]
    filters.append(incidents.c.is_withdrawn.is_(False))
    if query.state is not None:
        filters.append(_state_at(now) == query.state)
    if query.since is not None:
        filters.append(incidents.c.updated_at >= query.since)
    suspect = [
        incident_ranks.c[name] == getattr(query, name)
        for name in ("rank", "host")
        if getattr(query, name) is not None
    ]
    if suspect:
        filters.append(exists().where(incident_ranks.c.incident_id == incidents.c.id, *suspect))
    return filters


def _severity_rank(column: ColumnElement[str]) -> ColumnElement[int]:
    return case({name: place for place, name in enumerate(SEVERITIES)}, value=column, else_=0)
