"""A run in a few words and numbers: what its row in the store says of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from service import reading
from service.digest import first_of
from service.reading import RunRow

from .models import CoverageSummary, FirstFault
from .values import timestamp

# Any: the verdict's JSON, whose shape detectors/verdict.schema.json fixes.
Json = Mapping[str, Any]


def summaries(db: Connection, rows: list[RunRow], now: float) -> list[dict[str, Any]]:
    """The fields of a `RunSummary` of each run."""
    states = reading.incident_states(db, [row.run_id for row in rows], now)
    return [summary(row, states.get(row.run_id, {})) for row in rows]


def summary(row: RunRow, states: Mapping[str, int]) -> dict[str, Any]:
    """The fields of a `RunSummary`; ``states`` are those of its confirmed incidents, counted."""
    digest = json.loads(row.digest)
    first = digest["first"]
    return {
        "run_id": row.run_id,
        "run": row.run,
        "label": row.label,
        "severity": row.severity,
        "sentence": digest["sentence"],
        "incident_id": digest["incident_id"],
        "first": None if first is None else FirstFault(**first),
        "coverage": CoverageSummary(**digest["coverage"]),
        "judged_to_iteration": row.judged_to,
        "open_incidents": states.get("open", 0),
        "incident_states": dict(states),
        "revision": row.revision,
        "first_seen_at": timestamp(row.first_seen_at) or "",
        "updated_at": timestamp(row.updated_at) or "",
        "newest_record_at": timestamp(row.newest_record_at),
        "quiet_since": timestamp(row.quiet_since),
    }


def first_fault(first: Json) -> FirstFault:
    """Where and when an incident began, with the hosts of its suspects."""
    return FirstFault(**first_of(first))
