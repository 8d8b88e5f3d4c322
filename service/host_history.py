"""What each host was accused of, over all runs.

A host is *accused* by a confirmed incident that has it among its suspects, and *alone* where all suspects are
on it. Incidents that were withdrawn do not count; those that people called false alarms are counted apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, Subquery, and_, case, func, select, tuple_

from .tables import incident_ranks, incidents
from .triage_tables import run_hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """How often a host was accused, in incidents and in runs."""

    host: str
    incidents: int
    as_sole_suspect: int
    runs: int
    false_alarms: int
    newest_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRow:
    """A device of a host's suspects."""

    device: str
    incidents: int
    as_sole_suspect: int
    other_hosts: tuple[str, ...]


def list_hosts(db: Connection, *, after: tuple[Any, ...] | None, limit: int) -> list[HostRow]:
    """The hosts that were accused: most often alone first, then most often at all, then newest."""
    counted = _counted().subquery()
    order = tuple(counted.c[name] for name in ("as_sole_suspect", "incidents", "newest_at", "host"))
    wanted = select(counted)
    if after is not None:
        wanted = wanted.where(tuple_(*order) < tuple_(*after))
    rows = db.execute(wanted.order_by(*(one.desc() for one in order)).limit(limit))
    return [HostRow(**row._mapping) for row in rows]


def place_of_host(row: HostRow) -> tuple[Any, ...]:
    """Where a host stands in `list_hosts`."""
    return row.as_sole_suspect, row.incidents, row.newest_at, row.host


def find_host(db: Connection, host: str) -> HostRow | None:
    """One host; with nothing against it where runs only named it, None where none did."""
    counted = _counted(incident_ranks.c.host == host)
    row = db.execute(counted).first()
    if row is not None:
        return HostRow(**row._mapping)
    if not runs_seen(db, [host]):
        return None
    return HostRow(host=host, incidents=0, as_sole_suspect=0, runs=0, false_alarms=0, newest_at=0.0)


def runs_seen(db: Connection, hosts: Sequence[str]) -> dict[str, int]:
    """In how many runs each host was named; those in none are left out."""
    counted = select(run_hosts.c.host, func.count()).where(run_hosts.c.host.in_(hosts))
    return {row[0]: row[1] for row in db.execute(counted.group_by(run_hosts.c.host))}


def incidents_of(db: Connection, host: str, limit: int) -> list[tuple[str, bool]]:
    """Ids of the incidents that accuse a host, newest first, and whether it is alone in each."""
    accused = accused_hosts(incident_ranks.c.host == host).subquery()
    rows = db.execute(
        select(accused.c.id, accused.c.suspect_hosts)
        .order_by(accused.c.opened_at.desc(), accused.c.id)
        .limit(limit)
    )
    return [(row.id, row.suspect_hosts == 1) for row in rows]


def newest_of(db: Connection, hosts: Sequence[str]) -> dict[str, str]:
    """The id of the newest incident that accuses each host, one that is no false alarm if there is one."""
    accused = accused_hosts(incident_ranks.c.host.in_(hosts)).subquery()
    is_false = case((accused.c.state == "false_alarm", 0), else_=1)
    rows = db.execute(
        select(accused.c.host, accused.c.id).order_by(is_false, accused.c.opened_at, accused.c.id)
    )
    return {row.host: row.id for row in rows}


def devices_of(db: Connection, hosts: Sequence[str]) -> dict[str, list[DeviceRow]]:
    """The devices of the suspects on each host, most incidents first."""
    ranks = incident_ranks.alias()
    rows = (
        select(ranks.c.host, ranks.c.device, incidents.c.id, incidents.c.suspect_hosts)
        .join(incidents, incidents.c.id == ranks.c.incident_id)
        .where(ranks.c.host.in_(hosts), ranks.c.device.is_not(None))
        .where(_counts(), incidents.c.state != "false_alarm")
        .distinct()
    )
    counts: dict[str, dict[str, list[int]]] = {}
    for row in db.execute(rows):
        count = counts.setdefault(row.host, {}).setdefault(row.device, [0, 0])
        count[0] += 1
        count[1] += row.suspect_hosts == 1
    elsewhere = _hosts_of_devices(db, sorted({device for found in counts.values() for device in found}))
    return {
        host: [
            DeviceRow(
                device=device,
                incidents=count[0],
                as_sole_suspect=count[1],
                other_hosts=tuple(one for one in elsewhere.get(device, ()) if one != host),
            )
            for device, count in sorted(found.items(), key=lambda one: (-one[1][0], one[0]))
        ]
        for host, found in counts.items()
    }


def accused_hosts(*wanted: ColumnElement[bool]) -> Any:  # a statement of the library's
    """Each host of each incident that counts."""
    columns = ("id", "run_id", "state", "suspect_hosts", "opened_at")
    return (
        select(incident_ranks.c.host, *(incidents.c[name] for name in columns))
        .join(incidents, incidents.c.id == incident_ranks.c.incident_id)
        .where(incident_ranks.c.host.is_not(None), _counts(), *wanted)
        .distinct()
    )


def _counts() -> ColumnElement[bool]:
    return and_(incidents.c.certainty == "confirmed", incidents.c.is_withdrawn.is_(False))


def _counted(*wanted: ColumnElement[bool]) -> Any:  # a statement of the library's
    """Per host how often it was accused; one with false alarms alone is among them, with none."""
    accused: Subquery = accused_hosts(*wanted).subquery()
    is_real = accused.c.state != "false_alarm"
    is_alone = and_(is_real, accused.c.suspect_hosts == 1)
    real = case((is_real, 1), else_=0)
    return select(
        accused.c.host,
        func.sum(real).label("incidents"),
        func.sum(case((is_alone, 1), else_=0)).label("as_sole_suspect"),
        func.count(case((is_real, accused.c.run_id)).distinct()).label("runs"),
        func.sum(1 - real).label("false_alarms"),
        func.max(accused.c.opened_at).label("newest_at"),
    ).group_by(accused.c.host)


def _hosts_of_devices(db: Connection, devices: Sequence[str]) -> Mapping[str, list[str]]:
    ranks = incident_ranks
    wanted = select(ranks.c.device, ranks.c.host).where(ranks.c.device.in_(devices))
    wanted = wanted.where(ranks.c.host.is_not(None))
    found: dict[str, list[str]] = {}
    for device, host in db.execute(wanted.distinct().order_by(ranks.c.host)):
        found.setdefault(device, []).append(host)
    return found
