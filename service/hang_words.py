"""A hang in words: who keeps whom waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .ink import clean

LAST_WORDS = "last_words"
"""What a stall is about where a process died; see `detectors/endings.py`."""


def hang_words(incident: Mapping[str, Any]) -> str:
    """The predicate of the sentence, its verb in braces."""
    first = incident["first"]
    if first.get("metric") == LAST_WORDS:
        return _ending(incident)
    if first.get("metric") != "heartbeat":
        return "{stops} reporting while others go on"
    if not first.get("ranks"):
        return "{stands} still"
    waiting = int(first.get("victim_count") or 0)
    return "{keeps} the other " + ("rank" if waiting == 1 else "ranks") + " waiting"


def pause_words(incident: Mapping[str, Any]) -> str:
    """What a verdict without a fault says of a hang that ended by itself."""
    first = incident["first"]
    if first.get("metric") != "heartbeat":
        return f"A rank that had stopped reporting at iteration {first['iteration']} came back."
    return f"The run stood still before iteration {first['iteration']} and went on."


def _ending(incident: Mapping[str, Any]) -> str:
    """How a process died, or that it is gone."""
    own = [one for one in incident.get("evidence") or () if one.get("metric") == LAST_WORDS]
    detail = (own[0].get("detail") if own else None) or {}
    name, text = clean(detail.get("exception") or "an exception", 80), clean(detail.get("text") or "", 120)
    if detail.get("is_of_others") and incident["first"].get("ranks"):
        return "{ends} without a word, of which the others die,"
    # braces of the text are no verbs of ours
    told = f" ({text})".replace("{", "[").replace("}", "]") if text else ""
    return f"{{dies}} of {name} in {incident['first']['phase']}{told}"
