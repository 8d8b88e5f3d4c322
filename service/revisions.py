"""What an incident was before: its canonical JSON at each change that is more than the run going on.

Kept are the first and the newest of each incident, `MAX_REVISIONS` in all: an incident whose numbers change
with every verdict must not fill the store.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, delete, func, select

from .rows import upsert
from .triage_tables import incident_revisions

MAX_REVISIONS = 100
"""Of one incident: people look at how it began and at what changed last. 100 of 1000 ranks are 0.5 MB."""
_GOES_ON = "cost"
"""The part of an incident that grows while the run goes on, and says nothing new of the fault."""

# Any: an incident's JSON, whose shape detectors/verdict.schema.json fixes.
Incident = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """An incident as it was."""

    revision: int
    at: float
    kind: str
    """``new``, ``worsened``, ``changed``, ``withdrawn`` or ``returned``."""
    incident: Incident


def keep_revision(
    db: Connection, place: tuple[str, int, float], kind: str, body: bytes, before: bytes | None
) -> None:
    """Keep ``body`` as a revision; ``place`` is incident, number and time, ``before`` what it follows."""
    incident_id, number, at = place
    if kind == "changed" and before is not None and _essence(before) == _essence(body):
        return
    row = {"incident_id": incident_id, "revision": number, "at": at, "kind": kind}
    upsert(db, incident_revisions, ["incident_id", "revision"], {**row, "body": zlib.compress(body)})
    _forget_middle(db, incident_id)


def list_revisions(db: Connection, incident_id: str) -> list[Revision]:
    """All that is kept of an incident, oldest first."""
    table = incident_revisions
    wanted = select(table).where(table.c.incident_id == incident_id).order_by(table.c.revision)
    return [
        Revision(
            revision=row.revision,
            at=row.at,
            kind=row.kind,
            incident=json.loads(zlib.decompress(bytes(row.body))),
        )
        for row in db.execute(wanted)
    ]


def differences(before: Incident, now: Incident) -> list[tuple[str, Any, Any]]:
    """The fields whose values differ, by name, with what they were and are; of ``first`` each by itself.

    >>> differences({"certainty": "suspected", "first": {"iteration": 7}},
    ...             {"certainty": "confirmed", "first": {"iteration": 7}})
    [('certainty', 'suspected', 'confirmed')]
    """
    was, is_now = (
        {
            **{name: value for name, value in one.items() if name not in (_GOES_ON, "first")},
            **{f"first.{name}": value for name, value in one.get("first", {}).items()},
        }
        for one in (before, now)
    )
    names = sorted({*was, *is_now})
    return [(name, was.get(name), is_now.get(name)) for name in names if was.get(name) != is_now.get(name)]


def _essence(body: bytes) -> Incident:
    return {name: value for name, value in json.loads(body).items() if name != _GOES_ON}


def _forget_middle(db: Connection, incident_id: str) -> None:
    """Let go of the oldest after the first, while there are too many."""
    table = incident_revisions
    mine = table.c.incident_id == incident_id
    count = int(db.execute(select(func.count()).where(mine)).scalar_one())
    if count <= MAX_REVISIONS:
        return
    numbers = select(table.c.revision).where(mine).order_by(table.c.revision)
    spare = db.execute(numbers.offset(1).limit(count - MAX_REVISIONS)).scalars().all()
    db.execute(delete(table).where(mine, table.c.revision.in_(spare)))
