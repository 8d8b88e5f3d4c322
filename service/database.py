"""One database behind the store: SQLite by default, PostgreSQL where several workers share one.

Transactions that write take the write lock first (SQLite: ``BEGIN IMMEDIATE``), so that none of them
fails half way for another writer; those that only read see one state of the database throughout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError

from .errors import StoreBusy, StoreError, StoreFull
from .store_config import DATABASE, StoreConfig, masked

_PAGE_BYTES = 4096
_FROZEN_AFTER_S = 30
"""After this PostgreSQL ends a transaction whose client does nothing: a worker that was frozen in the middle
of one must not hold its locks for ever. None of ours waits for anything once begun."""


def storable(text: str) -> str:
    """A text as every database can hold it: PostgreSQL's cannot hold U+0000."""
    return text.replace("\0", "\ufffd")


class Database:
    """An engine with the two kinds of transaction; safe to use from several threads."""

    def __init__(self, data_dir: Path, config: StoreConfig | None = None, *, read_only: bool = False) -> None:
        """Connect lazily; a folder that is missing is made unless ``read_only``.

        Raises:
            StoreError: the driver of PostgreSQL is not installed, or the folder cannot be made.
        """
        self.config = config or StoreConfig()
        self.read_only = read_only
        self.data_dir = data_dir
        self.place = masked(self.config.url) if self.config.url else str(data_dir / DATABASE)
        self.engine = self._postgres() if self.config.url else self._sqlite(data_dir / DATABASE)

    @property
    def is_postgres(self) -> bool:
        """Whether it is PostgreSQL; else it is SQLite."""
        return self.engine.dialect.name == "postgresql"

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Everything or nothing, with the write lock from the start.

        Raises:
            StoreFull: no space is left; try again later.
            StoreBusy: somebody else holds the lock, or the server is away; try again later.
            StoreError: the database cannot be used.
        """
        with self._told(), self.engine.connect().execution_options(is_writing=True) as db, db.begin():
            yield db

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """One state of the database, whatever is written beside.

        Raises:
            StoreBusy: the server is away; try again later.
            StoreError: the database cannot be used.
        """
        with self._told(), self.engine.connect() as db, db.begin():
            if self.is_postgres:
                db.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield db

    def close(self) -> None:
        """Let go of all connections; safe to call twice."""
        self.engine.dispose()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Name the place in whatever the driver says."""
        try:
            yield
        except DBAPIError as error:
            raise self.explain(error) from error

    def explain(self, error: DBAPIError) -> StoreError:
        """The driver's error as one of ours, with the place in its words."""
        words = " ".join(str(error.orig).split())
        text = f"{self.place}: {words}"
        if "disk is full" in words or "No space left" in words or "disk I/O error" in words:
            return StoreFull(text)
        is_away = "locked" in words or "busy" in words or (self.is_postgres and _is_transient(error))
        return StoreBusy(text) if is_away else StoreError(text)

    def _sqlite(self, path: Path) -> Engine:
        if not self.read_only:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(f"{path.parent}: {error.strerror}") from error
        mode = "ro" if self.read_only else "rwc"
        engine = create_engine(
            f"sqlite:///file:{_quoted(path.absolute())}?mode={mode}&uri=true",
            connect_args={"timeout": self.config.busy_timeout_s, "check_same_thread": False},
        )
        event.listen(engine, "connect", self._prepare)
        event.listen(engine, "begin", _begin)
        return engine

    def _prepare(self, connection: Any, _record: object) -> None:
        # The driver's own transactions begin too late: at the first write, when a reader may have the lock.
        connection.isolation_level = None
        cursor = connection.cursor()
        if not self.read_only:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute(f"PRAGMA max_page_count = {(self.config.max_megabytes << 20) // _PAGE_BYTES}")
        cursor.execute("PRAGMA synchronous = FULL")  # NORMAL may lose the last commits on power loss
        cursor.execute(f"PRAGMA cache_size = {-1024 * self.config.cache_megabytes}")
        cursor.close()

    def _postgres(self) -> Engine:
        url = make_url(self.config.url).set(drivername="postgresql+psycopg")
        if self.config.password:
            url = url.set(password=self.config.password)
        try:
            engine = create_engine(
                url,
                connect_args={
                    "connect_timeout": max(1, round(self.config.busy_timeout_s)),
                    "options": f"-c lock_timeout={round(1000 * self.config.busy_timeout_s)}"
                    f" -c idle_in_transaction_session_timeout={1000 * _FROZEN_AFTER_S}",
                },
                pool_pre_ping=True,
            )
        except ImportError as error:
            raise StoreError(f"{self.place}: needs psycopg: pip install 'psycopg[binary]'") from error
        event.listen(engine, "before_cursor_execute", _without_nul, retval=True)
        return engine


def _begin(db: Connection) -> None:
    db.exec_driver_sql("BEGIN IMMEDIATE" if db.get_execution_options().get("is_writing") else "BEGIN")


def _is_transient(error: DBAPIError) -> bool:
    """Whether PostgreSQL is away, or two transactions got in each other's way."""
    state = getattr(error.orig, "sqlstate", None)
    is_collision = state in ("40001", "40P01", "55P03")  # serialization, deadlock, lock not available
    return error.connection_invalidated or is_collision or isinstance(error, OperationalError)


def _quoted(path: Path) -> str:
    """A path inside an SQLite address: these characters mean something there."""
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _without_nul(
    _db: Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, _is_many: bool
) -> tuple[str, Any]:
    """Make what is written, and what is asked for, `storable`.

    A host may be named by any text, and one refused would end the worker, again and again. What has to come
    out as it came in (verdicts, rejected lines) is kept as bytes.
    """
    return statement, _spelled(parameters)


def _spelled(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, Mapping):
        return {name: _spelled(one) for name, one in value.items()}
    return type(value)(map(_spelled, value)) if isinstance(value, list | tuple) else value
