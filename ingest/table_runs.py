"""Tables that hold several runs side by side, a column a run and metric: exports of charts.

``Step, RUN-A - loss, RUN-A - loss__MIN, RUN-A - loss__MAX, RUN-B - loss, …``: each run becomes a run of its
own, the smallest and greatest of several points are left out, and so are rows in which a run has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from firstfault.wire import Defaults
from firstfault.wire_values import is_run_name

from .blocks import RecordBatch, Rejected
from .columns import select_rows
from .joining import concatenate
from .roles import Role, Roles, meaning_of
from .table_header import read_header
from .table_rows import TableRows
from .table_text import TextColumn

_OF_RUN = re.compile(r"(?P<run>.+?) - (?P<metric>.+?)(?P<extreme>__(?:MIN|MAX))?")
_SHARED = frozenset({Role.ITERATION, Role.EPOCH, Role.TIME, Role.BATCH, Role.TOTAL})


def runs_side_by_side(names: Sequence[str]) -> dict[str, dict[int, str]] | None:
    """For each run the columns that are its metrics, with their names; None if the table is of one run.

    >>> runs_side_by_side(["Step", "a - loss", "a - loss__MIN", "b - loss"])
    {'a': {1: 'loss'}, 'b': {3: 'loss'}}
    """
    runs: dict[str, dict[int, str]] = {}
    for at, name in enumerate(names):
        found = _OF_RUN.fullmatch(name.strip())
        if found is not None and is_run_name(found["run"]):
            columns = runs.setdefault(found["run"], {})
            if not found["extreme"]:
                columns[at] = found["metric"]
        elif meaning_of(name).role not in _SHARED:
            return None
    has_extremes = any(name.strip().endswith(("__MIN", "__MAX")) for name in names)
    return runs if len(runs) > 1 or (runs and has_extremes) else None


class RunColumns:
    """The rows of such a table; offers what `TableRows` does."""

    def __init__(
        self,
        runs: Mapping[str, Mapping[int, str]],
        names: tuple[str, ...],
        sample: Sequence[Sequence[str]],
        defaults: Defaults,
        source: str,
    ) -> None:
        shared = [at for at, name in enumerate(names) if _OF_RUN.fullmatch(name.strip()) is None]
        self._places: list[list[int]] = []
        self._rows: list[TableRows] = []
        metrics: dict[int, str] = {}
        for run, columns in runs.items():
            places = [*shared, *columns]
            own = [*(names[at] for at in shared), *columns.values()]
            header = read_header(own, [[row[at] if at < len(row) else "" for at in places] for row in sample])
            metrics |= {places[at]: metric for at, metric in header.metrics.items() if places[at] in columns}
            self._places.append(places)
            self._rows.append(TableRows(header, replace(defaults, run=run), source))
        first = self._rows[0].header
        self.header = Roles(
            names=names,
            iteration=None if first.iteration is None else self._places[0][first.iteration],
            metrics=MappingProxyType(metrics),
            remarks=(f"{len(runs)} runs stand side by side, each is judged by itself", *first.remarks),
        )

    @property
    def padding(self) -> int:
        """Rows not reported."""
        return sum(rows.padding for rows in self._rows)

    def change_header(self, header: Roles) -> None:
        """Nothing: exports have one header."""

    def decode(
        self, columns: Sequence[TextColumn], number_N: NDArray[np.int64], rejected: list[Rejected]
    ) -> RecordBatch:
        """The records of the rows, run after run."""
        batches = [
            _reported(rows.decode([columns[at] for at in places], number_N, []))
            for rows, places in zip(self._rows, self._places, strict=True)
        ]
        joined = concatenate(batches)
        return replace(joined, rejected=(*joined.rejected, *rejected))


def _reported(batch: RecordBatch) -> RecordBatch:
    """The rows in which the run has a value."""
    own = [column.present_N for name, column in batch.numbers.items() if name != "epoch"]
    return select_rows(batch, np.logical_or.reduce(own) if own else np.zeros(len(batch), np.bool_))
