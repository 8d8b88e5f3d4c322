"""What the rooms of the store share: insert or replace, and the numbers that order changes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, update
from sqlalchemy.dialects import postgresql, sqlite

from . import tables


def upsert(db: Connection, table: Table, keys: Sequence[str], row: Mapping[str, Any]) -> None:
    """Insert ``row``, or replace these columns of the row that has the same ``keys``."""
    dialect = postgresql if db.dialect.name == "postgresql" else sqlite
    insert = dialect.insert(table).values(**row)
    replaced = {name: insert.excluded[name] for name in row if name not in keys}
    db.execute(insert.on_conflict_do_update(index_elements=list(keys), set_=replaced))


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
