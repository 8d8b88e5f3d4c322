"""A durable log of HTTP bodies in one SQLite file, for a service without Kafka.

    API process ─append→ spool.sqlite3 ─read→ worker process ─prune→

The sequence number of a row is its offset, and never comes again. What `append` returned from is on the
disk: WAL with synchronous FULL, each call one transaction. A full spool refuses; it never forgets what the
worker has not covered by a checkpoint.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .bounds import check_bounds
from .errors import SpoolFull, SpoolUnusable

SPOOL = "spool.sqlite3"
_APPLICATION_ID = 0x46465350  # "FFSP": a file of another program is not written to
_VERSION = 1
_SCHEMA = (
    """CREATE TABLE bodies (
         seq INTEGER PRIMARY KEY AUTOINCREMENT, content_type TEXT, body BLOB NOT NULL,
         received_at REAL NOT NULL) STRICT""",
    # kept beside the rows in the same transactions: a sum over them would read the whole file
    """CREATE TABLE held (id INTEGER PRIMARY KEY CHECK (id = 1), rows INTEGER NOT NULL,
         bytes INTEGER NOT NULL) STRICT""",
    """INSERT INTO held (id, rows, bytes) VALUES (1, 0, 0)""",
    f"""PRAGMA application_id = {_APPLICATION_ID}""",
    f"""PRAGMA user_version = {_VERSION}""",
)
_PRUNE_ROWS, _PRUNE_BYTES = 1000, 16 << 20
"""Deleted in one transaction: a body is read to be freed, and writers wait for it milliseconds only."""
_KEPT_LOG_BYTES = 64 << 20  # of the write-ahead log, which would stay as large as it ever was
_NO_SPACE = ("database or disk is full", "disk I/O error", "database is locked")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolConfig:
    """How much may wait for the worker, and how long for the lock."""

    max_bytes: int = 4 << 30
    """Bodies held; beyond it new ones are refused. 4 GiB: about ten million records as JSON lines."""
    max_rows: int = 10_000_000
    """Bodies held, however small they are: each costs about 100 bytes beside its own."""
    keep_bytes: int = 256 << 20
    """Covered bodies that are kept all the same, the newest: a release that cannot use the checkpoint
    of an older one reads them again."""
    busy_timeout_s: float = 5.0
    """Wait for another writer: one transaction takes milliseconds, a longer wait is a fault."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)


_BOUNDS = {
    "max_bytes": (1 << 20, 1 << 44),
    "max_rows": (1, 1 << 40),
    "keep_bytes": (0, 1 << 44),
    "busy_timeout_s": (0.01, 600.0),
}


@dataclass(frozen=True, slots=True)
class SpooledBody:
    """One row: what came, as whole lines of JSON or one Arrow stream."""

    seq: int
    content_type: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class SpoolUsage:
    """How full the spool is, and the sequence numbers that it spans."""

    rows: int
    bytes: int
    first_seq: int
    """Of the oldest row; ``next_seq`` when there is none."""
    next_seq: int
    """What the next row will get."""


