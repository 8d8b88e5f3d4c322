"""What a repetition showed, in words: a template whose verbs `sentence.py` conjugates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Any: the JSON of an incident, whose shape detectors/verdict.schema.json fixes.
Incident = Mapping[str, Any]


def reference_what(incident: Incident) -> str:
    """The predicate, if the incident began with a difference between attempts; else nothing."""
    evidence = incident.get("evidence") or [{}]
    attempt = (evidence[0].get("detail") or {}).get("reference_attempt")
    if not isinstance(attempt, int):
        return ""
    return f"{{gets}} another {{metric}} than attempt {attempt} got at the same iteration,"
