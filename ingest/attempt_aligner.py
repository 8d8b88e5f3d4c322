"""From records in any order to settled iterations × ranks.

Axes: N records.

An iteration is *settled* when the furthest iteration of its attempt is more than
``lateness_iterations`` ahead, or when the input has ended. Both are facts of the records, never of a
clock, so any order of arrival within the bound, any duplication and any cutting into batches gives
the same blocks. A rank that lags further behind than the bound is not waited for: its records are
late, counted, and dropped. Whether a record is late depends on the records before it and not on how
they were batched.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from firstfault.mesh import Layout, LayoutError, layout_from_event
from firstfault.telemetry import Event, EventKind

from .blocks import Flags, Ints, IterationBlock, RecordBatch
from .window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentConfig:
    """How long to wait for whom, and what one run may take up."""

    lateness_iterations: int = 64
    """Iterations that a record may come late. Partitions of one topic drift apart by about one fetch
    (65 iterations were seen after a seek); more costs memory and waiting, less loses records."""
    max_ranks: int = 1 << 17
    """Distinct ranks of a run, 131072: above the largest jobs, and 65 pending iterations of five
    metrics of them still fit in half a gigabyte."""
    max_metrics: int = 512
    """Distinct metric names of an attempt; beyond, new names are rejected (a name with a number in
    it would otherwise make one for every iteration)."""
    max_attempts: int = 1024
    """Distinct attempts of a run."""
    max_iteration_jump: int = 10**9
    """Greatest step ahead of the furthest iteration. One corrupt counter would otherwise make every
    later record late. Token counters advance by millions a step, so the bound is far above those."""
    max_pending_events: int = 100_000
    """Events of an attempt waiting to settle."""

    def __post_init__(self) -> None:
        for name in ("lateness_iterations", "max_ranks", "max_metrics", "max_attempts", "max_iteration_jump"):
            if getattr(self, name) < 1:
                raise ValueError(f"alignment.{name} must be >= 1, got {getattr(self, name)}")


_SLICE_RECORDS = 1 << 16
"""Records scattered at once: numpy's fixed cost per call is then under a nanosecond a value."""
_SLICE_CELLS = 1 << 23
"""Positions × ranks that one slice may open, 8 M: random iterations × random ranks would make a
matrix of billions of cells out of a few thousand records."""