class Spool:
    """One connection to the spool of a data folder; safe to use from several threads."""

    def __init__(self, data_dir: Path, config: SpoolConfig = SpoolConfig()) -> None:
        """Open the spool, and create it where there is none.

        Raises:
            SpoolUnusable: damaged, of another program or a newer release, or not to be written.
        """
        self.path = data_dir / SPOOL
        self._config = config
        self._lock = threading.Lock()
        with _told(self.path):
            data_dir.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                self.path, isolation_level=None, timeout=config.busy_timeout_s, check_same_thread=False
            )
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise

    def append(self, bodies: Sequence[tuple[str | None, bytes]]) -> int:
        """Put (content type, body) pairs on the disk, all or none; gives the last one's sequence number.

        Raises:
            SpoolFull: over a limit, no space on the disk, or locked for too long; nothing was kept.
            SpoolUnusable: the file is damaged.
        """
        size = sum(len(body) for _, body in bodies)
        now = time.time()
        with self._transaction():
            rows, held = self._db.execute("SELECT rows, bytes FROM held WHERE id = 1").fetchone()
            self._check_room(rows + len(bodies), held + size)
            self._db.executemany(
                "INSERT INTO bodies (content_type, body, received_at) VALUES (?, ?, ?)",
                ((content_type, body, now) for content_type, body in bodies),
            )
            self._db.execute(
                "UPDATE held SET rows = rows + ?, bytes = bytes + ? WHERE id = 1", (len(bodies), size)
            )
            return self._next_seq() - 1

    def read(self, from_seq: int, max_rows: int, max_bytes: int) -> list[SpooledBody]:
        """The rows from ``from_seq`` on, at most so many; the first one even if it is over ``max_bytes``."""
        rows: list[SpooledBody] = []
        size = 0
        with self._lock, _told(self.path):
            found = self._db.execute(
                "SELECT seq, content_type, body FROM bodies WHERE seq >= ? ORDER BY seq LIMIT ?",
                (from_seq, max_rows),
            )
            for row in found:
                size += len(row[2])
                if rows and size > max_bytes:
                    break
                rows.append(SpooledBody(*row))
            found.close()
        return rows

    def prune(self, before_seq: int) -> int:
        """Delete rows below ``before_seq``, oldest first, while more than ``keep_bytes`` are held; gives
        how many went.

        Raises:
            SpoolFull: locked for too long, or no space left even to delete; nothing is lost by that.
        """
        gone = 0
        while pruned := self._prune_some(before_seq):
            gone += pruned
        return gone

    def usage(self) -> SpoolUsage:
        """How full it is."""
        with self._lock, _told(self.path):
            rows, held = self._db.execute("SELECT rows, bytes FROM held WHERE id = 1").fetchone()
            (first,) = self._db.execute("SELECT min(seq) FROM bodies").fetchone()
            following = self._next_seq()
        return SpoolUsage(rows, held, following if first is None else first, following)

    def next_seq(self) -> int:
        """What the next row will get: cheap enough to ask many times a second."""
        with self._lock, _told(self.path):
            return self._next_seq()

    def close(self) -> None:
        """Let go of the file; safe to call twice."""
        with self._lock:
            self._db.close()

    def _prepare(self) -> None:
        db = self._db
        # Asked before anything is written: the file of another program stays as it is.
        (application,) = db.execute("PRAGMA application_id").fetchone()
        (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
        if application != _APPLICATION_ID and (application or tables):
            raise SpoolUnusable(f"{self.path}: must be a spool of firstfault, got another database")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        db.execute(f"PRAGMA journal_size_limit = {_KEPT_LOG_BYTES}")
        with self._transaction():
            (version,) = db.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise SpoolUnusable(
                    f"{self.path}: must be of version {_VERSION} at most, got {version}: update firstfault"
                )
            if version == 0:
                for statement in _SCHEMA:
                    db.execute(statement)

    def _check_room(self, rows: int, size: int) -> None:
        config = self._config
        if rows > config.max_rows:
            raise SpoolFull(f"{self.path}: must hold at most {config.max_rows} bodies, got {rows}")
        if size > config.max_bytes:
            raise SpoolFull(f"{self.path}: must hold at most {config.max_bytes} bytes, got {size}")

    def _next_seq(self) -> int:
        row = self._db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'bodies'").fetchone()
        return 1 if row is None else int(row[0]) + 1

    def _prune_some(self, before_seq: int) -> int:
        with self._transaction():
            (held,) = self._db.execute("SELECT bytes FROM held WHERE id = 1").fetchone()
            rows = size = 0
            last = 0
            for seq, length in self._db.execute(
                "SELECT seq, length(body) FROM bodies WHERE seq < ? ORDER BY seq LIMIT ?",
                (before_seq, _PRUNE_ROWS),
            ).fetchall():
                if held - size - length < self._config.keep_bytes or size > _PRUNE_BYTES:
                    break
                rows, size, last = rows + 1, size + length, seq
            self._db.execute("DELETE FROM bodies WHERE seq <= ?", (last,))
            self._db.execute("UPDATE held SET rows = rows - ?, bytes = bytes - ? WHERE id = 1", (rows, size))
        return rows

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Everything or nothing; the write lock comes first, so that it never fails half way."""
        with self._lock, _told(self.path):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite itself rolls back when the disk is full
                    self._db.execute("ROLLBACK")
                raise


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """What SQLite and the system say, as errors of ours: whether it may pass, or is for good."""
    try:
        yield
    except sqlite3.OperationalError as error:
        kind = SpoolFull if str(error).startswith(_NO_SPACE) else SpoolUnusable
        raise kind(f"{path}: {error}") from error
    except (sqlite3.Error, OSError) as error:
        raise SpoolUnusable(f"{path}: {error}") from error
