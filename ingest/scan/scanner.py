"""A text log of any kind, read line by line: what `ingest.line_formats` opens as its last resort."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from firstfault.telemetry import MAX_RANK, UNNAMED_RANK
from firstfault.wire import Defaults
from ingest.blocks import RecordBatch
from ingest.errors import UnreadableInput
from ingest.joining import concatenate
from ingest.log_reader import Understood

from .assemble import MAX_METRICS, Part, batch_of, columns_of, gather
from .chains import Chain
from .clean import Cleaner
from .clock import Clock
from .counting import Style
from .knowledge import Knowledge
from .layouts import Layout
from .losses import LOSS, LossChoice
from .pieces import Piece, ShapeLines, group_lines
from .plans import Kind, Plan
from .prefixes import read_prefix
from .prose import Counts
from .shapes import ShapeBook, row_behind
from .sieve import Sieve
from .tables import Laid, TableReader
from .times import times_of
from .unwrap import unwrap


class TextScanner:
    """Reads the lines of one text log in order."""

    is_wire = False
    says_attempt = False

    def __init__(
        self,
        defaults: Defaults,
        source: str,
        wanted: Mapping[str, str] | None = None,
        *,
        wants_times: bool = False,
    ) -> None:
        self._wants_times = wants_times
        self._run = defaults.run or source
        self._rank = UNNAMED_RANK if defaults.rank is None else defaults.rank
        self._source = source
        self._cleaner = Cleaner()
        self._book = ShapeBook()
        self._sieve = Sieve()
        self._tables = TableReader()
        self._clock = Clock()
        self._knowledge = Knowledge(self._run, self._rank)
        self._loss = LossChoice((wanted or {}).get("loss"))
        self._chain = Chain()
        self._wrapped = b""
        self._lines = 0
        self._used = 0
        self._counters: Tally[str] = Tally()
        self._columns: dict[str, str] = {}
        self._guess = ""

    def decode(self, data: bytes) -> RecordBatch:
        """The records of the next whole lines."""
        return self._scan(self._cleaner.clean(data))

    def _piece(self, data: bytes, *, is_last: bool) -> tuple[Piece, list[ShapeLines]]:
        """The next lines by shape, wrapped records in one line each."""
        piece = Piece(self._wrapped + data)
        groups = piece.by_shape(self._sieve)
        self._wrapped = b""
        wrapped = [group.line_S for group in groups if self._knowledge.of(group).is_wrapped]
        if not wrapped:
            return piece, groups
        lines = [piece[at] for at in range(len(piece))]
        text, self._wrapped = unwrap(lines, np.sort(np.concatenate(wrapped)).tolist(), is_last=is_last)
        piece = Piece(text)
        return piece, piece.by_shape(self._sieve)

    def finish(self) -> RecordBatch | None:
        """The records of what was held back.

        Raises:
            UnreadableInput: no line of the log was recognised.
        """
        rest = self._scan(self._cleaner.finish(), is_last=True)
        last = self._join(self._from_tables(self._tables.finish()), Piece(b""))
        rest = concatenate([batch for batch in (rest, last) if len(batch)])
        if not self._columns and not self._knowledge.has_heard:
            raise UnreadableInput(f"{self._source}: {self._reason()}")
        return rest

    def _reason(self) -> str:
        """Why nothing was recognised, and what came nearest."""
        reason = f"must hold records of a training loop, but none of its {self._lines} lines is one"
        return f"{reason}; the nearest is {self._guess!r}" if self._guess else reason

    def anew(self) -> Callable[[bytes], RecordBatch] | None:
        """None: lines depend on those before them."""
        return None

    def understood(self) -> Understood:
        """What was understood so far."""
        otherwise = "iteration" if self._knowledge.names_iterations else "record number"
        counter = self._counters.most_common(1)[0][0] if self._counters else otherwise
        return Understood(
            format=self._knowledge.format,
            counter=counter,
            columns=tuple(({name: name for name in self._knowledge.metrics} | self._columns).items()),
            lines=self._lines,
            used_lines=self._used + self._knowledge.lines,
            remarks=self._knowledge.remarks,
            guess=self._guess if not self._columns else "",
            doubt=self._knowledge.doubt,
        )

    def _scan(self, data: bytes, *, is_last: bool = False) -> RecordBatch:
        lines, groups = self._piece(data, is_last=is_last)
        self._lines += sum(len(group.line_S) for group in groups)
        parts: list[Part] = []
        laid: list[Laid] = []
        first_other = first_loss = len(lines)
        for group in groups:
            known = self._knowledge.of(group)
            self._knowledge.listen(known, group, lines)
            if known.takes_lines:
                if known.stands_beside_records:
                    continue
                first_other = min(first_other, int(group.line_S[0]))
                continue
            plan = self._book.plan_of(group.shape, group.example)
            if plan.layout is not Layout.NONE:
                laid += [Laid(at, plan.layout, _row(lines[at], plan)) for at in group.line_S.tolist()]
                continue
            if not group.example.startswith(b"#") and plan.kind is not Kind.COUNTER:
                first_other = min(first_other, int(group.line_S[0]))
            if any(value.loss_order is not None for value in plan.values):
                first_loss = min(first_loss, int(group.line_S[0]))
            parts += self._part(plan, group)
        laid.sort(key=lambda line: line.number)
        parts += self._from_tables(self._tables.read(laid, len(lines), first_other, first_loss))
        return self._join(parts, lines)

    def _join(self, parts: list[Part], lines: Piece) -> RecordBatch:
        parts = self._chain.attached(parts)
        self._chain.advance(len(lines))
        return self._records(parts, lines)

    def _part(self, plan: Plan, group: ShapeLines) -> list[Part]:
        if plan.kind is Kind.NOISE:
            if plan.looks_like_record and not self._guess:
                self._guess = _text(group.example[:120])
            return []
        printer_S = np.full(len(group.line_S), self._rank if plan.rank < 0 else plan.rank, np.int64)
        if plan.rank_slot >= 0:
            named_S = np.nan_to_num(group.values_SK[:, plan.rank_slot], nan=-1)
            printer_S = np.clip(named_S, UNNAMED_RANK, MAX_RANK).astype(np.int64)
        return [Part(plan, group.line_S, group.values_SK, printer_S)]

    def _from_tables(self, records: list[tuple[int, str]]) -> list[Part]:
        """Records of boxes and tables, in the place of the line that completed each."""
        lines = [text.encode() for _, text in records]
        number_N = np.array([number for number, _ in records], np.int64)
        parts: list[Part] = []
        for group in group_lines(lines):
            placed = replace(group, line_S=number_N[group.line_S])
            parts += self._part(self._book.record_plan(group.shape, group.example), placed)
        return parts

    def _records(self, parts: list[Part], lines: Piece) -> RecordBatch:
        found = gather(parts)
        changes = self._loss.choose(
            (int(part.line_S[0]), value.loss_order, value.key)
            for part in parts
            for value in part.plan.values
            if value.loss_order is not None and part.plan.kind is not Kind.COUNTER
        )
        iteration_N = self._clock.iterations(found.counted)
        keep_N = found.counted.is_record_N
        numbers = columns_of(found, changes, keep_N)
        self._note(parts)
        batch = batch_of(self._run, iteration_N[keep_N], found.counted.printer_N[keep_N], numbers)
        if self._wants_times:
            batch = replace(batch, time_N=times_of(lines, found.line_N[keep_N]))
        counts = Counts(found.line_N, iteration_N, found.counted.printer_N)
        return self._knowledge.complete(batch, found.line_N[keep_N], counts)

    def _note(self, parts: list[Part]) -> None:
        for part in parts:
            self._used += len(part.line_S)
            counter = part.plan.counter
            if counter.style is not Style.NONE and self._has_room(self._counters, counter.key):
                self._counters[counter.key] += len(part.line_S)
            for value in part.plan.values:
                if self._has_room(self._columns, value.key):
                    is_loss = value.loss_order is not None and value.key == self._loss.key
                    self._columns[value.key] = LOSS if is_loss else value.name

    def _has_room(self, known: Mapping[str, object], key: str) -> bool:
        """Whether one more name is kept: a name with a number in it makes one for every line."""
        return key in known or len(known) < MAX_METRICS


def _text(line: bytes) -> str:
    return line.decode("utf-8", "replace")


def _row(line: bytes, plan: Plan) -> str:
    return _text(row_behind(line, read_prefix(line)) if plan.is_prefixed else line)
