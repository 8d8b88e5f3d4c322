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

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from firstfault.telemetry import Event, EventKind

from .admission import Admission, AlignmentConfig
from .blocks import Ints, IterationBlock, RecordBatch
from .event_queue import EventQueue, Terms
from .heartbeats import HeartbeatBoard
from .window import Window

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
        self.window = Window()
        self.admission = Admission(config)
        self.events = EventQueue(self.admission)
        self.heartbeats = HeartbeatBoard(self.admission)
        self.is_closed = False
        self.conflicts = 0
        self.labels: dict[int, dict[str, tuple[int, str]]] = {}
        self.changes = 0
        """Raised whenever something may have changed; counted anew after a restart."""

    def push(self, batch: RecordBatch, rows: Ints, events: list[tuple[int, Event]]) -> list[IterationBlock]:
        """Take the records ``rows`` of ``batch`` and the events among them; give what has settled.

        ``events`` pairs each event with the number of ``rows`` before it.
        """
        self.changes += 1
        events = self._without_heartbeats(events)
        if self.is_closed:
            self.admission.late += len(rows) + len(events)
            return []
        blocks: list[IterationBlock] = []
        begin = 0
        for before, event in [*events, (len(rows), None)]:
            for part in self._slices(batch, rows[begin:before]):
                blocks.extend(self._push_slice(batch, part))
            begin = before
            if event is not None:
                self.events.push(event)
        return blocks

    def _without_heartbeats(self, events: list[tuple[int, Event]]) -> list[tuple[int, Event]]:
        """What waits to settle; heartbeats are taken at once."""
        others = []
        for before, event in events:
            if event.kind is EventKind.HEARTBEAT:
                self.heartbeats.note(event)
            else:
                others.append((before, event))
        return others

    def pending(self) -> list[IterationBlock]:
        """What would settle if the input ended now; nothing changes."""
        return self._with_heartbeats(list(self._blocks(len(self.window), self.events.ordered())))

    def complete(self) -> list[IterationBlock]:
        """Of what is pending, the iterations that every rank with pending records has reached.

        A rank with none is more than the lateness bound behind and not waited for.
        """
        frontier = self.frontier()
        if frontier is None:
            return self._with_heartbeats([])
        rows = int(np.searchsorted(self.window.live_iterations, frontier, side="right"))
        ready = [event for event in self.events.ordered() if self.events.counts_from(event) <= frontier]
        return self._with_heartbeats(list(self._blocks(rows, ready)))

    def frontier(self) -> int | None:
        """The last iteration that every rank with pending records has reached; None where nothing pends."""
        reached_R = self.window.last_rows()
        return int(self.window.live_iterations[reached_R.min()]) if len(reached_R) else None

    def close(self) -> list[IterationBlock]:
        """Settle everything: a later attempt is well under way."""
        blocks = self._settle(len(self.window), None)
        self.changes += 1
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
        rows = self.admission.rows_in_time(batch, rows, self.window.ranks_R)
        if not len(rows):
            return []
        window = self.window
        part = _as_slice(rows)
        cells = window.place(batch.iteration_N[part], batch.microbatch_N[part], batch.rank_N[part])
        for name, number in batch.numbers.items():
            present_N = number.present_N[part]
            if self.admission.admits_metric(name, present_N, len(window.ranks_R)):
                window.scatter(name, cells, (number.values_N[part],), present_N)
                if number.inferred_N is not None:
                    window.infer(name, cells, number.inferred_N[part] & present_N)
        for name, checksum in batch.checksums.items():
            present_N = checksum.present_N[part]
            if self.admission.admits_metric(name, present_N, len(window.ranks_R)):
                window.scatter(name, cells, (checksum.high_N[part], checksum.low_N[part]), present_N)
        window.note_time(cells, batch.time_N[part])
        return self._settle_by_lateness()

    def _settle_by_lateness(self) -> list[IterationBlock]:
        before = self.admission.settled_before
        rows = int(np.searchsorted(self.window.live_iterations, before))
        return self._settle(rows, before) if rows else []

    def _settle(self, rows: int, before: int | None) -> list[IterationBlock]:
        """Hand out the first ``rows`` positions and the events that count from below ``before``."""
        ready = [e for e in self.events.ordered() if before is None or self.events.counts_from(e) < before]
        blocks = list(self._blocks(rows, ready))
        self.conflicts += self.window.conflicts(rows)
        self.window.drop(rows)
        self.events.settle(ready)
        return blocks

    def _blocks(self, rows: int, events: list[Event]) -> Iterator[IterationBlock]:
        """The first ``rows`` pending positions, cut where the layout or a contract changes."""
        window, terms = self.window, self.events.terms
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
            if not self.events.changes_terms(event):
                continue
            cut = int(np.searchsorted(block.iteration_T, self.events.counts_from(event)))
            if cut > begin:
                yield _part(block, begin, cut, events[taken:at], terms)
                begin, taken = cut, at
            terms = self.events.terms_after(event, terms)
        if begin < rows or taken < len(events):
            yield _part(block, begin, rows, events[taken:], terms)

    def _with_heartbeats(self, blocks: list[IterationBlock]) -> list[IterationBlock]:
        """``blocks``, the last of which tells where the ranks are; an empty one where there is none."""
        if not len(self.heartbeats):
            return blocks
        if not blocks:
            blocks = [self._blank()]
        return [*blocks[:-1], replace(blocks[-1], heartbeats=self.heartbeats.view())]

    def _blank(self) -> IterationBlock:
        return IterationBlock(
            run=self.run,
            attempt=self.attempt,
            iteration_T=np.empty(0, np.int64),
            microbatch_T=np.empty(0, np.int32),
            ranks_R=self.window.ranks_R,
            layout=self.events.terms.layout,
            contracts=self.events.terms.contracts,
        )

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        return {
            "window": self.window.snapshot(),
            "admission": self.admission.snapshot(),
            "events": self.events.snapshot(),
            "heartbeats": self.heartbeats.snapshot(),
            "closed": self.is_closed,
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
        self.admission.restore(state["admission"])
        self.events.restore(state["events"])
        self.heartbeats.restore(state["heartbeats"])
        self.is_closed, self.conflicts = state["closed"], state["conflicts"]
        self.labels = {}
        for rank, name, at, text in state["labels"]:
            self.labels.setdefault(rank, {})[name] = (at, text)


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


def _part(block: IterationBlock, begin: int, stop: int, events: list[Event], terms: Terms) -> IterationBlock:
    """Positions of ``block`` under ``terms``, with the metrics that were reported at them.

    A metric without a value there is left out, as it is where that part settles by itself: else a detector
    would hear of it in one order of arrival and not in another.
    """
    part = slice(begin, stop)
    numbers, checksums = block.numbers, block.checksums
    if begin > 0 or stop < len(block):
        numbers = {name: one.rows(part) for name, one in numbers.items() if one.present_TR[part].any()}
        checksums = {name: one.rows(part) for name, one in checksums.items() if one.present_TR[part].any()}
    return IterationBlock(
        run=block.run,
        attempt=block.attempt,
        iteration_T=block.iteration_T[part],
        microbatch_T=block.microbatch_T[part],
        ranks_R=block.ranks_R,
        numbers=numbers,
        checksums=checksums,
        events=tuple(events),
        layout=terms.layout,
        contracts=terms.contracts,
        time_T=block.time_T[part],
    )


def _as_slice(rows: Ints) -> Ints | slice:
    """Ascending rows as a slice where they follow each other: then columns are used as they lie."""
    first, stop = int(rows[0]), int(rows[-1]) + 1
    return slice(first, stop) if stop - first == len(rows) else rows
