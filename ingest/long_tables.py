"""Long tables: a row for each value, with a column for what it is a value of (``step,name,value``).

Trackers export so, and frames that were melted. Their rows become the records that the names make together,
as with the trackers themselves (`scalar_points`). Whether a loss is missing, or a step goes back, shows only
in all of them, so records come when the file has ended.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from firstfault.wire import Defaults
from firstfault.wire_values import describe, is_run_name

from .blocks import RecordBatch, Rejected
from .errors import UnreadableInput
from .joining import concatenate
from .log_reader import FileConfig, Understood
from .role_names import Role
from .role_words import meaning_of, spelling
from .table_dialect import Dialect
from .written_numbers import number_of

if TYPE_CHECKING:
    from .scalar_names import Named
    from .scalar_points import Assembled, Points

_NAMES = frozenset(
    {
        "name",
        "metric",
        "metric_name",
        "metricname",
        "metric.name",
        "key",
        "tag",
        "variable",
        "series",
        "scalar_name",
    }
)
_VALUES = frozenset({"value", "val", "metric_value", "metricvalue", "metric.value", "scalar", "scalar_value"})
_STEPS = (Role.ITERATION, Role.EPOCH)
_SAMPLE_ROWS = 200
MAX_RUNS = 1000
"""Runs of one table; more are no runs."""
_MILLISECONDS = 1e11
"""A time above it is in milliseconds: in seconds it would be the year 5138."""
_KEPT_BYTES = 1024
_MAX_REJECTED = 1000
"""Bad rows that are kept one by one."""


@dataclass(frozen=True, slots=True)
class LongColumns:
    """Where the columns of a long table stand; -1 for none."""

    name: int
    value: int
    step: int
    time: int
    run: int


def long_columns(dialect: Dialect, head: bytes) -> LongColumns | None:
    """The columns of a long table that begins with ``head``; None if it is no such table.

    Its names must be words, and come again: else a table with a column ``name`` has a row for each of them.
    """
    names = [spelling(name) for name in dialect.names]
    places = {
        "name": [at for at, name in enumerate(names) if name in _NAMES],
        "value": [at for at, name in enumerate(names) if name in _VALUES],
    }
    roles = [meaning_of(name).role for name in dialect.names]
    steps = [at for role in _STEPS for at, each in enumerate(roles) if each is role]
    if not dialect.has_header or len(places["name"]) != 1 or len(places["value"]) != 1 or not steps:
        return None
    name = places["name"][0]
    lines = dialect.plain(head.replace(b"\r\n", b"\n")).decode("utf-8", "replace").splitlines()
    rows = csv.reader(lines[1:_SAMPLE_ROWS], delimiter=dialect.delimiter)
    told = [row[name].strip() for row in rows if len(row) == len(names)]
    if not told or len(set(told)) == len(told) or any(number_of(text) is not None for text in told):
        return None
    return LongColumns(
        name=name,
        value=places["value"][0],
        step=steps[0],
        time=next((at for at, role in enumerate(roles) if role is Role.TIME), -1),
        run=next((at for at, role in enumerate(roles) if role is Role.RUN), -1),
    )


class LongTableDecoder:
    """A long table as a `LineDecoder`."""

    is_wire = False
    says_attempt = True
    """A series whose step goes back is numbered here."""

    def __init__(
        self, dialect: Dialect, columns: LongColumns, defaults: Defaults, source: str, config: FileConfig
    ) -> None:
        self._dialect, self._columns, self._defaults = dialect, columns, defaults
        self._source, self._config = source, config
        self._runs: dict[str, Points] = {}
        self._rejected: list[Rejected] = []
        self._lines = self._used = 0
        self._named: dict[str, str] = {}
        self._remarks: dict[str, None] = {}

    def decode(self, data: bytes) -> RecordBatch:
        """Nothing yet: the other values of the last step may come."""
        text = self._dialect.plain(data.replace(b"\r\n", b"\n")).decode("utf-8", "replace")
        for row in csv.reader(text.splitlines(), delimiter=self._dialect.delimiter):
            self._lines += 1
            if len(row) != len(self._dialect.names):
                self._reject(row, f"must have {len(self._dialect.names)} cells, as the header")
            elif [cell.strip() for cell in row] != list(self._dialect.names):
                self._take([cell.strip() for cell in row])
        return concatenate([])

    def finish(self) -> RecordBatch | None:
        """All records.

        Raises:
            UnreadableInput: no row has a value.
        """
        if not any(len(points) for points in self._runs.values()):
            step, name, value = (
                self._dialect.names[at]
                for at in (self._columns.step, self._columns.name, self._columns.value)
            )
            raise UnreadableInput(
                f"{self._source}: must hold rows of {step}, {name} and {value}, but has none"
            )
        from .scalar_points import batches

        found: list[RecordBatch] = []
        for run, points in self._runs.items():
            named, assembled = self._assembled(points)
            defaults = replace(self._defaults, run=run) if run else self._defaults
            found += batches(points, assembled, named, defaults, source=self._source)
        whole = concatenate(found)
        return replace(whole, rejected=(*whole.rejected, *self._rejected))

    def understood(self) -> Understood:
        """What was understood so far."""
        names = self._dialect.names
        pivot = f"a row for each value: {names[self._columns.value]!r} of {names[self._columns.name]!r}"
        return Understood(
            format="long table",
            counter=names[self._columns.step],
            columns=tuple(self._named.items()),
            lines=self._lines,
            used_lines=self._used,
            remarks=(pivot, *self._remarks),
        )

    def anew(self) -> Callable[[bytes], RecordBatch] | None:
        """None: a record is made of several rows."""
        return None

    def _assembled(self, points: Points) -> tuple[Named, Assembled]:
        from .scalar_names import names_of
        from .scalar_points import assemble

        named = names_of(points, self._config.columns, self._dialect.names[self._columns.step])
        assembled = assemble(points, self._dialect.names[self._columns.step])
        self._named.update(named.columns)
        self._remarks.update(dict.fromkeys((*named.remarks, *assembled.remarks)))
        return named, assembled

    def _take(self, row: Sequence[str]) -> None:
        columns = self._columns
        step, value = number_of(row[columns.step]), number_of(row[columns.value])
        if step is None or not step.is_integer() or not row[columns.name]:
            self._reject(row, "must have a whole step and a name")
            return
        if value is None:
            if row[columns.value]:  # empty is not reported
                self._reject(row, "must have a number as its value")
            return
        run = row[columns.run] if columns.run >= 0 else ""
        if run not in self._runs and (len(self._runs) >= MAX_RUNS or (run and not is_run_name(run))):
            self._reject(row, f"must be of one of the first {MAX_RUNS} runs")
            return
        time = number_of(row[columns.time]) if columns.time >= 0 else None
        time = math.nan if time is None else time / 1000 if time > _MILLISECONDS else time
        if run not in self._runs:
            from .scalar_points import Points  # every other table does without

            self._runs[run] = Points()
        self._runs[run].add(row[columns.name], int(step), time, value)
        self._used += 1

    def _reject(self, row: Sequence[str], rule: str) -> None:
        text = self._dialect.delimiter.join(row)
        if not text.strip() or len(self._rejected) >= _MAX_REJECTED:
            return
        raw = text.encode()[:_KEPT_BYTES]
        self._rejected.append(
            Rejected("line", rule, describe(text), True, self._source, self._lines - 1, raw)
        )
