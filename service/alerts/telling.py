"""Whether a channel is told of an incident now: a function of what it was told and of what holds.

One message when an incident opens, one each time that it gets worse, one when it is over. Nothing of what a
person acknowledged, unless it gets worse: what they looked at was less than what it is now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from .config import ChannelConfig

_CERTAINTIES = ("recovered", "suspected", "confirmed")
_SEVERITIES = ("info", "warning", "critical")
_OVER: Mapping[str, str] = {
    "resolved": "somebody resolved it",
    "false_alarm": "somebody called it a false alarm",
}


class Event(StrEnum):
    """Why a message is sent."""

    OPENED = "opened"
    WORSENED = "worsened"
    RESOLVED = "resolved"
    REMINDER = "reminder"
    """A mute is over, and the incident still stands."""
    TEST = "test"


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a channel was last told of an incident."""

    is_firing: bool
    certainty: str
    severity: str
    has_ranks: bool


def why_over(alert: Mapping[str, Any], state: str, *, is_withdrawn: bool) -> str:
    """Why an incident needs nobody any more, in words; empty while it stands."""
    if is_withdrawn:
        return "later records explain it"
    if alert["certainty"] == "recovered":
        return "it recovered"
    return _OVER.get(state, "")


def event_of(told: Told | None, alert: Mapping[str, Any], state: str, over: str) -> Event | None:
    """What a channel is to be told, if it hears of such incidents; None for nothing.

    >>> alert = {"certainty": "confirmed", "severity": "critical", "ranks": [3]}
    >>> event_of(None, alert, "open", ""), event_of(None, alert, "acknowledged", "")
    (<Event.OPENED: 'opened'>, None)
    """
    stands = told is not None and told.is_firing
    if over:
        return Event.RESOLVED if stands else None
    if told is not None and stands:
        return Event.WORSENED if is_worse(told, alert) else None
    return None if state == "acknowledged" else Event.OPENED


def is_worse(told: Told, alert: Mapping[str, Any]) -> bool:
    """Whether an incident is more than a channel was told."""
    return (
        _CERTAINTIES.index(alert["certainty"]) > _CERTAINTIES.index(told.certainty)
        or _SEVERITIES.index(alert["severity"]) > _SEVERITIES.index(told.severity)
        or (bool(alert["ranks"]) and not told.has_ranks)
    )


def hears_of(channel: ChannelConfig, alert: Mapping[str, Any]) -> bool:
    """Whether a channel's filters let an incident through."""
    return (
        _CERTAINTIES.index(alert["certainty"]) >= _CERTAINTIES.index(channel.min_certainty)
        and _SEVERITIES.index(alert["severity"]) >= _SEVERITIES.index(channel.min_severity)
        and (not channel.labels or alert["label"] in channel.labels)
        and fnmatchcase(alert["run"], channel.runs)
    )
