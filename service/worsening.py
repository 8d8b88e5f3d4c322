"""What makes an incident worse than it was: said in words, since people are told it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

# Any: an incident's JSON, whose shape detectors/verdict.schema.json fixes.
Incident = Mapping[str, Any]

_CERTAINTIES = ("recovered", "suspected", "confirmed")
_SEVERITIES = ("info", "warning", "critical")
_WORDS = {"gradient_explosion": "a gradient explosion", "nan": "a NaN", "silent_drift": "a silent drift"}


def worsening(before: Incident, now: Incident) -> str:
    """Why ``now`` is worse than ``before``; empty where it is not.

    That the run goes on, and the cost with it, makes nothing worse; nor does knowing more exactly who and
    since when.
    """
    for name, order in (("certainty", _CERTAINTIES), ("severity", _SEVERITIES)):
        was, is_now = str(before[name]), str(now[name])
        if _place(order, is_now) > _place(order, was):
            return f"its {name} rose from {was} to {is_now}"
    known = {str(one["label"]) for one in before.get("chain", ())}
    for one in now.get("chain", ()):
        if str(one["label"]) not in known:
            label = str(one["label"])
            return f"{_WORDS.get(label, f'a {label}')} followed at iteration {one['iteration']}"
    return ""


def fresh_evidence(before: Incident, now: Incident) -> str:
    """What was seen after all that was known ``before``; empty where nothing was.

    An incident that was dealt with and shows again, without being worse than it was.
    """
    seen = before.get("evidence", ())
    known = Counter(_source_of(one) for one in seen)
    newest = max((int(one["iteration"]) for one in seen), default=-1)
    for one in now.get("evidence", ()):
        known[_source_of(one)] -= 1  # below zero: not the old one seen more exactly, but one more
        if known[_source_of(one)] < 0 and int(one["iteration"]) > newest:
            return f"{one['detector']} saw it in {one['metric']} at iteration {one['iteration']}"
    return ""


def _source_of(evidence: Mapping[str, Any]) -> tuple[str, str]:
    return str(evidence["detector"]), str(evidence["metric"])


def _place(order: tuple[str, ...], name: str) -> int:
    return order.index(name) if name in order else 0
