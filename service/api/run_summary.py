"""A run in a few words and numbers: what its row in the store and its verdict say of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from service import reading
from service.reading import RunRow
from service.sentence import root_incident, what_happened

from .models import CoverageSummary, FirstFault
from .values import timestamp

# Any: the verdict's JSON, whose shape detectors/verdict.schema.json fixes.
Json = Mapping[str, Any]


def summaries(db: Connection, rows: list[RunRow], now: float) -> list[dict[str, Any]]:
    """The fields of a `RunSummary` of each run."""
    names = [row.run_id for row in rows]
    counts, verdicts = reading.open_incidents(db, names, now), reading.verdicts_bytes(db, names)
    return [summary(row, json.loads(verdicts[row.run_id]), counts.get(row.run_id, 0)) for row in rows]


def summary(row: RunRow, verdict: Json, open_incidents: int) -> dict[str, Any]:
    """The fields of a `RunSummary`."""
    root = root_incident(verdict)
    return {
        "run_id": row.run_id,
        "run": row.run,
        "label": row.label,
        "severity": row.severity,
        "sentence": what_happened(verdict),
        "incident_id": None if root is None else root["id"],
        "first": None if root is None else first_fault(root["first"]),
        "judged_to_iteration": row.judged_to,
        "open_incidents": open_incidents,
        "coverage": _coverage(verdict["coverage"]),
        "revision": row.revision,
        "first_seen_at": timestamp(row.first_seen_at) or "",
        "updated_at": timestamp(row.updated_at) or "",
        "newest_record_at": timestamp(row.newest_record_at),
        "quiet_since": timestamp(row.quiet_since),
    }


def first_fault(first: Json) -> FirstFault:
    """Where and when an incident began, with the hosts of its suspects."""
    copied = ("attempt", "iteration", "interval", "ranks", "rank_count", "metric")
    hosts = sorted({one["host"] for one in first["suspects"] if one.get("host")})
    return FirstFault(**{name: first[name] for name in copied}, hosts=hosts)


def _coverage(coverage: Json) -> CoverageSummary:
    ran = sum(check["state"] == "ran" for check in coverage["checks"])
    return CoverageSummary(
        ranks=coverage["ranks"],
        metrics=len(coverage["metrics"]),
        checks_run=ran,
        checks_not_run=len(coverage["checks"]) - ran,
        blind_to=len(coverage["blind_to"]),
        silent_ranks=coverage.get("silent_rank_count", 0),
        rejected=coverage["rejected"],
    )
