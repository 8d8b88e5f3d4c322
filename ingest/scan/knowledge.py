"""What is known of a log beyond its words: sentences, dialects and noise, per shape of line.

Axes: R records of a batch, N lines with values or counters, S lines of one shape.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firstfault.telemetry import MAX_RANK
from ingest.blocks import Flags, Ints, RecordBatch

from .dialect_rules import DialectRules
from .dialects import Dialect, dialect_of
from .lost_losses import LostLosses, lost_remark
from .noise import is_noise
from .pieces import Piece, ShapeLines
from .prefixes import printer_of, read_prefix
from .prose import Counts, Prose
from .sentence_table import sentences_for
from .sentences import Sentence
from .sentences_of_faults import DIVERGED
from .sentences_of_scaling import LOSS_SCALING
from .tokens import MAX_SENTENCE_BYTES
from .told import Told, told_on
from .unwrap import is_open

MAX_SHAPES = 1 << 15
"""Shapes that are kept: a log has dozens; free text makes a new one with every line."""
_TOLD_IN_REMARK = 6


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the lines of one shape."""

    sentences: tuple[Sentence, ...] = ()
    is_noise: bool = False
    dialect: Dialect | None = None
    is_open: bool = False

    @property
    def is_wrapped(self) -> bool:
        """Whether such lines are the first of records that go on in the next line."""
        return self.dialect is not None and self.dialect.ends_in_bar and self.is_open

    @property
    def takes_lines(self) -> bool:
        """Whether such lines give no records besides what is told."""
        return self.is_noise or (bool(self.sentences) and self.sentences[0].takes_line)

    @property
    def stands_beside_records(self) -> bool:
        """Whether such lines are of a training loop, so that bare numbers beside them may be its losses."""
        return bool(self.sentences) and self.sentences[0] in LOSS_SCALING


PASSED_OVER = Known(is_noise=True)
"""Of lines of free text without any word that tells something."""


class Knowledge:
    """Reads one log with what is known of its dialects and sentences."""

    def __init__(self, run: str, rank: int) -> None:
        self._rank = rank
        self._known: dict[bytes, Known] = {}
        self._prose = Prose(run, rank)
        self._rules: dict[str, DialectRules] = {}
        self._dialects: Tally[str] = Tally()
        self._told: list[Told] = []
        self._own: dict[str, list[Ints]] = {}
        self._lost = LostLosses()
        self._names_iterations = False
        self._heard = 0
        self.metrics: dict[str, None] = {}
        """Metrics that sentences told."""
        self.lines = 0
        """Lines that gave what a sentence tells, and no record besides."""

    @property
    def has_heard(self) -> bool:
        """Whether a sentence was read."""
        return self._heard > 0

    @property
    def names_iterations(self) -> bool:
        """Whether a sentence named its iteration."""
        return self._names_iterations

    @property
    def format(self) -> str:
        """Text log, and the dialect that most of its records are written in."""
        named = self._dialects.most_common(1)
        return f"text log ({named[0][0]})" if named else "text log"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What sentences told, counted."""
        lost = () if self._lost.first is None else (lost_remark(self._lost.first),)
        told = self._prose.told.most_common(_TOLD_IN_REMARK)
        if not told:
            return lost
        counts = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in told)
        lines = "1 line was" if self._heard == 1 else f"{self._heard} lines were"
        remark = f"{lines} read as {'a sentence' if self._heard == 1 else 'sentences'}: {counts}"
        numbered = "; nothing counts, so they are numbered" if self._prose.numbers_sentences else ""
        return (remark + numbered, *lost)

    @property
    def doubt(self) -> str:
        """Why the log is not to be called healthy though no record shows a fault."""
        if DIVERGED in self._prose.told:
            return "a line says that the training diverged, and no record shows how"
        return self._lost.doubt

    def of(self, group: ShapeLines) -> Known:
        """What is known of the lines of a group."""
        known = self._known.get(group.shape)
        if known is None:
            known = self._known[group.shape] = _look_at(group.example) if group.shape else PASSED_OVER
            if len(self._known) > MAX_SHAPES:
                del self._known[next(iter(self._known))]
        return known

    def listen(self, known: Known, group: ShapeLines, lines: Piece) -> None:
        """Read the sentences on the lines of a group."""
        if known.dialect is not None:
            self._dialects[known.dialect.name] += len(group.line_S)
            self._own.setdefault(known.dialect.name, []).append(group.line_S)
            if known.dialect.name not in self._rules:
                self._rules[known.dialect.name] = DialectRules(known.dialect.rules)
        for told in told_on(known.sentences, group, lines, self._printer) if known.sentences else ():
            self.lines += len(told.line_S) if known.takes_lines else 0
            self._heard += len(told.line_S)
            self._names_iterations |= told.finding.iteration is not None
            self._told.append(told)

    def complete(self, batch: RecordBatch, line_R: Ints, counts: Counts) -> RecordBatch:
        """The records of a piece, on the lines ``line_R``, with what dialects and sentences say."""
        if len(batch):
            batch = self._lost.apply(batch)
            for name, rules in self._rules.items():
                batch = rules.apply(batch, _is_on(line_R, self._own.get(name, [])))
            if not self._rules:
                self._rules[""] = DialectRules(())
        told, self._told, self._own = self._told, [], {}
        batch, metrics = self._prose.merged(batch, line_R, counts, told)
        self.metrics.update(metrics)
        return batch

    def _printer(self, line: bytes) -> int:
        """The rank that a prefix names as the printer."""
        field = printer_of(read_prefix(line), line)
        text = "" if field is None else field.of(line)
        return int(text) if text.isdigit() and len(text) < 8 and int(text) <= MAX_RANK else self._rank


def _look_at(example: bytes) -> Known:
    example = example[:MAX_SENTENCE_BYTES]
    if is_noise(example):
        return Known(is_noise=True)
    return Known(sentences_for(example), dialect=dialect_of(example), is_open=is_open(example))


def _is_on(line_R: Ints, own: Sequence[Ints]) -> Flags:
    own_R: Flags = np.isin(line_R, np.concatenate(own)) if own else np.zeros(len(line_R), np.bool_)
    return own_R
