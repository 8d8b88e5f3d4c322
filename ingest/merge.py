"""Several streams of one job become one, in the order of attempts and iterations.

A *cursor* is one file (or one sorted part of a file). Its *frontier* is the furthest position it has
reached, per run. A record is handed on once no open cursor stands before it; so memory is that of a
few batches a cursor, and what is out of order inside a cursor by less than a batch is sorted too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from firstfault.telemetry import Event

from .blocks import Flags, RecordBatch, Rejected
from .columns import select_rows
from .joining import concatenate
from .row_order import Position, in_order, position_of

_START: Position = (-1, -1)
_END: Position = (2**62, 2**62)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeConfig:
    """What merging may hold."""

    max_waiting_cells: int = 1 << 25
    """Values of records that wait for slower cursors: 300 MB. Beyond it they go on unmerged: a run that
    is in one of the files only, or files that drift apart by millions of rows."""


def merge(
    cursors: Sequence[Iterator[RecordBatch]], config: MergeConfig | None = None
) -> Iterator[RecordBatch]:
    """The records of all cursors in order. One cursor alone passes through untouched.

    What a cursor raises is raised once the batches before it are handed on.
    """
    if len(cursors) == 1:
        yield from cursors[0]
        return
    limits = config or MergeConfig()
    ordinals: dict[str, int] = {}
    streams = [_Cursor(batches, ordinals) for batches in cursors]
    while any(stream.is_open for stream in streams):
        rejected = [why for stream in _behind(streams) for why in stream.advance()]
        if sum(stream.waiting_cells for stream in streams) > limits.max_waiting_cells:
            limit_of = dict.fromkeys(_runs(streams), _END)
        else:
            limit_of = {run: _limit(streams, run) for run in _runs(streams)}
        parts = [part for stream in streams if (part := stream.release(limit_of)) is not None]
        if rejected:
            parts.append(replace(concatenate([]), rejected=tuple(rejected)))
        if parts:
            yield in_order(concatenate(parts))


@dataclass(slots=True)
class _Cursor:
    """One stream, what it waits with, and how far it has come."""

    batches: Iterator[RecordBatch]
    ordinals: dict[str, int]
    """Runs by first appearance in any cursor: a cursor in an earlier run is behind one in a later."""
    is_open: bool = True
    waiting: RecordBatch | None = None
    events: list[Event] = field(default_factory=list)
    frontier: dict[str, Position] = field(default_factory=dict)
    newest: tuple[str, ...] = ()

    @property
    def waiting_cells(self) -> int:
        if self.waiting is None:
            return 0
        return len(self.waiting) * (6 + len(self.waiting.numbers) + len(self.waiting.checksums))

    @property
    def reached(self) -> tuple[int, Position]:
        """How far it is: the run it reads now, and its frontier there."""
        if not self.newest:
            return -1, _START
        run = max(self.newest, key=lambda name: self.ordinals[name])
        return self.ordinals[run], self.frontier[run]

    def limit(self, run: str) -> Position:
        """Up to where nothing more of ``run`` is expected: a run that its last batch left is over."""
        if run in self.frontier and run not in self.newest:
            return _END
        return self.frontier.get(run, _START)

    def advance(self) -> Sequence[Rejected]:
        """Read one batch; gives what was rejected in it."""
        batch = next(self.batches, None)
        if batch is None:
            self.is_open = False
            return ()
        self.events += [event for _, event in batch.events]
        rejected = batch.rejected
        batch = replace(batch, events=(), rejected=())
        if len(batch):
            self._note(batch)
            self.waiting = batch if self.waiting is None else concatenate([self.waiting, batch])
        return rejected

    def _note(self, batch: RecordBatch) -> None:
        codes = np.unique(batch.run_N).tolist()
        self.newest = tuple(batch.runs[code] for code in codes)
        for run in self.newest:
            self.ordinals.setdefault(run, len(self.ordinals))
        for code in codes:
            mine_N = batch.run_N == code
            attempt = int(batch.attempt_N[mine_N].max())
            iteration = int(batch.iteration_N[mine_N & (batch.attempt_N == attempt)].max())
            run = batch.runs[code]
            self.frontier[run] = max(self.frontier.get(run, _START), (attempt, iteration))

    def release(self, limit_of: dict[str, Position]) -> RecordBatch | None:
        """The waiting records and events up to the limits of their runs."""
        events = [event for event in self.events if position_of(event) <= limit_of.get(event.run, _END)]
        self.events = [event for event in self.events if position_of(event) > limit_of.get(event.run, _END)]
        released: RecordBatch | None = None
        if self.waiting is not None:
            go_N = _upto(self.waiting, limit_of)
            if go_N.all():
                released, self.waiting = self.waiting, None
            elif go_N.any():
                released, self.waiting = select_rows(self.waiting, go_N), select_rows(self.waiting, ~go_N)
        if not events:
            return released
        return replace(released or concatenate([]), events=tuple((0, event) for event in events))


def _behind(streams: Sequence[_Cursor]) -> list[_Cursor]:
    """The cursors to read from: all that are not ahead, so that one round moves all of them."""
    reading = [stream for stream in streams if stream.is_open]
    lowest = min(stream.reached for stream in reading)
    furthest = max(stream.reached for stream in reading)
    return [stream for stream in reading if stream.reached < furthest or stream.reached == lowest]


def _runs(streams: Sequence[_Cursor]) -> set[str]:
    runs = {run for stream in streams if stream.waiting is not None for run in stream.waiting.runs}
    return runs | {event.run for stream in streams for event in stream.events}


def _limit(streams: Sequence[_Cursor], run: str) -> Position:
    return min((stream.limit(run) for stream in streams if stream.is_open), default=_END)


def _upto(batch: RecordBatch, limit_of: dict[str, Position]) -> Flags:
    limits = [limit_of.get(run, _END) for run in batch.runs]
    if len(set(limits)) == 1:
        attempt, iteration = limits[0]
        go_N: Flags = batch.attempt_N < attempt
        go_N |= (batch.attempt_N == attempt) & (batch.iteration_N <= iteration)
        return go_N
    attempt_N = np.array([attempt for attempt, _ in limits], np.int64)[batch.run_N]
    iteration_N = np.array([iteration for _, iteration in limits], np.int64)[batch.run_N]
    earlier_N: Flags = (batch.attempt_N < attempt_N) | (
        (batch.attempt_N == attempt_N) & (batch.iteration_N <= iteration_N)
    )
    return earlier_N
