"""A hang in words: who keeps whom waiting."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def hang_words(incident: Mapping[str, Any]) -> str:
    """The predicate of the sentence, its verb in braces."""
    first = incident["first"]
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
