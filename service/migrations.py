"""The schema of the store, as numbered steps."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from .errors import StoreError

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE fence (id INTEGER PRIMARY KEY CHECK (id = 1), owner INTEGER NOT NULL) STRICT""",
        """INSERT INTO fence (id, owner) VALUES (1, 0)""",
        """CREATE TABLE offsets (
             source TEXT NOT NULL, part TEXT NOT NULL, next_offset INTEGER NOT NULL,
             PRIMARY KEY (source, part)) STRICT, WITHOUT ROWID""",
        """CREATE TABLE checkpoints (
             source TEXT PRIMARY KEY, version TEXT NOT NULL, snapshot BLOB NOT NULL,
             saved_at REAL NOT NULL) STRICT, WITHOUT ROWID""",
        """CREATE TABLE runs (
             run TEXT PRIMARY KEY, label TEXT NOT NULL, judged_to INTEGER, revision INTEGER NOT NULL,
             verdict BLOB NOT NULL, updated_at REAL NOT NULL) STRICT, WITHOUT ROWID""",
        """CREATE TABLE incidents (
             id TEXT PRIMARY KEY, run TEXT NOT NULL, label TEXT NOT NULL, certainty TEXT NOT NULL,
             state TEXT NOT NULL DEFAULT 'open', is_withdrawn INTEGER NOT NULL DEFAULT 0,
             first_attempt INTEGER NOT NULL, first_iteration INTEGER NOT NULL, body BLOB NOT NULL,
             opened_at REAL NOT NULL, updated_at REAL NOT NULL) STRICT, WITHOUT ROWID""",
        """CREATE INDEX incidents_of_run ON incidents (run, first_attempt, first_iteration)""",
        """CREATE TABLE rejected (
             reason TEXT PRIMARY KEY, records INTEGER NOT NULL, example BLOB NOT NULL)
             STRICT, WITHOUT ROWID""",
    ),
)
"""Numbered steps: step N brings ``user_version`` from N to N + 1. Never edited, only added to."""


@contextmanager
def transaction(db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Everything or nothing; takes the write lock first, so that it never fails half way for a reader."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield db
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def migrate(db: sqlite3.Connection) -> None:
    """Bring the schema to this release's version, each step in its own transaction with its record.

    Raises:
        StoreError: the store was made by a newer release.
    """
    while True:
        with transaction(db):
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > len(MIGRATIONS):
                raise StoreError(
                    f"the store has schema {version}, this release knows {len(MIGRATIONS)}: update firstfault"
                )
            if version == len(MIGRATIONS):
                return
            for statement in MIGRATIONS[version]:
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {version + 1}")
