"""A verdict in what a list shows of it: stored beside the run, so that a page of runs parses no verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .sentence import root_incident, what_happened

# Any: the verdict's JSON, whose shape detectors/verdict.schema.json fixes.
Json = Mapping[str, Any]

_COPIED = ("attempt", "iteration", "interval", "ranks", "rank_count", "metric")


def digest_of(verdict: Json) -> dict[str, Any]:
    """The sentence of a run, where its fault began, and in numbers how much was looked at."""
    root = root_incident(verdict)
    return {
        "sentence": what_happened(verdict),
        "incident_id": None if root is None else root["id"],
        "first": None if root is None else first_of(root["first"]),
        "coverage": _coverage(verdict["coverage"]),
    }


def first_of(first: Json) -> dict[str, Any]:
    """Where and when an incident began, with the hosts of its suspects."""
    hosts = sorted({one["host"] for one in first["suspects"] if one.get("host")})
    return {**{name: first[name] for name in _COPIED}, "hosts": hosts}


def _coverage(coverage: Json) -> dict[str, int]:
    ran = sum(check["state"] == "ran" for check in coverage["checks"])
    return {
        "ranks": coverage["ranks"],
        "metrics": len(coverage["metrics"]),
        "checks_run": ran,
        "checks_not_run": len(coverage["checks"]) - ran,
        "blind_to": len(coverage["blind_to"]),
        "silent_ranks": coverage.get("silent_rank_count", 0),
        "rejected": coverage["rejected"],
    }
