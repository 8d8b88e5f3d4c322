"""What the store says of itself for `/metrics`: its size, and what waits to be told outside."""

from __future__ import annotations

from sqlalchemy import Connection, case, func, select, text

from .alerts.outbox import DeliveryKind, DeliveryState
from .tables import alert_deliveries, alert_results, outbox


def store_bytes(db: Connection) -> int:
    """Size of the database, without the log of what SQLite has yet to fold in."""
    if db.dialect.name == "postgresql":
        return int(db.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    pages = int(db.exec_driver_sql("PRAGMA page_count").scalar_one())
    return pages * int(db.exec_driver_sql("PRAGMA page_size").scalar_one())


def unsent_by_channel(db: Connection, now: float) -> dict[str, tuple[int, float]]:
    """Per channel how many messages are due and wait, and since when the oldest does, seconds since 1970."""
    to_topic = (
        select(outbox.c.channel, func.count(), func.min(outbox.c.created_at))
        .where(outbox.c.sent_at.is_(None))
        .group_by(outbox.c.channel)
    )
    table = alert_deliveries.c
    # what is told again and again was put out when its incident began: it waits since it was due
    is_repeated = table.kind.in_((DeliveryKind.REFRESH.value, DeliveryKind.REMINDER.value))
    since = case((is_repeated, table.due_at), else_=table.created_at)
    is_waiting = (table.state == DeliveryState.WAITING.value) & ((table.due_at <= now) | (table.attempts > 0))
    to_people = select(table.channel, func.count(), func.min(since)).where(is_waiting).group_by(table.channel)
    return {
        channel: (count, oldest)
        for statement in (to_topic, to_people)
        for channel, count, oldest in db.execute(statement)
    }


def notify_results(db: Connection) -> dict[tuple[str, str], int]:
    """How often each alert channel took or refused a message, by channel and result."""
    table = alert_results.c
    rows = db.execute(select(table.channel, table.result, table.messages))
    return {(channel, result): messages for channel, result, messages in rows}
