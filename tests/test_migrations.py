"""Numbered migrations: forward, back, half way, and with the data of an older release inside."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect, text

from service import migrations, tables
from service.database import Database
from service.errors import StoreError
from service.migrations import NEWEST, migrate, schema_of
from service.run_id import run_id_of
from service.store import DATABASE, Store, StoreConfig

from .service_builders import a_verdict, an_incident, bytes_of


@pytest.fixture
def database(tmp_path: Path, store_config: StoreConfig) -> Iterator[Database]:
    opened = Database(tmp_path, store_config)
    yield opened
    opened.close()


def columns(db: Connection) -> dict[str, set[str]]:
    seen = inspect(db)
    return {table: {one["name"] for one in seen.get_columns(table)} for table in seen.get_table_names()}


def fill_schema_1(database: Database) -> bytes:
    """A run with an acknowledged incident, as the release with schema 1 kept it; gives the verdict."""
    verdict = bytes_of(a_verdict("r/1", an_incident()))
    body = json.dumps(an_incident()).encode()
    with database.write() as db:
        db.execute(
            text("INSERT INTO runs VALUES ('r/1', 'silent_drift', 1840, 3, :verdict, 5.5)"),
            {"verdict": verdict},
        )
        db.execute(
            text(
                "INSERT INTO incidents VALUES"
                " ('a1', 'r/1', 'silent_drift', 'confirmed', 'acknowledged', 0, 0, 1200, :body, 1.5, 2.5)"
            ),
            {"body": body},
        )
    return verdict


def test_the_newest_schema_is_the_one_that_the_queries_are_written_for(database: Database) -> None:
    migrate(database)
    with database.read() as db:
        found = columns(db)
    expected = {name: {one.name for one in table.columns} for name, table in tables.metadata.tables.items()}
    assert {name: found[name] for name in expected} == expected
    assert set(found) - set(expected) <= {"schema_version"}


def test_every_step_can_be_taken_back_and_again(database: Database) -> None:
    migrate(database)
    with database.read() as db:
        newest = columns(db)
    for number in range(NEWEST - 1, -1, -1):
        migrate(database, number)
        with database.read() as db:
            assert schema_of(db) == number
    migrate(database)
    with database.read() as db:
        assert columns(db) == newest


def test_what_an_older_release_stored_is_there_after_the_update_and_after_going_back(
    database: Database,
) -> None:
    migrate(database, 1)
    verdict = fill_schema_1(database)
    migrate(database)
    with database.read() as db:
        run = db.execute(tables.runs.select()).one()
        incident = db.execute(tables.incidents.select()).one()
    assert (run.run_id, run.run, run.label) == (run_id_of("r/1"), "r/1", "silent_drift")
    assert (run.severity, run.revision, bytes(run.verdict)) == ("critical", 3, verdict)
    assert (incident.run_id, incident.pattern, incident.state) == (
        run.run_id,
        "replica_divergence",
        "acknowledged",
    )
    assert not incident.is_withdrawn
    migrate(database, 1)
    with database.read() as db:
        assert db.execute(text("SELECT run, label, revision FROM runs")).one() == (
            "r/1",
            "silent_drift",
            3,
        )
        assert db.execute(text("SELECT state, opened_at FROM incidents")).one() == ("acknowledged", 1.5)


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_step_that_fails_anywhere_leaves_the_store_as_it_was(
    database: Database, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    start, target = (1, 2) if way == "up" else (2, 1)
    migrate(database, 1)
    fill_schema_1(database)
    migrate(database, start)
    with database.read() as db:
        before, rows = columns(db), db.execute(text("SELECT * FROM runs")).all()
    real = migrations.statements
    count = len(list(real(2, way, database.engine.dialect.name)))
    for broken in range(1, count + 1, 3):

        def failing(number: int, way: str, dialect: str, at: int = broken) -> Iterator[str]:
            yield from list(real(number, way, dialect))[:at]
            yield "SELECT no_such_column"

        monkeypatch.setattr(migrations, "statements", failing)
        with pytest.raises(StoreError, match="no_such_column"):
            migrate(database, target)
        with database.read() as db:
            assert schema_of(db) == start
            assert columns(db) == before
            assert db.execute(text("SELECT * FROM runs")).all() == rows
    monkeypatch.setattr(migrations, "statements", real)
    migrate(database, target)
    with database.read() as db:
        assert schema_of(db) == target


def test_before_an_update_a_copy_is_put_aside_that_the_older_release_can_open(tmp_path: Path) -> None:
    with closing(Database(tmp_path)) as database:
        migrate(database, 1)
        fill_schema_1(database)
    Store(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / f"{DATABASE}.schema-1")) as copy:
        assert copy.execute("PRAGMA user_version").fetchone() == (1,)
        assert copy.execute("SELECT run FROM runs").fetchall() == [("r/1",)]


def test_a_store_of_a_newer_release_is_refused_by_name(database: Database) -> None:
    migrate(database)
    with database.write() as db:
        migrations._record(db, NEWEST + 1)
    with pytest.raises(StoreError, match="update firstfault"):
        migrate(database)
    with pytest.raises(StoreError, match="update firstfault"):
        migrations.check_schema(database)


def test_a_reader_of_an_older_store_is_told_to_start_a_worker(database: Database) -> None:
    migrate(database, 1)
    with pytest.raises(StoreError, match="start a worker"):
        migrations.check_schema(database)


@pytest.mark.parametrize("number", [-1, NEWEST + 1])
def test_a_number_that_is_no_schema_is_refused(database: Database, number: int) -> None:
    with pytest.raises(StoreError, match=f"schema must be from 0 to {NEWEST}, got {number}"):
        migrate(database, number)
