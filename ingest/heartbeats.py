"""How far each rank says it is: heartbeats of an attempt, kept as the furthest position of each rank.

A heartbeat says nothing about an iteration that settles; it says where a rank is *now*. So it does not
wait among the events (a rank may send thousands at one iteration) but is merged at once: the furthest
position, the first time at it and the newest time are the same in any order of arrival.

Axes: R ranks that sent one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from firstfault.telemetry import Event, Phase

from .admission import Admission
from .blocks import Heartbeats

UNKNOWN_PHASE = -1
"""A heartbeat that names no phase of an iteration: it tells the iteration alone."""
_PHASES = {phase.label: int(phase) for phase in Phase}


@dataclass(slots=True)
class _Place:
    """Where one rank is; times are NaN while no heartbeat had one."""

    iteration: int
    phase: int
    since: float
    newest: float


class HeartbeatBoard:
    """The last word of every rank; bounded by the number of ranks."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._places: dict[int, _Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def note(self, event: Event) -> None:
        """Take a heartbeat; one of a rank too many is counted and dropped."""
        time = math.nan if event.time is None else event.time
        named = event.fields.get("phase")
        phase = _PHASES.get(named, UNKNOWN_PHASE) if isinstance(named, str) else UNKNOWN_PHASE
        held = self._places.get(event.rank)
        if held is None:
            limit = self._admission.config.max_ranks
            if len(self._places) >= limit:
                self._admission.reject(f"rank: at most {limit} ranks a run")
            else:
                self._places[event.rank] = _Place(event.iteration, phase, time, time)
            return
        here = (event.iteration, phase)
        if here > (held.iteration, held.phase):
            held.iteration, held.phase, held.since = *here, time
        elif here == (held.iteration, held.phase):
            held.since = _least(held.since, time)
        held.newest = -_least(-held.newest, -time)

    def view(self) -> Heartbeats:
        """Where the ranks are, in rank order."""
        rows = sorted(self._places.items())
        return Heartbeats(
            ranks_R=np.array([rank for rank, _ in rows], np.int32),
            iteration_R=np.array([one.iteration for _, one in rows], np.int64),
            phase_R=np.array([one.phase for _, one in rows], np.int8),
            since_R=np.array([one.since for _, one in rows], np.float64),
            newest_R=np.array([one.newest for _, one in rows], np.float64),
        )

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        seen = self.view()
        return {
            "ranks": seen.ranks_R,
            "iteration": seen.iteration_R,
            "phase": seen.phase_R,
            "since": seen.since_R,
            "newest": seen.newest_R,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        columns: list[list[Any]] = [
            np.asarray(state[name]).tolist() for name in ("ranks", "iteration", "phase", "since", "newest")
        ]
        self._places = {rank: _Place(*rest) for rank, *rest in zip(*columns, strict=True)}


def _least(one: float, other: float) -> float:
    """The lesser of two times; NaN says nothing."""
    return other if math.isnan(one) else one if math.isnan(other) else min(one, other)
