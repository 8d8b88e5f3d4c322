"""Events of an attempt that wait to settle, and the layout and contracts they describe."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firstfault.contracts import BUILT_IN, ContractError, Contracts, declared_by
from firstfault.mesh import Layout, LayoutError, layout_from_event
from firstfault.telemetry import Event, EventKind

from .admission import Admission

_Key = tuple[int, str, int, str]

_TERMS_EVENTS = frozenset({EventKind.RUN_START, EventKind.MEMBERSHIP})


@dataclass(frozen=True, slots=True)
class Terms:
    """What events have fixed so far: where ranks sit, and what metrics mean."""

    layout: Layout | None = None
    contracts: Contracts = BUILT_IN


class EventQueue:
    """Holds events until their iteration settles, each once, in an order that arrival cannot change."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.waiting: dict[_Key, Event] = {}
        """By what makes an event the same as another, so that a repetition adds nothing."""
        self.has_settled = False
        self.terms = Terms()
        self._launch: int | None = None
        self._is_ordered = True

    def push(self, event: Event) -> None:
        """Take an event; one that came too late is counted and dropped."""
        # Before anything settled, the launch may still be described, whatever iteration it carries.
        describes_launch = event.kind is EventKind.RUN_START and not self.has_settled
        if event.iteration < self.admission.settled_before and not describes_launch:
            self.admission.late += 1
        elif len(self.waiting) >= self.admission.config.max_pending_events:
            self.admission.reject(f"event: at most {self.admission.config.max_pending_events} waiting")
        else:
            self._keep(event)

    def ordered(self) -> list[Event]:
        """The waiting events, each once, ascending by where they count from."""
        if not self._is_ordered:
            by_place = sorted(
                self.waiting.items(), key=lambda item: (self.counts_from(item[1]), *item[0][1:], item[0][0])
            )
            self.waiting, self._is_ordered = dict(by_place), True
        return list(self.waiting.values())

    def counts_from(self, event: Event) -> int:
        """Where an event counts from: the first run_start describes the launch, whatever it carries."""
        if event.kind is EventKind.RUN_START and not self.has_settled and event.iteration == self._launch:
            return -1
        return event.iteration

    def settle(self, settled: list[Event]) -> None:
        """Forget events that were handed out; the terms follow them."""
        for event in settled:
            self.waiting.pop(_key(event), None)
        self._is_ordered = self._is_ordered and self.has_settled  # a run_start counts otherwise from now on
        self.has_settled = True
        for event in settled:
            self.terms = self.terms_after(event, self.terms)

    def changes_terms(self, event: Event) -> bool:
        """Whether an event may say where ranks sit or what metrics mean."""
        return event.kind in _TERMS_EVENTS

    def terms_after(self, event: Event, terms: Terms) -> Terms:
        """The terms from ``event`` on; an impossible mesh or contract is counted and changes nothing."""
        if not self.changes_terms(event):
            return terms
        layout, declared = terms.layout, {}
        # Counts are set, not added: the same event comes by again in each preview.
        try:
            layout = layout_from_event(event) or layout
        except LayoutError as error:
            self.admission.rejected[f"mesh: {error}"] = 1
        for one in declared_by(event):
            if isinstance(one, ContractError):
                self.admission.rejected[f"contract: {one}"] = 1
            else:
                declared[one.name] = one
        return Terms(layout, terms.contracts.joined(declared))

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        return {
            "waiting": [event.to_plain() for event in self.waiting.values()],
            "settled": self.has_settled,
            "layout": None if self.terms.layout is None else self.terms.layout.to_plain(),
            "contracts": self.terms.contracts.to_plain(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        self.has_settled = state["settled"]
        for plain in state["waiting"]:
            self._keep(Event.from_plain(plain))
        layout = None if state["layout"] is None else Layout.from_plain(state["layout"])
        self.terms = Terms(layout, Contracts.from_plain(state["contracts"]))

    def _keep(self, event: Event) -> None:
        key = _key(event)
        held = self.waiting.get(key)
        if held is not None and _time(held) <= _time(event):
            return  # of repetitions the earliest stands, whichever came first
        self.waiting[key] = event
        self._is_ordered = False
        if event.kind is EventKind.RUN_START and not self.has_settled:
            self._launch = event.iteration if self._launch is None else min(self._launch, event.iteration)


def _key(event: Event) -> _Key:
    fields = json.dumps(event.fields, sort_keys=True, default=str)
    return (event.iteration, event.kind.value, event.rank, fields)


def _time(event: Event) -> float:
    return math.inf if event.time is None else event.time
