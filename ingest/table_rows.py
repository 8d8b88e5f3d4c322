"""The parsed rows of a text table become columns of records.

Axes: N rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from .table_cells import Cells, LabelColumn, checksum_column, number_column, numbers_of, whole_numbers
from .table_header import Header

if TYPE_CHECKING:
    import polars as pl

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

    def __init__(self, header: Header, defaults: Defaults, source: str) -> None:
        self.header = header
        self._defaults = defaults
        self._source = source
        self._next_row = 0
        self._labels: dict[int, LabelColumn] = {}
        self._is_text: dict[int, bool] = {}
        self.padding = 0

    def change_header(self, header: Header) -> None:
        """Other columns from here on; rows go on being counted."""
        self.header = header
        self._labels.clear()
        self._is_text.clear()

    def decode(
        self, frame: pl.DataFrame, number_N: NDArray[np.int64], rejected: list[Rejected]
    ) -> RecordBatch:
        """The records of ``frame`` (text, null where empty); ``number_N`` are the lines of its rows."""
        rows = _Rows(self._source, number_N, rejected, np.ones(len(number_N), np.bool_), _as_numbers(frame))
        iteration_N = self._iterations(frame, rows)
        runs, run_N = self._runs(frame, rows)
        ranks = self._identity(frame, "rank", rows)
        attempts = self._identity(frame, "attempt", rows)
        microbatches = self._identity(frame, "microbatch", rows)
        numbers, checksums, labels = self._metrics(frame, rows)
        padding_N = self._is_padding(numbers, len(number_N)) & rows.keep_N
        self.padding += int(padding_N.sum())
        batch = RecordBatch(
            runs=runs,
            run_N=run_N,
            attempt_N=attempts,
            rank_N=ranks,
            iteration_N=iteration_N,
            microbatch_N=microbatches,
            time_N=self._times(frame, rows),
            numbers={
                self.header.metrics[at]: column for at, column in numbers.items() if column.present_N.any()
            },
            checksums=checksums,
            labels=tuple(sorted(labels)),
            rejected=tuple(sorted(rejected, key=lambda each: each.offset)),
        )
        self._next_row += len(number_N)
        keep_N = rows.keep_N & ~padding_N
        return batch if keep_N.all() else select_rows(batch, keep_N)

    def _iterations(self, frame: pl.DataFrame, rows: _Rows) -> NDArray[np.int64]:
        at = self.header.iteration
        if at is None:
            return np.arange(self._next_row, self._next_row + frame.height, dtype=np.int64)
        iteration_N, good_N = whole_numbers(rows.numbers(frame, at), MAX_ITERATION)
        rows.reject_whole(~good_N, "iteration", integer_rule(MAX_ITERATION), frame[str(at)])
        return iteration_N

    def _identity(self, frame: pl.DataFrame, key: str, rows: _Rows) -> NDArray[np.int32]:
        greatest, default = _IDENTITY_LIMITS[key]
        if key == "rank" and self._defaults.rank is not None:
            default = self._defaults.rank
        at = self.header.identity.get(key)
        if at is None:
            return np.full(frame.height, default, np.int32)
        cells = rows.numbers(frame, at)
        value_N, good_N = whole_numbers(cells, greatest)
        rows.reject_whole(cells.present_N & ~good_N, key, integer_rule(greatest), frame[str(at)])
        return np.where(good_N, value_N, default).astype(np.int32)

    def _runs(self, frame: pl.DataFrame, rows: _Rows) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        default = self._defaults.run or self._source
        at = self.header.identity.get("run")
        if at is None:
            return (default,), np.zeros(frame.height, np.int32)
        column = frame[str(at)].fill_null(default)
        names = [str(name) for name in column.unique(maintain_order=True).to_list()]
        codes = {name: code for code, name in enumerate(names)}
        run_N = np.array(column.replace_strict(codes).to_numpy() if names else [], np.int32)
        bad_N = np.isin(run_N, [code for name, code in codes.items() if not is_run_name(name)])
        rows.reject_whole(bad_N, "run", RULE_RUN, frame[str(at)])
        return tuple(name if is_run_name(name) else "?" for name in names), run_N

    def _times(self, frame: pl.DataFrame, rows: _Rows) -> Floats:
        at = self.header.identity.get("time")
        if at is None:
            return np.full(frame.height, np.nan)
        cells = rows.numbers(frame, at)
        finite_N = np.isfinite(cells.values_N)
        rows.reject_value(cells.present_N & ~finite_N, "time", RULE_TIME, frame[str(at)])
        return np.where(finite_N, cells.values_N, np.nan)

    def _metrics(
        self, frame: pl.DataFrame, rows: _Rows
    ) -> tuple[dict[int, NumberColumn], dict[str, ChecksumColumn], list[tuple[int, str, str]]]:
        numbers: dict[int, NumberColumn] = {}
        checksums: dict[str, ChecksumColumn] = {}
        labels: list[tuple[int, str, str]] = []
        for at, name in self.header.metrics.items():
            column = frame[str(at)]
            if is_checksum(name):
                checksums[name], bad = checksum_column(column)
                for cell in bad:
                    rows.reject_cell(cell.row, name, RULE_CHECKSUM, cell.text)
                continue
            cells = rows.numbers(frame, at)
            if self._holds_text(at, cells):
                label = self._labels.setdefault(at, LabelColumn())
                labels += [(row, name, text) for row, text in label.take(column)]
                continue
            rows.reject_value(cells.text_N, name, RULE_NUMBER, column)
            numbers[at] = number_column(cells)
        return numbers, checksums, labels

    def _holds_text(self, at: int, cells: Cells) -> bool:
        if at not in self._is_text:
            filled = np.flatnonzero(cells.present_N)
            if not len(filled):
                return False
            self._is_text[at] = bool(cells.text_N[filled[0]])
        return self._is_text[at]

    def _is_padding(self, numbers: Mapping[int, NumberColumn], length: int) -> Flags:
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
    cast: pl.DataFrame
    """The same cells as numbers, null where they are none."""

    def numbers(self, frame: pl.DataFrame, at: int) -> Cells:
        """One column as numbers."""
        return numbers_of(frame[str(at)], self.cast[str(at)])

    def reject_whole(self, bad_N: Flags, field: str, rule: str, column: pl.Series) -> None:
        """Drop the records of ``bad_N``."""
        for row in np.flatnonzero(bad_N & self.keep_N):
            text = column[int(row)]
            self.rejected.append(self._rejected(int(row), field, rule, text, whole=True))
        self.keep_N[bad_N] = False

    def reject_value(self, bad_N: Flags, field: str, rule: str, column: pl.Series) -> None:
        """Drop one value of the records of ``bad_N``."""
        for row in np.flatnonzero(bad_N & self.keep_N):
            self.reject_cell(int(row), field, rule, str(column[int(row)]))

    def reject_cell(self, row: int, field: str, rule: str, text: str) -> None:
        """Drop one value of one record."""
        self.rejected.append(self._rejected(row, field, rule, text, whole=False))

    def _rejected(self, row: int, field: str, rule: str, text: object, *, whole: bool) -> Rejected:
        return Rejected(field, rule, describe(text), whole, self.source, int(self.number_N[row]))


def _as_numbers(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return frame.select(pl.all().cast(pl.Float64, strict=False))
