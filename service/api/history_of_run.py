"""The entries of a run's history in one order: what the verdict places in the run, then what changed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from service.reading import ChangeRow
from service.sentence import incident_sentence

from .models import Event, EventKind
from .pages import Key
from .values import timestamp

EventKey = tuple[int, int, int, int, str]
"""Section (positions, then changes), then attempt, iteration, kind and name; or the place in the stream."""
KEY_TYPES = (int, int, int, int, str)
_POSITIONS, _CHANGES = 0, 1


def event_key(place: Key | None) -> EventKey:
    """The place that a cursor with `KEY_TYPES` names; without one, before all entries."""
    return (-1, 0, 0, 0, "") if place is None else place  # type: ignore[return-value]  # types are checked


def positioned(verdict: Mapping[str, Any]) -> list[tuple[EventKey, Event]]:
    """Incidents and annotations of a verdict by where they lie in the run."""
    placed = [_incident(one, verdict) for one in verdict["incidents"]]
    seen: Counter[EventKey] = Counter()
    for one in verdict["annotations"]:
        key, event = _annotation(one)
        # several of one kind may share a place, and each needs a key of its own
        seen[key] += 1
        placed.append(((*key[:4], f"{key[4]}#{seen[key]}"), event))
    return sorted(placed, key=lambda one: one[0])


def change_key(row: ChangeRow) -> EventKey:
    """Where a change stands."""
    return (_CHANGES, row.seq, 0, 0, "")


def last_change(after: EventKey) -> int:
    """The place in the event stream after which changes follow ``after``."""
    return after[1] if after[0] == _CHANGES else 0


def change_event(row: ChangeRow) -> Event:
    """A change as an entry."""
    return Event(
        kind=EventKind.CHANGE,
        name=row.kind,
        attempt=None,
        iteration=None,
        at=timestamp(row.at),
        seq=row.seq,
        incident_id=row.incident_id,
        detail=json.loads(row.body),
    )


def _incident(one: Mapping[str, Any], verdict: Mapping[str, Any]) -> tuple[EventKey, Event]:
    first = one["first"]
    detail = {name: one[name] for name in ("pattern", "certainty", "severity")}
    event = Event(
        kind=EventKind.INCIDENT,
        name=one["label"],
        attempt=first["attempt"],
        iteration=first["iteration"],
        at=None,
        seq=None,
        incident_id=one["id"],
        detail=detail | {"sentence": incident_sentence(one, verdict)},
    )
    return (_POSITIONS, first["attempt"], first["iteration"], 0, one["id"]), event


def _annotation(one: Mapping[str, Any]) -> tuple[EventKey, Event]:
    event = Event(
        kind=EventKind.ANNOTATION,
        name=one["kind"],
        attempt=one["attempt"],
        iteration=one["iteration"],
        at=None,
        seq=None,
        incident_id=None,
        detail=one["detail"],
    )
    return (_POSITIONS, one["attempt"], one["iteration"], 1, one["kind"]), event
