"""What is wrong with a reduction, in words: templates whose verbs and pronouns `sentence.py` conjugates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .ink import clean

# Any: the JSON of an incident, whose shape detectors/verdict.schema.json fixes.
Incident = Mapping[str, Any]

_WHAT: Mapping[str, str] = {
    "result_differs": "{gets} another reduced gradient{bucket} than the {others}",
    "contribution_missing": "{counts} for nothing in the reduced gradient{bucket}",
    "contribution_doubled": "{counts} twice in the reduced gradient{bucket}",
    "sum_differs": "{gives} another gradient{bucket} than the sum of what goes in",
}


def reduction_of(incident: Incident) -> str:
    """What `linear_checksum` found, if the incident began with it; else nothing."""
    evidence = incident.get("evidence") or [{}]
    fault = str((evidence[0].get("detail") or {}).get("reduction", ""))
    return fault if fault in _WHAT else ""


def reduction_what(incident: Incident) -> str:
    """The predicate, with its verbs and pronouns in braces."""
    bucket = str(incident["first"].get("metric") or "").partition("/")[2]
    named = clean(bucket, 60).replace("{", "(").replace("}", ")")
    return _WHAT[reduction_of(incident)].replace("{bucket}", f" of bucket {named}" if bucket else "")


def reduction_subject(incident: Incident) -> str:
    """Who gave a wrong result where nobody can be named: the reduction itself; else nothing."""
    if reduction_of(incident) != "sum_differs":
        return ""
    count = int(incident["first"].get("rank_count") or 0)
    return f"The reduction over {count} ranks" if count else "The reduction"
