"""Events of an attempt that wait to settle, and the layout and contracts they describe."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firstfault.contracts import BUILT_IN, MAX_DECLARED, ContractError, Contracts, declared_by
from firstfault.mesh import Layout, LayoutError, layout_from_event
from firstfault.telemetry import Event, EventKind, MetricContract

from .admission import Admission

_Key = tuple[int, str, int, str]

_TERMS_EVENTS = frozenset({EventKind.RUN_START, EventKind.MEMBERSHIP})
_TERMS_FIELDS = ("mesh", "world_size", "sharding", "device_models", "software", "hosts", "metrics")
"""All that terms are read from."""
_FAULTS = ("mesh: ", "contract: ")
MAX_FAULTS = 64
"""Different impossible meshes and contracts that are named; a value is part of each, so they could go on."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What events have fixed so far: where ranks sit, and what metrics mean."""

    layout: Layout | None = None
    contracts: Contracts = BUILT_IN


@dataclass(frozen=True, slots=True)
class _Said:
    """What one event says of the terms, and which of it cannot be."""

    digest: bytes
    """Of the fields it was read from, to know another event that says the same."""
    layout: Layout | None
    declared: Mapping[str, MetricContract]
    faults: tuple[str, ...]


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
        self._digests: dict[int, bytes] = {}
        """Of what a waiting event says of the terms, by its identity, which stands until it settles."""
        self._last_said: _Said | None = None
        """Only one: thirty bytes can describe a mesh of a million ranks."""

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
            self.terms = self.terms_after(event, self.terms)
            self.waiting.pop(_key(event), None)
            self._digests.pop(id(event), None)
        self._is_ordered = self._is_ordered and self.has_settled  # a run_start counts otherwise from now on
        self.has_settled = True

    def changes_terms(self, event: Event) -> bool:
        """Whether an event may say where ranks sit or what metrics mean."""
        return event.kind in _TERMS_EVENTS

    def terms_after(self, event: Event, terms: Terms) -> Terms:
        """The terms from ``event`` on; an impossible mesh or contract is counted and changes nothing."""
        if not self.changes_terms(event):
            return terms
        said = self._read(event)
        declared = {**terms.contracts.declared, **said.declared}
        is_too_much = len(declared) > MAX_DECLARED
        faults = said.faults + ((f"contract: at most {MAX_DECLARED} metrics a run",) if is_too_much else ())
        for fault in faults:
            self._refuse(fault)
        more = {} if is_too_much else said.declared
        return Terms(said.layout or terms.layout, terms.contracts.joined(more))

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

    def _read(self, event: Event) -> _Said:
        """What ``event`` says; the ranks of a launch all tell the same, which is read once."""
        digest = self._digests[id(event)]
        if self._last_said is None or self._last_said.digest != digest:
            self._last_said = _said(event, digest)
        return self._last_said

    def _refuse(self, fault: str) -> None:
        """Count a fault once: the same event comes by again in each preview.

        Of too many the first by name are kept, which are the same in any order of arrival.
        """
        rejected = self.admission.rejected
        rejected[fault] = 1
        for further in sorted(key for key in rejected if key.startswith(_FAULTS))[MAX_FAULTS:]:
            del rejected[further]
            rejected[f"run_start: more than {MAX_FAULTS} different faults"] = 1

    def _keep(self, event: Event) -> None:
        key = _key(event)
        held = self.waiting.get(key)
        if held is not None and _time(held) <= _time(event):
            return  # of repetitions the earliest stands, whichever came first
        self._digests.pop(id(held), None)
        self.waiting[key] = event
        if self.changes_terms(event):
            self._digests[id(event)] = _digest(event)
        self._is_ordered = False
        if event.kind is EventKind.RUN_START and not self.has_settled:
            self._launch = event.iteration if self._launch is None else min(self._launch, event.iteration)


def _digest(event: Event) -> bytes:
    said = [event.kind.value, *map(event.fields.get, _TERMS_FIELDS)]
    return hashlib.blake2b(json.dumps(said, sort_keys=True, default=str).encode(), digest_size=16).digest()


def _said(event: Event, digest: bytes) -> _Said:
    layout: Layout | None = None
    declared: dict[str, MetricContract] = {}
    faults: list[str] = []
    try:
        layout = layout_from_event(event)
    except LayoutError as error:
        faults.append(f"mesh: {error}")
    for one in declared_by(event):
        if isinstance(one, ContractError):
            faults.append(f"contract: {one}")
        else:
            declared[one.name] = one
    return _Said(digest, layout, declared, tuple(faults))


def _key(event: Event) -> _Key:
    fields = json.dumps(event.fields, sort_keys=True, default=str)
    return (event.iteration, event.kind.value, event.rank, fields)


def _time(event: Event) -> float:
    return math.inf if event.time is None else event.time
