"""Gathers the facts of an attempt (`AttemptFacts`) from its settled blocks.

Axes: T positions, R ranks.

A fold like the detectors: cut-invariant, and bounded by the number of ranks, metrics and events.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from firstfault.contracts import BUILT_IN, Contracts
from firstfault.mesh import Layout
from firstfault.telemetry import Event, EventKind
from ingest.blocks import IterationBlock

from .facts import AttemptFacts
from .medians import median
from .probe_losses import ProbeLosses
from .repeat_cadence import RepeatCadence
from .report_table import ReportTable
from .roles import Role
from .silence import present, silent

_MAX_EVENTS = 1000
"""Events kept of each sort: the newest decide (last good checkpoint, last rise of the rate)."""
_MAX_STEP_TIMES = 512
"""Step times that the median is taken over: the first ones after the start, which are settled soon."""

_CHANGES = frozenset(
    {
        EventKind.LR_CHANGE,
        EventKind.BATCH_SIZE,
        EventKind.DATA_CHANGE,
        EventKind.LOSS_SCALE,
        EventKind.MEMBERSHIP,
    }
)


class FactsFold:
    """What `AttemptFacts` is made of, folded block by block."""

    def __init__(self, attempt: int, lateness_iterations: int) -> None:
        self.attempt = attempt
        self.lateness_iterations = lateness_iterations
        self.first_iteration: int | None = None
        self.judged_to: int | None = None
        self.positions = 0
        self.reports = ReportTable()
        self.probe_losses = ProbeLosses()
        self.repeats = RepeatCadence()
        self.metrics: set[str] = set()
        self.layout: Layout | None = None
        self.contracts = BUILT_IN
        self.run_start: dict[str, Any] = {}
        self.world_size: int | None = None
        self.ended = False
        self.events: dict[str, list[Event]] = {"checkpoint": [], "resume": [], "hardware": [], "change": []}
        self.last_lr: float | None = None
        self.last_lr_iteration = -1
        self.lr_rises: list[tuple[int, int]] = []
        self.step_times: list[float] = []
        self.time_span: list[float] = []
        """[first time, its iteration, last time, its iteration]"""

    def update(self, block: IterationBlock) -> None:
        """Take the next settled positions."""
        for event in block.events:
            self._take_event(event)
        self.layout = block.layout or self.layout
        self.contracts = block.contracts
        if not len(block):
            return
        if self.first_iteration is None:
            self.first_iteration = int(block.iteration_T[0])
        self.judged_to = int(block.iteration_T[-1])
        self.positions += len(block)
        self.metrics.update(block.numbers, block.checksums)
        self.reports.update(block, self.lateness_iterations)
        self.probe_losses.update(block)
        self.repeats.update(block)
        self._follow_lr(block)
        self._follow_time(block)

    def facts(self, roles: Mapping[str, Role], labels: Mapping[int, Mapping[str, str]]) -> AttemptFacts:
        """The facts so far, with what the aligner and `Roles` know beside."""
        standing = self.reports.standing()
        reported_N = standing.reports_N > 0
        silent_N = reported_N & present(standing.ranks_N, self.layout)
        silent_N &= silent(standing, self.lateness_iterations)
        return AttemptFacts(
            attempt=self.attempt,
            first_iteration=self.first_iteration,
            judged_to=self.judged_to,
            positions=self.positions,
            ranks=tuple(standing.ranks_N[reported_N].tolist()),
            metrics=tuple(sorted(self.metrics)),
            layout=self.layout,
            contracts=self.contracts,
            run_start=dict(self.run_start),
            world_size=self.world_size,
            checkpoints=tuple(self.events["checkpoint"]),
            resumes=tuple(self.events["resume"]),
            hardware=tuple(self.events["hardware"]),
            changes=tuple(self.events["change"]),
            lr_rises=tuple(self.lr_rises),
            labels=labels,
            roles=dict(roles),
            iteration_time_s=self._iteration_time_s(),
            silent_ranks=tuple(standing.ranks_N[silent_N].tolist()),
            silent_since=tuple(standing.last_iteration_N[silent_N].tolist()),
            ended=self.ended,
            probe_losses=self.probe_losses.notes(),
            unrepeated_since=self.repeats.over_since(self.judged_to),
        )

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        return {
            "first_iteration": self.first_iteration,
            "judged_to": self.judged_to,
            "positions": self.positions,
            "reports": self.reports.snapshot(),
            "probe_losses": self.probe_losses.snapshot(),
            "repeats": self.repeats.snapshot(),
            "metrics": sorted(self.metrics),
            "layout": None if self.layout is None else self.layout.to_plain(),
            "contracts": self.contracts.to_plain(),
            "run_start": self.run_start,
            "world_size": self.world_size,
            "ended": self.ended,
            "events": {sort: [event.to_plain() for event in events] for sort, events in self.events.items()},
            "last_lr": [self.last_lr, self.last_lr_iteration],
            "lr_rises": [list(rise) for rise in self.lr_rises],
            "step_times": self.step_times,
            "time_span": self.time_span,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        self.first_iteration, self.judged_to = state["first_iteration"], state["judged_to"]
        self.positions = state["positions"]
        self.reports.restore(state["reports"])
        self.probe_losses.restore(state["probe_losses"])
        self.repeats.restore(state["repeats"])
        self.metrics = set(state["metrics"])
        self.layout = None if state["layout"] is None else Layout.from_plain(state["layout"])
        self.contracts = Contracts.from_plain(state["contracts"])
        self.run_start, self.ended = dict(state["run_start"]), state["ended"]
        self.world_size = state["world_size"]
        self.events = {
            sort: [Event.from_plain(e) for e in events] for sort, events in state["events"].items()
        }
        self.last_lr, self.last_lr_iteration = state["last_lr"]
        self.lr_rises = [(first, last) for first, last in state["lr_rises"]]
        self.step_times, self.time_span = list(state["step_times"]), list(state["time_span"])

    def _take_event(self, event: Event) -> None:
        size = event.fields.get("world_size")
        if isinstance(size, int) and not isinstance(size, bool):
            self.world_size = size
        if event.kind is EventKind.RUN_START:
            # Each rank may send its own: what a lower rank said first stands, the rest is added.
            self.run_start = {**event.fields, **self.run_start}
        elif event.kind is EventKind.RUN_END:
            self.ended = True
        elif event.kind in _CHANGES:
            self._keep("change", event)
        elif event.kind.value in self.events:
            self._keep(event.kind.value, event)

    def _keep(self, sort: str, event: Event) -> None:
        kept = self.events[sort]
        kept.append(event)
        del kept[:-_MAX_EVENTS]

    def _follow_lr(self, block: IterationBlock) -> None:
        """Stretches over which the learning rate grew: explosions shortly after one are its doing."""
        lr = block.numbers.get("lr")
        if lr is None:
            return
        some_T = lr.present_TR.any(axis=1)
        # The greatest reported value stands for all: ranks agree on the rate, or agreement.py says so.
        lr_T = np.where(lr.present_TR, lr.values_TR, -np.inf).max(axis=1)[some_T]
        before_T = np.append(np.nan if self.last_lr is None else self.last_lr, lr_T[:-1])
        iteration_T = block.iteration_T[some_T]
        for at in np.flatnonzero(lr_T > before_T).tolist():
            start = int(iteration_T[at])
            previous = int(iteration_T[at - 1]) if at else self.last_lr_iteration
            if self.lr_rises and self.lr_rises[-1][1] == previous:
                self.lr_rises[-1] = (self.lr_rises[-1][0], start)
            else:
                self.lr_rises.append((start, start))
                del self.lr_rises[:-_MAX_EVENTS]
        if len(lr_T):
            self.last_lr = float(lr_T[-1])
            self.last_lr_iteration = int(iteration_T[-1])

    def _follow_time(self, block: IterationBlock) -> None:
        step_time = block.numbers.get("step_time_s")
        room = _MAX_STEP_TIMES - len(self.step_times)
        if step_time is not None and room > 0:
            usable_TR = step_time.present_TR & np.isfinite(step_time.values_TR)
            # The slowest rank sets the pace of an iteration.
            slowest_T = np.where(usable_TR, step_time.values_TR, -np.inf).max(axis=1)
            self.step_times += slowest_T[usable_TR.any(axis=1)][:room].tolist()
        timed_T = np.flatnonzero(np.isfinite(block.time_T))
        if len(timed_T):
            first, last = int(timed_T[0]), int(timed_T[-1])
            if not self.time_span:
                self.time_span = [float(block.time_T[first]), int(block.iteration_T[first]), 0.0, 0]
            self.time_span[2:] = [float(block.time_T[last]), int(block.iteration_T[last])]

    def _iteration_time_s(self) -> float | None:
        if self.step_times:
            return median(np.array(self.step_times))
        if self.time_span and self.time_span[3] > self.time_span[1]:
            return max(0.0, (self.time_span[2] - self.time_span[0]) / (self.time_span[3] - self.time_span[1]))
        return None
