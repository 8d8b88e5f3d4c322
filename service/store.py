"""What the worker knows, in one SQLite file: offsets, checkpoints, runs, incidents, rejects.

All SQL is in this file and in `migrations`. The laws it keeps:

* A *checkpoint* (offsets and the pipeline's snapshot) is one transaction, and its first statement is
  an UPDATE of the fence that fails for every worker but the last one that opened the store: a zombie
  cannot write.
* Verdicts and incidents commit at once and are idempotent: the same bytes again change nothing.
* Canonical verdict bytes are kept as they are. ``revision``, ``state`` and times are columns beside
  them, so what is compared byte for byte holds no clock.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import StoreError
from .migrations import migrate, transaction

DATABASE = "firstfault.sqlite3"
_MAX_REASONS = 1000
"""Rows of ``rejected``: reasons hold no values, so more than this means that one does."""
_MAX_EXAMPLE_BYTES = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """How the store waits and how it fills the disk."""

    busy_timeout_s: float = 5.0
    """Wait for a reader's lock: a checkpoint by the SQLite shell takes less, a longer one is a fault."""
    cache_megabytes: int = 16
    """Page cache of the one writer; the store is small beside the telemetry."""

    def __post_init__(self) -> None:
        if not 0.0 < self.busy_timeout_s <= 600.0:
            raise ValueError(f"busy_timeout_s must be > 0 and <= 600, got {self.busy_timeout_s}")
        if not 1 <= self.cache_megabytes <= 4096:
            raise ValueError(f"cache_megabytes must be from 1 to 4096, got {self.cache_megabytes}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a source stands and the pipeline's state at exactly that place."""

    version: str
    offsets: Mapping[str, int]
    snapshot: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredVerdict:
    """A run's newest verdict; ``canonical`` are its canonical bytes."""

    run: str
    label: str
    revision: int
    canonical: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentChange:
    """What storing a verdict changed: an incident that is new, became more certain, moved or went away."""

    kind: str
    """``new``, ``worsened``, ``changed`` or ``withdrawn``."""
    incident: Mapping[str, Any]
    before: Mapping[str, Any] | None = None
    """What was stored under its id; None when new."""


class Store:
    """One SQLite file in ``data_dir``; use from one thread. Readers open it beside the writer."""

    def __init__(self, data_dir: Path, config: StoreConfig | None = None, *, read_only: bool = False) -> None:
        """Open or create the store, bring its schema up to date and, unless read-only, take it over.

        Raises:
            StoreError: not a database, made by a newer release, or the folder cannot be written.
        """
        self._config = config or StoreConfig()
        self.path = data_dir / DATABASE
        try:
            self._db = _connect(self.path, self._config, read_only=read_only)
            if not read_only:
                migrate(self._db)
            self._owner = 0 if read_only else self._take_over()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path}: {error}") from error

    def close(self) -> None:
        """Let go of the file; safe to call twice."""
        self._db.close()

    def load_checkpoint(self, source: str) -> Checkpoint | None:
        """The last checkpoint of ``source``; None before the first."""
        row = self._db.execute(
            "SELECT version, snapshot FROM checkpoints WHERE source = ?", (source,)
        ).fetchone()
        if row is None:
            return None
        offsets = self._db.execute("SELECT part, next_offset FROM offsets WHERE source = ?", (source,))
        return Checkpoint(version=row[0], offsets=dict(offsets.fetchall()), snapshot=row[1])

    def save_checkpoint(
        self, source: str, checkpoint: Checkpoint, rejected: Mapping[str, tuple[int, bytes]] | None = None
    ) -> None:
        """Replace the checkpoint of ``source``: offsets and snapshot, both or neither.

        ``rejected`` (reason: number and first example) is added to the counters in the same
        transaction, since what is read again after a crash is rejected again.

        Raises:
            StoreError: another worker has taken the store over since it was opened here.
        """
        with self._guarded() as db:
            for part, offset in checkpoint.offsets.items():
                db.execute(
                    "INSERT INTO offsets (source, part, next_offset) VALUES (?, ?, ?)"
                    " ON CONFLICT DO UPDATE SET next_offset = excluded.next_offset",
                    (source, part, offset),
                )
            db.execute(
                "INSERT INTO checkpoints (source, version, snapshot, saved_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET version = excluded.version, snapshot = excluded.snapshot,"
                " saved_at = excluded.saved_at",
                (source, checkpoint.version, checkpoint.snapshot, time.time()),
            )
            _add_rejected(db, rejected or {})

    def forget_checkpoint(self, source: str) -> None:
        """Drop the checkpoint of ``source``, so that it is read again from its first record."""
        with self._guarded() as db:
            db.execute("DELETE FROM checkpoints WHERE source = ?", (source,))
            db.execute("DELETE FROM offsets WHERE source = ?", (source,))

    def save_verdict(self, verdict: Mapping[str, Any], canonical: bytes) -> tuple[IncidentChange, ...]:
        """Store a run's verdict (JSON and canonical bytes); say what is new about its incidents.

        The same bytes again change nothing. ``revision`` counts the different ones.
        """
        with self._guarded() as db:
            run = str(verdict["run"])
            row = db.execute("SELECT verdict, revision FROM runs WHERE run = ?", (run,)).fetchone()
            if row is not None and row[0] == canonical:
                return ()
            db.execute(
                "INSERT INTO runs (run, label, judged_to, revision, verdict, updated_at)"
                " VALUES (?, ?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE SET label = excluded.label, judged_to = excluded.judged_to,"
                " revision = excluded.revision, verdict = excluded.verdict, updated_at = excluded.updated_at",
                (
                    run,
                    str(verdict["label"]),
                    verdict.get("judged_to_iteration"),
                    1 if row is None else row[1] + 1,
                    canonical,
                    time.time(),
                ),
            )
            return _store_incidents(db, run, verdict["incidents"])

    def verdicts(self) -> list[StoredVerdict]:
        """The newest verdict of every run, by run."""
        rows = self._db.execute("SELECT run, label, revision, verdict FROM runs ORDER BY run")
        return [StoredVerdict(run=r[0], label=r[1], revision=r[2], canonical=r[3]) for r in rows]

    def incidents(self, run: str | None = None) -> list[dict[str, Any]]:
        """Incidents that are not withdrawn, in order of their first position, with the person's state."""
        rows = self._db.execute(
            "SELECT body, state FROM incidents WHERE is_withdrawn = 0 AND (?1 IS NULL OR run = ?1)"
            " ORDER BY run, first_attempt, first_iteration, id",
            (run,),
        )
        return [{**json.loads(body), "state": state} for body, state in rows]

    def rejected(self) -> dict[str, int]:
        """Number of rejected records or values per reason."""
        return dict(self._db.execute("SELECT reason, records FROM rejected ORDER BY reason").fetchall())

    def _take_over(self) -> int:
        """Make this the only writer: every later one is told so by the fence."""
        with transaction(self._db) as db:
            (owner,) = db.execute(
                "UPDATE fence SET owner = owner + 1 WHERE id = 1 RETURNING owner"
            ).fetchone()
        return int(owner)

    @contextmanager
    def _guarded(self) -> Iterator[sqlite3.Connection]:
        """A transaction that only the current owner of the store can make."""
        with transaction(self._db) as db:
            held = db.execute("UPDATE fence SET owner = owner WHERE id = 1 AND owner = ?", (self._owner,))
            if held.rowcount != 1:
                raise StoreError(f"{self.path}: another worker has taken over this store; stop one of them")
            yield db


