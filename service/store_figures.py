"""What the store says of itself for `/metrics`: its size, and what waits to be told outside."""

from __future__ import annotations

from sqlalchemy import Connection, func, select, text

from .tables import outbox


def store_bytes(db: Connection) -> int:
    """Size of the database, without the log of what SQLite has yet to fold in."""
    if db.dialect.name == "postgresql":
        return int(db.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    pages = int(db.exec_driver_sql("PRAGMA page_count").scalar_one())
    return pages * int(db.exec_driver_sql("PRAGMA page_size").scalar_one())


def unsent_by_channel(db: Connection) -> dict[str, tuple[int, float]]:
    """Per channel how many messages wait, and since when the oldest does (seconds since 1970)."""
    waiting = (
        select(outbox.c.channel, func.count(), func.min(outbox.c.created_at))
        .where(outbox.c.sent_at.is_(None))
        .group_by(outbox.c.channel)
    )
    return {channel: (count, oldest) for channel, count, oldest in db.execute(waiting)}
