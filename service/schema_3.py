"""What step 3 of the schema does that SQL cannot: it reads verdicts, and forbids changing a log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, text

from .digest import digest_of
from .rows import to_body

_RUN = (
    "run_id, run, source, home, label, severity, judged_to, revision, seq, first_seen_at, updated_at,"
    " newest_record_at, quiet_since"
)
_UNREAD = {
    "sentence": "",
    "incident_id": None,
    "first": None,
    "coverage": dict.fromkeys(
        ("ranks", "metrics", "checks_run", "checks_not_run", "blind_to", "silent_ranks", "rejected"), 0
    ),
}
"""Of a verdict so old that it lacks what a digest is made of; the next verdict of the run replaces it."""


def fill_digests(db: Connection) -> None:
    """Runs of schema 2 had no digest: a list read every verdict."""
    names = ", ".join(f":{name.strip()}" for name in _RUN.split(","))
    insert = text(f"INSERT INTO runs ({_RUN}, digest, verdict) VALUES ({names}, :digest, :verdict)")
    for row in db.execute(text(f"SELECT {_RUN}, verdict FROM runs_2")):
        db.execute(insert, {**row._mapping, "digest": to_body(_digest(bytes(row.verdict)))})


def fill_suspects(db: Connection) -> None:
    """Incidents of schema 2 told the devices and the hosts of their suspects in the body only."""
    counted = text("UPDATE incidents SET suspect_hosts = :hosts, judged = :judged WHERE id = :id")
    named = text("UPDATE incident_ranks SET device = :device WHERE incident_id = :id AND rank = :rank")
    judged = {"resolved": "real", "false_alarm": "false_alarm"}
    for row in db.execute(text("SELECT id, state, body FROM incidents")).all():
        first = json.loads(bytes(row.body)).get("first", {})
        db.execute(counted, {"id": row.id, "hosts": hosts_of(first), "judged": judged.get(row.state)})
        for one in first.get("suspects", ()):
            if one.get("device"):
                db.execute(named, {"id": row.id, "rank": one["rank"], "device": one["device"]})


def hosts_of(first: Mapping[str, Any]) -> int:
    """On how many hosts the suspects are; 0 where that is not known of every one."""
    suspects = first.get("suspects", ())
    hosts = {one.get("host") for one in suspects}
    is_known = None not in hosts and len(suspects) == first.get("rank_count")
    return len(hosts) if is_known else 0


def guard_log(db: Connection) -> None:
    """What people did stays as it was written, whoever opens the database."""
    words = "entries of incident_log are never changed"
    if db.dialect.name == "sqlite":
        db.exec_driver_sql(
            "CREATE TRIGGER incident_log_stays BEFORE UPDATE ON incident_log"
            f" BEGIN SELECT RAISE(ABORT, '{words}'); END"
        )
        return
    db.exec_driver_sql(
        "CREATE FUNCTION firstfault_refuse_change() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION '{words}'; END $$"
    )
    db.exec_driver_sql(
        "CREATE TRIGGER incident_log_stays BEFORE UPDATE ON incident_log"
        " FOR EACH ROW EXECUTE FUNCTION firstfault_refuse_change()"
    )


def unguard_log(db: Connection) -> None:
    """Take `guard_log` back."""
    if db.dialect.name == "sqlite":
        db.exec_driver_sql("DROP TRIGGER incident_log_stays")
        return
    db.exec_driver_sql("DROP TRIGGER incident_log_stays ON incident_log")
    db.exec_driver_sql("DROP FUNCTION firstfault_refuse_change()")


def _digest(verdict: bytes) -> dict[str, Any]:
    try:
        return digest_of(json.loads(verdict))
    except (KeyError, TypeError, ValueError):
        return _UNREAD
