"""The schema of the store, as numbered steps that are never edited, only added to.

Step N is ``schema/000N_up.sql``, and ``schema/000N_down.sql`` takes it back. Types are placeholders
(`_TYPES`), ``-- call name`` runs one of `_CALLS` for what SQL cannot do. A step is one transaction together
with the record of its number: one that fails leaves the store as it was. Before an SQLite store is brought
to a newer schema, a copy that the older release can open is put beside it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, inspect, text

from .database import Database
from .errors import StoreError
from .run_id import run_id_of
from .schema_3 import fill_digests, fill_suspects, guard_log, unguard_log

_SCHEMA = files("service") / "schema"
NEWEST = 4
"""The schema of this release: the number of steps."""
_TYPES: Mapping[str, Mapping[str, str]] = {
    "sqlite": {"blob": "BLOB", "real": "REAL", "big": "INTEGER", "bool": "INTEGER", "strict": " STRICT"},
    "postgresql": {
        "blob": "BYTEA",
        "real": "DOUBLE PRECISION",
        "big": "BIGINT",
        "bool": "BOOLEAN",
        "strict": "",
    },
}


def schema_of(db: Connection) -> int:
    """The number of the store's schema; 0 for an empty database."""
    if db.dialect.name == "sqlite":
        return int(db.exec_driver_sql("PRAGMA user_version").scalar_one())
    if not inspect(db).has_table("schema_version"):
        return 0
    return int(db.execute(text("SELECT version FROM schema_version")).scalar_one())


def migrate(database: Database, to: int = NEWEST) -> None:
    """Bring the schema to this release's number, or back to ``to``; each step is a transaction of its own.

    Raises:
        StoreError: the store was made by a newer release, ``to`` is not the number of a schema, or the
            database refuses.
    """
    if not 0 <= to <= NEWEST:
        raise StoreError(f"{database.place}: schema must be from 0 to {NEWEST}, got {to}")
    with database.read() as db:
        found = schema_of(db)
    if found == to:
        return  # no lock is needed to find that, and somebody may hold it
    if 0 < found < to:
        _keep_copy(database, found)
    while _step(database, to):
        pass


def check_schema(database: Database) -> None:
    """Refuse a store that this release cannot read as it is.

    Raises:
        StoreError: there is no store, it needs a worker of this release to bring it up to date, or it was
            made by a newer one.
    """
    with database.read() as db:
        found = schema_of(db)
    if found > NEWEST:
        raise StoreError(_words_of_newer(database, found))
    if found < NEWEST:
        raise StoreError(
            f"{database.place}: the store has schema {found}, {NEWEST} is needed: start a worker"
        )


def statements(number: int, way: str, dialect: str) -> Iterator[str]:
    """The statements of a step, ``up`` or ``down``, in one database's words; calls as ``-- call name``."""
    script = (_SCHEMA / f"{number:04d}_{way}.sql").read_text(encoding="ascii").format(**_TYPES[dialect])
    yield from filter(None, map(str.strip, script.split(";\n")))


def _step(database: Database, to: int) -> bool:
    """Take one step towards ``to``; False when it is reached."""
    with database.write() as db:
        if database.is_postgres:
            # Two workers may start at once: the second waits here and finds the work done.
            db.execute(text("SELECT pg_advisory_xact_lock(7070)"))
        found = schema_of(db)
        if found > NEWEST:
            raise StoreError(_words_of_newer(database, found))
        if found == to:
            return False
        number, way = (found + 1, "up") if found < to else (found, "down")
        for statement in statements(number, way, db.dialect.name):
            if statement.startswith("-- call "):
                _CALLS[statement.removeprefix("-- call ")](db)
            else:
                db.exec_driver_sql(statement)
        _record(db, number if way == "up" else number - 1)
    return True


def _record(db: Connection, number: int) -> None:
    if db.dialect.name == "sqlite":
        db.exec_driver_sql(f"PRAGMA user_version = {number}")
        return
    db.execute(text("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)"))
    db.execute(text("DELETE FROM schema_version"))
    db.execute(text("INSERT INTO schema_version (version) VALUES (:number)"), {"number": number})


def _words_of_newer(database: Database, found: int) -> str:
    return f"{database.place}: the store has schema {found}, this release knows {NEWEST}: update firstfault"


def _keep_copy(database: Database, number: int) -> None:
    """A copy of an SQLite store as the older release left it, made once; PostgreSQL has pg_dump."""
    if database.is_postgres:
        return
    path = Path(database.place)
    copy = path.with_name(f"{path.name}.schema-{number}")
    if copy.exists():
        return
    unfinished = copy.with_name(f"{copy.name}.tmp")
    unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(unfinished)) as target:
        source.backup(target)
    unfinished.replace(copy)


def _fill_runs(db: Connection) -> None:
    """Runs of schema 1 had no id, and their severity stood in the verdict only."""
    insert = text(
        "INSERT INTO runs (run_id, run, source, home, label, severity, judged_to, revision, verdict, seq,"
        " first_seen_at, updated_at) VALUES (:run_id, :run, '', '', :label, :severity, :judged_to, :revision,"
        " :verdict, 0, :updated_at, :updated_at)"
    )
    for row in db.execute(text("SELECT run, label, judged_to, revision, verdict, updated_at FROM runs_1")):
        severity = _severity(json.loads(row.verdict))
        db.execute(insert, {**row._mapping, "run_id": run_id_of(row.run), "severity": severity})


def _fill_incidents(db: Connection) -> None:
    """Incidents of schema 1 had pattern and severity in their body only."""
    insert = text(
        "INSERT INTO incidents (id, run_id, run, label, pattern, certainty, severity, state, is_withdrawn,"
        " first_attempt, first_iteration, body, revision, seq, opened_at, updated_at) VALUES (:id, :run_id,"
        " :run, :label, :pattern, :certainty, :severity, :state, :is_withdrawn, :first_attempt,"
        " :first_iteration, :body, 1, 0, :opened_at, :updated_at)"
    )
    for row in db.execute(text("SELECT * FROM incidents_1")):
        body = json.loads(row.body)
        told = {"pattern": body.get("pattern", ""), "severity": body.get("severity", "warning")}
        hidden = {"is_withdrawn": bool(row.is_withdrawn), "run_id": run_id_of(row.run)}
        db.execute(insert, {**row._mapping, **told, **hidden})


def _severity(verdict: Mapping[str, Any]) -> str:
    """The worst severity among incidents that have not recovered, as schema 2 began to keep it."""
    found = {one.get("severity") for one in verdict["incidents"] if one["certainty"] != "recovered"}
    return next((level for level in ("critical", "warning", "info") if level in found), "none")


_CALLS: Mapping[str, Callable[[Connection], None]] = {
    "fill_runs": _fill_runs,
    "fill_incidents": _fill_incidents,
    "fill_digests": fill_digests,
    "fill_suspects": fill_suspects,
    "guard_log": guard_log,
    "unguard_log": unguard_log,
}
