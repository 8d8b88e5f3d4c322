"""Settings of the store; a module of its own so that settings load without a database library."""

from __future__ import annotations

from dataclasses import dataclass

DATABASE = "firstfault.sqlite3"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """Where the store is, how it waits, and how far it fills the disk."""

    url: str = ""
    """`postgresql://user@host/database` lets workers share a store; empty: SQLite in the data folder."""
    password: str = ""
    """Password of the PostgreSQL account, kept out of the address."""
    busy_timeout_s: float = 5.0
    """Wait for a reader's lock: a checkpoint by the SQLite shell takes less, a longer one is a fault."""
    cache_megabytes: int = 16
    """Page cache of the one writer; the store is small beside the telemetry."""
    max_megabytes: int = 16_384
    """Most that SQLite may grow to; beyond, the worker waits and says so instead of filling the disk."""
    keep_changes: int = 100_000
    """Changes that a reader of the event stream can catch up on: 100 MB at a kilobyte each."""

    def __post_init__(self) -> None:
        if self.url and not self.url.startswith(("postgresql://", "postgresql+psycopg://")):
            raise ValueError(f"url must begin with postgresql:// or be empty, got {masked(self.url)!r}")
        if not 0.0 < self.busy_timeout_s <= 600.0:
            raise ValueError(f"busy_timeout_s must be > 0 and <= 600, got {self.busy_timeout_s}")
        if not 1 <= self.cache_megabytes <= 4096:
            raise ValueError(f"cache_megabytes must be from 1 to 4096, got {self.cache_megabytes}")
        if not 1 <= self.max_megabytes <= 1 << 24:
            raise ValueError(f"max_megabytes must be from 1 to 16777216, got {self.max_megabytes}")
        if not 1 <= self.keep_changes <= 100_000_000:
            raise ValueError(f"keep_changes must be from 1 to 100000000, got {self.keep_changes}")


def masked(url: str) -> str:
    """A database address without its password.

    >>> masked("postgresql://me:secret@host/db")
    'postgresql://me:***@host/db'
    """
    scheme, mark, rest = url.partition("://")
    account, at, place = rest.rpartition("@")
    if not mark or not at or ":" not in account:
        return url
    return f"{scheme}://{account.partition(':')[0]}:***@{place}"
