"""What the rooms of the store share: insert or replace, and the numbers that order changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, select, update
from sqlalchemy.dialects import postgresql, sqlite

from . import tables


def upsert(
    db: Connection,
    table: Table,
    keys: Sequence[str],
    row: Mapping[str, Any],
    replaced: Mapping[str, Any] | None = None,
) -> None:
    """Insert ``row``; of one that has the same ``keys`` replace all columns, or those in ``replaced``."""
    dialect = postgresql if db.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(table).values(**row)
    if replaced is None:
        replaced = {name: insert.excluded[name] for name in row if name not in keys}
    db.execute(insert.on_conflict_do_update(index_elements=list(keys), set_=replaced))


def lock_changes(db: Connection) -> None:
    """Let nobody else write about runs and incidents until the commit (SQLite: nobody else writes anyhow)."""
    counters = tables.counters
    db.execute(select(counters.c.value).where(counters.c.name == "changes").with_for_update())


def next_seq(db: Connection) -> int:
    """The next number of a change. The row stays locked until the commit: numbers follow commits."""
    counters = tables.counters
    statement = (
        update(counters)
        .where(counters.c.name == "changes")
        .values(value=counters.c.value + 1)
        .returning(counters.c.value)
    )
    return int(db.execute(statement).scalar_one())


def to_body(value: Mapping[str, Any]) -> bytes:
    """A JSON object as its canonical bytes."""
    return json.dumps(value, ensure_ascii=True, sort_keys=True, separators=(",", ":")).encode()
