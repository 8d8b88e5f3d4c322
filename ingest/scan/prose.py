"""What sentences tell, put at its iteration and between the records of the log.

Axes: N lines that give values or a counter, in the order of the log; R records of the batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from firstfault.telemetry import MAX_ITERATION, UNNAMED_RANK, Checksum, Event, EventKind, Phase, Record
from ingest.blocks import Ints, RecordBatch
from ingest.columns import BatchBuilder
from ingest.joining import concatenate
from ingest.row_order import take_rows

from .sentences import Finding, Place
from .told import Told

MAX_REMEMBERED = 4096
"""Events that are remembered to tell each once: the ranks of a large job print the same one in a row."""
CHECKED = "/checked"
"""Ends the name of a count that a check of the trainer stopped at: until then it had passed."""
_OF_A_RANK = (EventKind.HARDWARE, EventKind.HEARTBEAT)
"""Events about what printed them; any other is about the run, whoever printed it."""


@dataclass(slots=True)
class Counts:
    """The iteration at each of N lines, and who printed it."""

    line_N: Ints
    iteration_N: Ints
    printer_N: Ints
    _of_printer: dict[int, Ints] = field(default_factory=dict)
    """The rows of each printer that was asked for: a piece may hold a sentence on every line."""

    def last(self, line: int, printer: int | None) -> int | None:
        """The iteration up to ``line``, of one printer or of anyone; None without any."""
        if printer is None:
            at = int(np.searchsorted(self.line_N, line, side="right"))
            return int(self.iteration_N[at - 1]) if at else None
        rows = self._of_printer.get(printer)
        if rows is None:
            rows = self._of_printer[printer] = np.flatnonzero(self.printer_N == printer)
        at = bisect_right(rows, line, key=self._line_of)
        return int(self.iteration_N[rows[at - 1]]) if at else None

    def _line_of(self, row: int) -> int:
        return int(self.line_N[row])


class Prose:
    """Places what sentences tell, piece by piece of one log."""

    def __init__(self, run: str, rank: int = UNNAMED_RANK) -> None:
        self._run = run
        self._rank = rank
        self._last: dict[int, int] = {}
        self._anyone: int | None = None
        self._heading = UNNAMED_RANK
        self._numbered = 0
        self._said: dict[tuple[object, ...], None] = {}
        self.told: Tally[str] = Tally()
        """How often each sentence was read."""
        self.numbers_sentences = False
        """Whether nothing counts in the log, so that its sentences were counted."""

    def merged(
        self, batch: RecordBatch, line_R: Ints, counts: Counts, told: Sequence[Told]
    ) -> tuple[RecordBatch, dict[str, None]]:
        """The batch, whose records stand on the lines ``line_R``, with what was told, and its metrics."""
        found: list[tuple[int, Record | Event]] = []
        metrics: dict[str, None] = {}
        for each in told:
            self.told[each.finding.sentence] += len(each.line_S)
        places = ((line, each) for each in told for line in _telling_lines(each, counts).tolist())
        for line, each in sorted(places, key=lambda place: place[0]):
            for what in self._placed(each, line, counts):
                found.append((line, what))
                metrics.update(dict.fromkeys(what.metrics if isinstance(what, Record) else ()))
        self._remember(counts)
        return (_merged(batch, line_R, found) if found else batch), metrics

    def _remember(self, counts: Counts) -> None:
        if not len(counts.line_N):
            return
        self._anyone = int(counts.iteration_N[-1])
        printers, last_N = np.unique(counts.printer_N[::-1], return_index=True)
        for printer, at in zip(printers.tolist(), last_N.tolist(), strict=True):
            self._last[printer] = int(counts.iteration_N[len(counts.line_N) - 1 - at])

    def _placed(self, told: Told, line: int, counts: Counts) -> list[Record | Event]:
        finding = told.finding
        if finding.is_heading:
            self._heading = UNNAMED_RANK if finding.rank is None else finding.rank
            return []
        if finding.needs_heading:
            if self._heading == UNNAMED_RANK:
                return []
            finding = replace(finding, rank=self._heading)
        if finding.event is None and not finding.metrics:
            return []
        rank = told.printer if finding.rank is None else finding.rank
        last = self._last_of(told.printer, line, counts)
        iteration = self._iteration(finding, last, counts.last(line, rank), rank)
        placed: list[Record | Event] = []
        if finding.event is not None:
            placed += self._event(finding, iteration, rank)
        if finding.metrics:
            placed += self._records(finding, iteration, rank, last)
        return placed

    def _records(self, finding: Finding, iteration: int, rank: int, last: int | None) -> list[Record]:
        """The record; and where a check stopped the training, that it had passed one iteration before."""
        names_host = finding.host is not None and finding.rank is not None
        told = Record(
            run=self._run,
            rank=rank,
            iteration=iteration,
            time=finding.time,
            metrics=finding.metrics,
            labels={"host": str(finding.host)} if names_host else {},
        )
        checked = [name for name in finding.metrics if name.endswith(CHECKED)]
        if not checked or last is None or last >= iteration:
            return [told]
        return [replace(told, iteration=last, time=None, metrics=dict.fromkeys(checked, 0.0)), told]

    def _iteration(self, finding: Finding, last: int | None, own: int | None, rank: int) -> int:
        """``last`` is the iteration printed last, ``own`` that of the rank in this piece."""
        if finding.iteration is not None:
            own = self._last.get(rank) if own is None else own
            if finding.event is not None or own is None:
                return finding.iteration
            # A record in the past of what this rank has printed would look like a restart.
            return max(finding.iteration, own)
        if last is not None:
            return min(last + (finding.place is Place.NEXT), MAX_ITERATION)
        if finding.hint is not None:
            return finding.hint
        if not finding.metrics or any(isinstance(value, Checksum) for value in finding.metrics.values()):
            return 0
        self.numbers_sentences = True
        self._numbered += 1
        return self._numbered - 1

    def _last_of(self, printer: int, line: int, counts: Counts) -> int | None:
        """The iteration printed last: by the same printer, else by anyone."""
        for known in (counts.last(line, printer), self._last.get(printer), counts.last(line, None)):
            if known is not None:
                return known
        return self._anyone

    def _event(self, finding: Finding, iteration: int, rank: int) -> list[Event]:
        """The event, unless it was told: what every rank prints of the run happened once."""
        assert finding.event is not None
        is_of_rank = finding.event in _OF_A_RANK
        rank = rank if is_of_rank or finding.rank is not None else self._rank
        fields = dict(finding.fields)
        key = (finding.event, rank, iteration, str(sorted(fields.items())))
        if key in self._said:
            return []
        self._said[key] = None
        if len(self._said) > MAX_REMEMBERED:
            del self._said[next(iter(self._said))]
        event = Event(
            kind=finding.event,
            run=self._run,
            rank=rank,
            iteration=iteration,
            time=finding.time,
            fields=fields,
        )
        return [event] if finding.event is not EventKind.HEARTBEAT else _beats(event)


def _telling_lines(told: Told, counts: Counts) -> Ints:
    """The lines that tell it anew: an event that is told twice at one place of the log is told once."""
    finding, line_S = told.finding, told.line_S
    is_event_alone = finding.event is not None and not finding.metrics
    if len(line_S) == 1 or not is_event_alone or finding.needs_heading or finding.is_heading:
        return line_S
    at_S = np.searchsorted(counts.line_N, line_S, side="right")
    first_S: Ints = np.flatnonzero(np.append(True, at_S[1:] != at_S[:-1]))
    return np.asarray(line_S[first_S])


def _beats(event: Event) -> list[Event]:
    """What a line on a collective says: who waited in it, and who did not come to it."""
    fields = {name: value for name, value in event.fields.items() if name not in ("waiter", "waited_ms")}
    if isinstance(waiter := event.fields.get("waiter"), float):
        waited = {**event.fields, "phase": Phase.REDUCE_IN.label}
        return [replace(event, fields=fields), *_waited(replace(event, rank=int(waiter), fields=waited))]
    return _waited(event) if "waited_ms" in event.fields else [event]


def _waited(event: Event) -> list[Event]:
    """A wait in a collective as heartbeats at its beginning and its end, on a clock of its own if need be."""
    waited_s = event.fields.get("waited_ms", 0.0)
    waited_s = waited_s / 1000 if isinstance(waited_s, float) else 0.0
    end = waited_s if event.time is None else event.time
    return [replace(event, time=max(0.0, end - waited_s)), replace(event, time=end)]


def _merged(batch: RecordBatch, line_R: Ints, found: Sequence[tuple[int, Record | Event]]) -> RecordBatch:
    """Records and events between those of the batch, in the order of their lines."""
    builder = BatchBuilder()
    lines: list[int] = []
    for line, what in found:
        if isinstance(what, Record):
            builder.add(what)
            lines.append(line)
    rows = concatenate([replace(batch, events=()), builder.build()]) if lines else replace(batch, events=())
    line_N = np.concatenate([line_R, np.array(lines, np.int64)])
    order_N = np.argsort(line_N, kind="stable")
    rows = take_rows(rows, order_N) if lines else rows
    sorted_N = line_N[order_N]
    ends = int(sorted_N[-1]) + 1 if len(sorted_N) else 0
    before = [(int(line_R[at]) if at < len(line_R) else ends, event) for at, event in batch.events]
    before += [(line, what) for line, what in found if isinstance(what, Event)]
    before.sort(key=lambda each: each[0])
    events = tuple((int(np.searchsorted(sorted_N, line)), event) for line, event in before)
    return replace(rows, events=events)