def _connect(path: Path, config: StoreConfig, *, read_only: bool) -> sqlite3.Connection:
    if not read_only:
        path.parent.mkdir(parents=True, exist_ok=True)
    uri = f"{path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=config.busy_timeout_s)
    if not read_only:
        db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute(f"PRAGMA cache_size = {-1024 * config.cache_megabytes}")
    return db


_SEVERITY: Mapping[str, int] = {"recovered": 0, "suspected": 1, "confirmed": 2}


def _store_incidents(
    db: sqlite3.Connection, run: str, incidents: Sequence[Mapping[str, Any]]
) -> tuple[IncidentChange, ...]:
    """Upsert by id, mark what the new verdict no longer holds, and name the changes in verdict order."""
    known = {
        row[0]: (row[1], row[2], bool(row[3]))
        for row in db.execute("SELECT id, certainty, body, is_withdrawn FROM incidents WHERE run = ?", (run,))
    }
    changes: list[IncidentChange] = []
    now = time.time()
    for incident in incidents:
        body = json.dumps(incident, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()
        before = known.pop(str(incident["id"]), None)
        if before is not None and before[1] == body and not before[2]:
            continue
        was = None if before is None else json.loads(before[1])
        changes.append(IncidentChange(kind=_kind_of_change(before, incident), incident=incident, before=was))
        _upsert_incident(db, run, incident, body, now)
    for gone, (_, body, is_withdrawn) in known.items():
        if not is_withdrawn:
            db.execute("UPDATE incidents SET is_withdrawn = 1, updated_at = ? WHERE id = ?", (now, gone))
            was = json.loads(body)
            changes.append(IncidentChange(kind="withdrawn", incident=was, before=was))
    return tuple(changes)


def _add_rejected(db: sqlite3.Connection, rejected: Mapping[str, tuple[int, bytes]]) -> None:
    (known,) = db.execute("SELECT count(*) FROM rejected").fetchone()
    for reason, (records, example) in rejected.items():
        kept = reason if known < _MAX_REASONS else "further reasons"
        known += 1
        db.execute(
            "INSERT INTO rejected (reason, records, example) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET records = records + excluded.records",
            (kept, records, example[:_MAX_EXAMPLE_BYTES]),
        )


def _upsert_incident(
    db: sqlite3.Connection, run: str, incident: Mapping[str, Any], body: bytes, now: float
) -> None:
    first = incident["first"]
    db.execute(
        "INSERT INTO incidents (id, run, label, certainty, first_attempt, first_iteration, body,"
        " opened_at, updated_at)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET label = excluded.label, certainty = excluded.certainty, is_withdrawn = 0,"
        " first_attempt = excluded.first_attempt, first_iteration = excluded.first_iteration,"
        " body = excluded.body, updated_at = excluded.updated_at",
        (
            str(incident["id"]),
            run,
            str(incident["label"]),
            str(incident["certainty"]),
            first["attempt"],
            first["iteration"],
            body,
            now,
            now,
        ),
    )


def _kind_of_change(before: tuple[str, bytes, bool] | None, incident: Mapping[str, Any]) -> str:
    if before is None or before[2]:
        return "new"
    is_worse = _SEVERITY.get(str(incident["certainty"]), 0) > _SEVERITY.get(before[0], 0)
    return "worsened" if is_worse else "changed"