class AttemptAligner:
    """Aligns the records of one attempt of one run."""

    def __init__(self, run: str, attempt: int, config: AlignmentConfig) -> None:
        self.run = run
        self.attempt = attempt
        self.config = config
        self.window = Window()
        self.first: int | None = None
        self.furthest: int | None = None
        self.is_closed = False
        self.has_settled = False
        self.layout: Layout | None = None
        self.world_size: int | None = None
        self.events: list[Event] = []
        self.metrics: set[str] = set()
        self.rejected: Counter[str] = Counter()
        self.late = 0
        self.conflicts = 0
        self.labels: dict[int, dict[str, tuple[int, str]]] = {}

    def push(self, batch: RecordBatch, rows: Ints, events: list[tuple[int, Event]]) -> list[IterationBlock]:
        """Take the records ``rows`` of ``batch`` and the events among them; give what has settled.

        ``events`` pairs each event with the number of ``rows`` before it.
        """
        blocks: list[IterationBlock] = []
        begin = 0
        for before, event in [*events, (len(rows), None)]:
            for part in self._slices(batch, rows[begin:before]):
                blocks.extend(self._push_slice(batch, part))
            begin = before
            if event is not None:
                self._admit_event(event)
        return blocks

    def pending(self) -> list[IterationBlock]:
        """What would settle if the input ended now; nothing changes."""
        return list(self._blocks(self.window, len(self.window), self._ordered_events(), self.layout))

    def complete(self) -> list[IterationBlock]:
        """Of what is pending, the iterations that every rank with pending records has reached.

        A rank with none is more than the lateness bound behind and not waited for.
        """
        reached_R = self.window.last_rows()
        if not len(reached_R):
            return []
        frontier = int(self.window.live_iterations[reached_R.min()])
        rows = int(np.searchsorted(self.window.live_iterations, frontier, side="right"))
        ready = [e for e in self._ordered_events() if self._event_iteration(e) <= frontier]
        return list(self._blocks(self.window, rows, ready, self.layout))

    def close(self) -> list[IterationBlock]:
        """Settle everything: the input ended, or a later attempt is well under way."""
        blocks = self._settle(len(self.window), len(self.events))
        self.is_closed = True
        return blocks

    def _slices(self, batch: RecordBatch, rows: Ints) -> Iterator[Ints]:
        """Pieces of ``rows`` whose positions × ranks stay within bounds."""
        stack = [rows[at : at + _SLICE_RECORDS] for at in range(0, len(rows), _SLICE_RECORDS)][::-1]
        while stack:
            part = stack.pop()
            if len(part) > 1 and _opens_too_much(batch, part, len(self.window.ranks_R)):
                half = len(part) // 2
                stack += [part[half:], part[:half]]
            else:
                yield part

    def _push_slice(self, batch: RecordBatch, rows: Ints) -> list[IterationBlock]:
        rows = self._in_time(batch, rows)
        if not len(rows):
            return []
        window = self.window
        cells = window.place(batch.iteration_N[rows], batch.microbatch_N[rows], batch.rank_N[rows])
        whole = len(rows) == len(batch)  # then columns are used as they lie, without a copy
        for name, number in batch.numbers.items():
            present_N = number.present_N if whole else number.present_N[rows]
            if self._admits_metric(name, present_N):
                values_N = number.values_N if whole else number.values_N[rows]
                window.scatter(name, cells, (values_N,), present_N)
        for name, checksum in batch.checksums.items():
            present_N = checksum.present_N if whole else checksum.present_N[rows]
            if self._admits_metric(name, present_N):
                words = (checksum.high_N, checksum.low_N)
                window.scatter(name, cells, words if whole else (words[0][rows], words[1][rows]), present_N)
        window.note_time(cells, batch.time_N[rows])
        return self._settle_by_lateness()

    def _in_time(self, batch: RecordBatch, rows: Ints) -> Ints:
        """The rows that are neither late, nor an impossible jump, nor of one rank too many."""
        if self.is_closed:
            self.late += len(rows)
            return rows[:0]
        iteration_N = batch.iteration_N[rows]
        if self.first is None and len(rows):
            self.first = self.furthest = int(iteration_N[0])
        if not len(rows) or self.furthest is None:
            return rows
        if int(iteration_N.max()) - self.furthest > self.config.max_iteration_jump:
            rows = rows[self._without_jumps(iteration_N)]
            iteration_N = batch.iteration_N[rows]
        reached_N = np.maximum.accumulate(np.append(self.furthest, iteration_N))
        in_time_N = iteration_N >= reached_N[:-1] - self.config.lateness_iterations
        self.furthest = int(reached_N[-1])
        if not in_time_N.all():
            self.late += int(np.count_nonzero(~in_time_N))
            rows = rows[in_time_N]
        return self._within_ranks(batch, rows)

    def _without_jumps(self, iteration_N: Ints) -> Flags:
        reached = self.furthest or 0
        kept = []
        for iteration in iteration_N.tolist():
            kept.append(iteration - reached <= self.config.max_iteration_jump)
            if kept[-1]:
                reached = max(reached, iteration)
        self._reject(
            f"iteration: must be within {self.config.max_iteration_jump} of the last", kept.count(False)
        )
        return np.array(kept, np.bool_)

    def _within_ranks(self, batch: RecordBatch, rows: Ints) -> Ints:
        limit = self.config.max_ranks
        known = self.window.ranks_R
        if len(known) + len(rows) <= limit:
            return rows
        new = np.setdiff1d(batch.rank_N[rows], known)
        if len(known) + len(new) <= limit:
            return rows
        _, first_at = np.unique(batch.rank_N[rows], return_index=True)
        arrival = batch.rank_N[rows][np.sort(first_at)]
        admitted = arrival[~np.isin(arrival, known)][: max(0, limit - len(known))]
        kept_N = np.isin(batch.rank_N[rows], known) | np.isin(batch.rank_N[rows], admitted)
        self._reject(f"rank: at most {limit} ranks a run", int(np.count_nonzero(~kept_N)))
        return rows[kept_N]

    def _admits_metric(self, name: str, present_N: Flags) -> bool:
        if not present_N.any():
            return False
        if name not in self.metrics:
            if len(self.metrics) >= self.config.max_metrics:
                limit = f"metric: at most {self.config.max_metrics} names a run"
                self._reject(limit, int(np.count_nonzero(present_N)))
                return False
            self.metrics.add(name)
        return True

    def _admit_event(self, event: Event) -> None:
        describes_launch = event.kind is EventKind.RUN_START and not self.has_settled
        is_late = (
            self.furthest is not None and event.iteration < self.furthest - self.config.lateness_iterations
        )
        if self.is_closed or (is_late and not describes_launch):
            self.late += 1
        elif len(self.events) >= self.config.max_pending_events:
            self._reject(f"event: at most {self.config.max_pending_events} waiting", 1)
        else:
            self.events.append(event)

    def _settle_by_lateness(self) -> list[IterationBlock]:
        assert self.furthest is not None
        settled_before = self.furthest - self.config.lateness_iterations
        rows = int(np.searchsorted(self.window.live_iterations, settled_before))
        if not rows:
            return []
        count = sum(1 for event in self._ordered_events() if self._event_iteration(event) < settled_before)
        return self._settle(rows, count)

    def _settle(self, rows: int, events: int) -> list[IterationBlock]:
        if not rows and not events:
            return []
        ready = self._ordered_events()
        self.conflicts += self.window.conflicts(rows)
        blocks = list(self._blocks(self.window, rows, ready[:events], self.layout))
        self.events = ready[events:]
        self.window.drop(rows)
        self.has_settled = True
        for event in ready[:events]:
            self._follow_layout(event)
        return blocks

    def _ordered_events(self) -> list[Event]:
        """The waiting events, each once, in an order that does not depend on arrival."""
        keyed = {
            (self._event_iteration(event), event.kind.value, event.rank, _fields_key(event)): event
            for event in self.events
        }
        self.events = [keyed[key] for key in sorted(keyed)]
        return self.events

    def _event_iteration(self, event: Event) -> int:
        """Where an event counts from: the first run_start describes the launch, whatever it carries."""
        if event.kind is EventKind.RUN_START and not self.has_settled:
            launch = min(e.iteration for e in self.events if e.kind is EventKind.RUN_START)
            return -1 if event.iteration == launch else event.iteration
        return event.iteration

    def _follow_layout(self, event: Event) -> None:
        self.layout = self._layout_after(event, self.layout)
        size = event.fields.get("world_size")
        if event.kind in _LAYOUT_EVENTS and isinstance(size, int) and not isinstance(size, bool):
            self.world_size = size

    def _layout_after(self, event: Event, layout: Layout | None) -> Layout | None:
        if event.kind not in _LAYOUT_EVENTS:
            return layout
        try:
            return layout_from_event(event) or layout
        except LayoutError as error:
            self.rejected[f"mesh: {error}"] = 1  # set, not added: a preview of pending rows may come by again
            return layout

    def _blocks(
        self, window: Window, rows: int, events: list[Event], layout: Layout | None
    ) -> Iterator[IterationBlock]:
        """The first ``rows`` pending positions, cut where the layout changes."""
        numbers, checksums = window.take(rows)
        part = slice(window.start, window.start + rows)
        block = IterationBlock(
            run=self.run,
            attempt=self.attempt,
            iteration_T=window.iteration_P[part],
            microbatch_T=window.microbatch_P[part],
            ranks_R=window.ranks_R,
            numbers=numbers,
            checksums=checksums,
            time_T=window.time_P[part],
        )
        begin = taken = 0
        for at, event in enumerate(events):
            if event.kind not in _LAYOUT_EVENTS:
                continue
            cut = int(np.searchsorted(block.iteration_T, self._event_iteration(event)))
            if cut > begin:
                yield _part(block, begin, cut, events[taken:at], layout)
                begin, taken = cut, at
            layout = self._layout_after(event, layout)
        if begin < rows or taken < len(events):
            yield _part(block, begin, rows, events[taken:], layout)

    def _reject(self, rule: str, count: int) -> None:
        if count:
            self.rejected[rule] += count

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data; `events` and `layout` are rebuilt from the events' fields."""
        return {
            "window": self.window.snapshot(),
            "first": self.first,
            "furthest": self.furthest,
            "closed": self.is_closed,
            "settled": self.has_settled,
            "layout": None if self.layout is None else self.layout.to_plain(),
            "world_size": self.world_size,
            "events": [event.to_plain() for event in self.events],
            "metrics": sorted(self.metrics),
            "rejected": dict(self.rejected),
            "late": self.late,
            "conflicts": self.conflicts,
            "labels": [
                [rank, name, at, text]
                for rank, names in sorted(self.labels.items())
                for name, (at, text) in sorted(names.items())
            ],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        self.window.restore(state["window"])
        self.first, self.furthest = state["first"], state["furthest"]
        self.is_closed, self.has_settled = state["closed"], state["settled"]
        self.layout = None if state["layout"] is None else Layout.from_plain(state["layout"])
        self.world_size = state["world_size"]
        self.events = [Event.from_plain(plain) for plain in state["events"]]
        self.metrics = set(state["metrics"])
        self.rejected = Counter(state["rejected"])
        self.late, self.conflicts = state["late"], state["conflicts"]
        self.labels = {}
        for rank, name, at, text in state["labels"]:
            self.labels.setdefault(rank, {})[name] = (at, text)


_LAYOUT_EVENTS = frozenset({EventKind.RUN_START, EventKind.MEMBERSHIP})


def _fields_key(event: Event) -> str:
    return json.dumps(event.fields, sort_keys=True, default=str)


def _opens_too_much(batch: RecordBatch, rows: Ints, ranks: int) -> bool:
    if len(rows) * (ranks + len(rows)) <= _SLICE_CELLS:
        return False
    # Close upper bounds without a sort: the span of iterations, or one position a record.
    iteration_N, rank_N = batch.iteration_N[rows], batch.rank_N[rows]
    span = int(iteration_N.max()) - int(iteration_N.min()) + 1
    has_microbatches = int(batch.microbatch_N[rows].min()) != int(batch.microbatch_N[rows].max())
    positions = len(rows) if has_microbatches else min(len(rows), span)
    spread = min(len(rows), int(rank_N.max()) - int(rank_N.min()) + 1)
    return positions * (ranks + spread) > _SLICE_CELLS


def _part(
    block: IterationBlock, begin: int, stop: int, events: list[Event], layout: Layout | None
) -> IterationBlock:
    part = slice(begin, stop)
    whole = begin == 0 and stop == len(block)
    return IterationBlock(
        run=block.run,
        attempt=block.attempt,
        iteration_T=block.iteration_T[part],
        microbatch_T=block.microbatch_T[part],
        ranks_R=block.ranks_R,
        numbers=block.numbers if whole else {k: v.rows(part) for k, v in block.numbers.items()},
        checksums=block.checksums if whole else {k: v.rows(part) for k, v in block.checksums.items()},
        events=tuple(events),
        layout=layout,
        time_T=block.time_T[part],
    )
