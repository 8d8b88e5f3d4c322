"""The parsed rows of a text table become columns of records.

Axes: N rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firstfault.telemetry import (
    MAX_ATTEMPT,
    MAX_ITERATION,
    MAX_MICROBATCH,
    MAX_RANK,
    UNNAMED_RANK,
    WHOLE_ITERATION,
    is_checksum,
)
from firstfault.wire import Defaults
from firstfault.wire_values import RULE_CHECKSUM, RULE_RUN, RULE_TIME, describe, integer_rule, is_run_name

from .blocks import ChecksumColumn, Flags, Floats, NumberColumn, RecordBatch, Rejected
from .columns import select_rows
from .roles import Roles
from .row_counters import RowCounter
from .row_metrics import apart, evaluates, with_sum
from .table_cells import Cells, LabelColumn, checksum_column, number_column, numbers_of, whole_numbers
from .table_text import TextColumn

RULE_NUMBER = "must be a number: its column holds numbers"
_IDENTITY_LIMITS: Mapping[str, tuple[int, int]] = {
    "rank": (MAX_RANK, UNNAMED_RANK),
    "attempt": (MAX_ATTEMPT, 0),
    "microbatch": (MAX_MICROBATCH, WHOLE_ITERATION),
}


class TableRows:
    """Gives rows of text cells their meaning, in the order of the table.

    Whether a column holds text is decided by its first filled cell, hence not by how pieces are cut.
    """

    def __init__(self, header: Roles, defaults: Defaults, source: str) -> None:
        self.header = header
        self._defaults = defaults
        self._source = source
        self._next_row = 0
        self._labels: dict[int, LabelColumn] = {}
        self._has_told = False
        self._beside: set[int] = set()
        """Columns of text that stood beside a number."""
        self._is_text: dict[int, bool] = {}
        self._counter = RowCounter()
        self.padding = 0

    def change_header(self, header: Roles) -> None:
        """Other columns from here on; rows go on being counted."""
        self.header = header
        self._labels.clear()
        self._beside.clear()
        self._is_text.clear()

    def decode(
        self, columns: Sequence[TextColumn], number_N: NDArray[np.int64], rejected: list[Rejected]
    ) -> RecordBatch:
        """The records of the rows of ``columns``; ``number_N`` are the lines of the rows."""
        rows = _Rows(self._source, number_N, rejected, np.ones(len(number_N), np.bool_))
        evaluates_N = self._evaluates(columns, len(number_N))
        iteration_N = self._iterations(columns, rows, evaluates_N)
        runs, run_N = self._runs(columns, rows)
        ranks = self._identity(columns, "rank", rows)
        attempts = self._identity(columns, "attempt", rows)
        microbatches = self._identity(columns, "microbatch", rows)
        numbers, checksums, labels = self._metrics(columns, rows)
        padding_N = self._is_padding(numbers, len(number_N)) & rows.keep_N
        self.padding += int(padding_N.sum())
        named = {self.header.metrics[at]: column for at, column in numbers.items() if column.present_N.any()}
        context = {self.header.metrics[at] for at in self.header.context}
        batch = RecordBatch(
            runs=runs,
            run_N=run_N,
            attempt_N=attempts,
            rank_N=ranks,
            iteration_N=iteration_N,
            microbatch_N=microbatches,
            time_N=self._times(columns, rows),
            numbers=with_sum(apart(named, evaluates_N, context), self.header.summed),
            checksums=checksums,
            labels=tuple(sorted(labels)),
            rejected=tuple(sorted(rejected, key=lambda each: each.offset)),
        )
        self._next_row += len(number_N)
        keep_N = rows.keep_N & ~padding_N & ~self._are_notes(columns, numbers, checksums)
        return batch if keep_N.all() else select_rows(batch, keep_N)

    def _evaluates(self, columns: Sequence[TextColumn], length: int) -> Flags:
        split = self.header.split
        return np.zeros(length, np.bool_) if split is None else evaluates(columns[split])

    def _iterations(
        self, columns: Sequence[TextColumn], rows: _Rows, evaluates_N: Flags
    ) -> NDArray[np.int64]:
        at = self.header.iteration
        if at is None:
            return np.arange(self._next_row, self._next_row + len(rows.number_N), dtype=np.int64)
        iteration_N, good_N = whole_numbers(numbers_of(columns[at]), MAX_ITERATION)
        loss = self._loss_columns()
        if loss and "rank" not in self.header.identity:
            trains_N = np.logical_or.reduce([columns[each].is_filled() for each in loss]) & ~evaluates_N
            iteration_N, good_N = self._counter.place(iteration_N, good_N, trains_N, evaluates_N)
        rows.reject_whole(~good_N, "iteration", integer_rule(MAX_ITERATION), columns[at])
        return iteration_N

    def _loss_columns(self) -> list[int]:
        names = self.header.summed or ("loss",)
        return [at for at, metric in self.header.metrics.items() if metric in names]

    def _identity(self, columns: Sequence[TextColumn], key: str, rows: _Rows) -> NDArray[np.int32]:
        greatest, default = _IDENTITY_LIMITS[key]
        if key == "rank" and self._defaults.rank is not None:
            default = self._defaults.rank
        at = self.header.identity.get(key)
        if at is None:
            return np.full(len(rows.number_N), default, np.int32)
        cells = numbers_of(columns[at])
        value_N, good_N = whole_numbers(cells, greatest)
        rows.reject_whole(cells.present_N & ~good_N, key, integer_rule(greatest), columns[at])
        return np.where(good_N, value_N, default).astype(np.int32)

    def _runs(self, columns: Sequence[TextColumn], rows: _Rows) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        default = self._defaults.run or self._source
        at = self.header.identity.get("run")
        if at is None:
            return (default,), np.zeros(len(rows.number_N), np.int32)
        texts, text_N = columns[at].codes()
        names = list(dict.fromkeys(text or default for text in texts))
        run_N = np.array([names.index(text or default) for text in texts], np.int32)[text_N]
        bad_N = np.isin(run_N, [code for code, name in enumerate(names) if not is_run_name(name)])
        rows.reject_whole(bad_N, "run", RULE_RUN, columns[at])
        return tuple(name if is_run_name(name) else "?" for name in names), run_N

    def _times(self, columns: Sequence[TextColumn], rows: _Rows) -> Floats:
        at = self.header.identity.get("time")
        if at is None:
            return np.full(len(rows.number_N), np.nan)
        cells = numbers_of(columns[at])
        finite_N = np.isfinite(cells.values_N)
        rows.reject_value(cells.present_N & ~finite_N, "time", RULE_TIME, columns[at])
        return np.where(finite_N, cells.values_N, np.nan)

    def _metrics(
        self, columns: Sequence[TextColumn], rows: _Rows
    ) -> tuple[dict[int, NumberColumn], dict[str, ChecksumColumn], list[tuple[int, str, str]]]:
        numbers: dict[int, NumberColumn] = {}
        checksums: dict[str, ChecksumColumn] = {}
        labels: list[tuple[int, str, str]] = []
        for at, name in self.header.metrics.items():
            column = columns[at]
            if is_checksum(name):
                checksums[name], bad = checksum_column(column)
                for cell in bad:
                    rows.reject_cell(cell.row, name, RULE_CHECKSUM, cell.text)
                continue
            if self._is_text.get(at) or self._holds_text(at, cells := numbers_of(column)):
                label = self._labels.setdefault(at, LabelColumn())
                labels += [(row, name, text) for row, text in label.take(column)]
                continue
            rows.reject_value(cells.text_N, name, RULE_NUMBER, column)
            numbers[at] = number_column(cells, self.header.scales.get(at, 1.0))
        return numbers, checksums, labels

    def _holds_text(self, at: int, cells: Cells) -> bool:
        if at not in self._is_text:
            filled = np.flatnonzero(cells.present_N)
            if not len(filled):
                return False
            self._is_text[at] = bool(cells.text_N[filled[0]])
        return self._is_text[at]

    def _are_notes(
        self,
        columns: Sequence[TextColumn],
        numbers: Mapping[int, NumberColumn],
        checksums: Mapping[str, ChecksumColumn],
    ) -> Flags:
        """Rows of nothing but a text that no record before had: ``{"step": 120, "msg": "done"}``."""
        told_N = np.zeros(len(columns[0]), np.bool_)
        for number in numbers.values():
            told_N |= number.present_N
        for checksum in checksums.values():
            told_N |= checksum.present_N
        note_N = np.zeros(len(told_N), np.bool_)
        since = 0 if self._has_told else int(np.argmax(told_N)) if told_N.any() else len(told_N)
        self._has_told = self._has_told or bool(told_N.any())
        for at in self.header.metrics:
            if self._is_text.get(at) and at not in self._beside:
                filled_N = columns[at].is_filled()
                beside = np.flatnonzero(filled_N & told_N)
                until = int(beside[0]) if len(beside) else len(told_N)
                note_N[since:until] |= filled_N[since:until] & ~told_N[since:until]
                self._beside |= {at} if len(beside) else set()
        return note_N

    def _is_padding(self, numbers: Mapping[int, NumberColumn], length: int) -> Flags:
        if not any(np.isnan(column.values_N).any() for column in numbers.values()):
            return np.zeros(length, np.bool_)  # most pieces, without a look at each row
        filled_N = np.zeros(length, np.int32)
        nan_N = np.zeros(length, np.int32)
        context_N = np.zeros(length, np.bool_)
        for at, column in numbers.items():
            filled_N += column.present_N
            nan_N += column.present_N & np.isnan(column.values_N)
            if at in self.header.context:
                context_N |= column.present_N
        padding_N: Flags = (filled_N >= 2) & (nan_N == filled_N) & context_N
        return padding_N


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of one piece: their lines, and what was rejected of them."""

    source: str
    number_N: NDArray[np.int64]
    rejected: list[Rejected]
    keep_N: Flags

    def reject_whole(self, bad_N: Flags, field: str, rule: str, column: TextColumn) -> None:
        """Drop the records of ``bad_N``."""
        for row in np.flatnonzero(bad_N & self.keep_N):
            text = column.text(int(row)) or None
            self.rejected.append(self._rejected(int(row), field, rule, text, whole=True))
        self.keep_N[bad_N] = False

    def reject_value(self, bad_N: Flags, field: str, rule: str, column: TextColumn) -> None:
        """Drop one value of the records of ``bad_N``."""
        for row in np.flatnonzero(bad_N & self.keep_N):
            self.reject_cell(int(row), field, rule, column.text(int(row)))

    def reject_cell(self, row: int, field: str, rule: str, text: str) -> None:
        """Drop one value of one record."""
        self.rejected.append(self._rejected(row, field, rule, text, whole=False))

    def _rejected(self, row: int, field: str, rule: str, text: object, *, whole: bool) -> Rejected:
        return Rejected(field, rule, describe(text), whole, self.source, int(self.number_N[row]))
