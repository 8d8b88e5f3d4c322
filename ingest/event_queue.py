"""Events of an attempt that wait to settle, and the layout they describe."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from firstfault.mesh import Layout, LayoutError, layout_from_event
from firstfault.telemetry import Event, EventKind

from .admission import Admission

_LAYOUT_EVENTS = frozenset({EventKind.RUN_START, EventKind.MEMBERSHIP})


class EventQueue:
    """Holds events until their iteration settles, each once, in an order that arrival cannot change."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.waiting: list[Event] = []
        self.has_settled = False
        self.layout: Layout | None = None

    def push(self, event: Event) -> None:
        """Take an event; one that came too late is counted and dropped."""
        # Before anything settled, the launch may still be described, whatever iteration it carries.
        describes_launch = event.kind is EventKind.RUN_START and not self.has_settled
        if event.iteration < self.admission.settled_before and not describes_launch:
            self.admission.late += 1
        elif len(self.waiting) >= self.admission.config.max_pending_events:
            self.admission.reject(f"event: at most {self.admission.config.max_pending_events} waiting")
        else:
            self.waiting.append(event)

    def ordered(self) -> list[Event]:
        """The waiting events, each once, ascending by where they count from."""
        keyed = {
            (self.counts_from(event), event.kind.value, event.rank, _fields_key(event)): event
            for event in self.waiting
        }
        self.waiting = [keyed[key] for key in sorted(keyed)]
        return self.waiting

    def counts_from(self, event: Event) -> int:
        """Where an event counts from: the first run_start describes the launch, whatever it carries."""
        if event.kind is EventKind.RUN_START and not self.has_settled:
            launch = min(e.iteration for e in self.waiting if e.kind is EventKind.RUN_START)
            return -1 if event.iteration == launch else event.iteration
        return event.iteration

    def settle(self, settled: list[Event]) -> None:
        """Forget events that were handed out; the layout follows them."""
        gone = set(map(id, settled))
        self.waiting = [event for event in self.waiting if id(event) not in gone]
        self.has_settled = True
        for event in settled:
            self.layout = self.layout_after(event, self.layout)

    def changes_layout(self, event: Event) -> bool:
        """Whether an event may say where ranks sit."""
        return event.kind in _LAYOUT_EVENTS

    def layout_after(self, event: Event, layout: Layout | None) -> Layout | None:
        """The layout that holds from ``event`` on; an impossible mesh is counted and changes nothing."""
        if not self.changes_layout(event):
            return layout
        try:
            return layout_from_event(event) or layout
        except LayoutError as error:
            self.admission.rejected[f"mesh: {error}"] = 1  # set, not added: a preview may come by again
            return layout

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        return {
            "waiting": [event.to_plain() for event in self.waiting],
            "settled": self.has_settled,
            "layout": None if self.layout is None else self.layout.to_plain(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        self.waiting = [Event.from_plain(plain) for plain in state["waiting"]]
        self.has_settled = state["settled"]
        self.layout = None if state["layout"] is None else Layout.from_plain(state["layout"])


def _fields_key(event: Event) -> str:
    return json.dumps(event.fields, sort_keys=True, default=str)
