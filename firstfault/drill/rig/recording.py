"""What a job said, as columns: the form in which a faulty run and its golden twin are compared.

Axes: T reported positions in order of attempt and iteration, R ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...mesh import Layout, layout_from_event
from ...telemetry import Event, EventKind, Record, Relation, contract_of, is_checksum

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Ints = NDArray[np.int64]
Bits = NDArray[np.uint64]

_LOW_64 = (1 << 64) - 1
_PLAIN_AXIS = "dp"


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """One run. ``numbers`` is NaN where a value was NaN or not reported; ``present`` tells them apart."""

    attempts_T: Ints
    iterations_T: Ints
    ranks_R: Ints
    numbers: Mapping[str, Floats]
    checksums: Mapping[str, Bits]
    present: Mapping[str, Flags]
    layout: Layout | None = None
    """Of the first attempt; None where the run named no mesh."""
    layouts: Mapping[int, Layout] = field(default_factory=dict)
    """By attempt, where a restart changed it."""

    def __len__(self) -> int:
        return len(self.iterations_T)

    def cut(self, metrics: Iterable[str], is_one_curve: bool = False) -> Recording:
        """What is left of it in a tier that has these metrics, of all ranks or as one curve without ranks."""
        kept = set(metrics)
        numbers = {name: values for name, values in self.numbers.items() if name in kept}
        sums = {name: values for name, values in self.checksums.items() if name in kept}
        present = {name: flags for name, flags in self.present.items() if name in kept}
        if is_one_curve:
            numbers = {name: _mean_over_ranks(numbers[name], present[name]) for name in numbers}
            present = {name: np.any(present[name], axis=1, keepdims=True) for name in numbers}
            sums = {}
        ranks_R = np.array([-1]) if is_one_curve else self.ranks_R
        layout = None if is_one_curve else self.layout
        layouts = {} if is_one_curve else self.layouts
        return Recording(self.attempts_T, self.iterations_T, ranks_R, numbers, sums, present, layout, layouts)

    def attempts(self) -> list[tuple[int, Recording]]:
        """Each attempt with its first position: its own ranks in its own layout."""
        found = []
        for attempt in np.unique(self.attempts_T).tolist():
            rows = np.flatnonzero(self.attempts_T == attempt)
            reports_R = np.any([flags[rows].any(axis=0) for flags in self.present.values()], axis=0)
            one = _at(self, rows, np.flatnonzero(reports_R), self.layouts.get(attempt, self.layout))
            found.append((int(rows[0]), one))
        return found

    def groups(self, metric: str, relation: Relation) -> list[Ints]:
        """Columns of ranks over which ``metric`` has ``relation``, by group; without a mesh all as one.

        Ranks that never report it are in no group: stages without the tied embedding have no copy of it.
        """
        groups = [group_G[self._reporting(metric)[group_G]] for group_G in self._all_groups(metric, relation)]
        return [group_G for group_G in groups if len(group_G) > 1]

    def _reporting(self, metric: str) -> Flags:
        nobody = np.zeros((1, len(self.ranks_R)), np.bool_)
        return np.asarray(self.present.get(metric, nobody).any(axis=0))

    def _all_groups(self, metric: str, relation: Relation) -> list[Ints]:
        """`groups` of all ranks, whatever they report."""
        if self.layout is None:
            is_plain = _PLAIN_AXIS in contract_of(metric).axes(relation)
            return [np.arange(len(self.ranks_R))] if is_plain and len(self.ranks_R) > 1 else []
        members: dict[tuple[int, ...], list[int]] = {}
        along = contract_of(metric).axes(relation)
        if relation is Relation.DISTINCT and along:
            # whatever ranks it is not the same for read data of their own: those of other experts too
            along = frozenset(self.layout.axes) - contract_of(metric).axes(Relation.EQUAL)
        for column, rank in enumerate(self.ranks_R.tolist()):
            key = self.layout.group_key(rank, along)
            if key is not None:
                members.setdefault(key, []).append(column)
        return [np.array(columns) for columns in members.values() if len(columns) > 1]


@dataclass(slots=True)
class _Cells:
    """Values of one metric as they come."""

    rows: list[int] = field(default_factory=list)
    ranks: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


def record_run(said: Iterable[Record | Event]) -> Recording:
    """The columns of everything that a job says; a value said twice counts as it was said last."""
    rows: dict[tuple[int, int], int] = {}
    cells: dict[str, _Cells] = {}
    ranks: set[int] = set()
    layouts: dict[int, Layout] = {}
    for one in said:
        if isinstance(one, Event):
            layout = layout_from_event(one) if one.kind is EventKind.RUN_START else None
            if layout is not None:
                layouts[one.attempt] = layout
            continue
        row = rows.setdefault((one.attempt, one.iteration), len(rows))
        ranks.add(one.rank)
        for name, value in one.metrics.items():
            cell = cells.get(name)
            if cell is None:
                cell = cells[name] = _Cells()
            cell.rows.append(row)
            cell.ranks.append(one.rank)
            cell.values.append(value)
    return _columns(rows, sorted(ranks), cells, layouts)


def align(faulty: Recording, twin: Recording) -> tuple[Recording, Recording]:
    """Both at the positions and ranks that both have: a faulty run may end early, or lose a rank."""
    keys = [
        set(zip(run.attempts_T.tolist(), run.iterations_T.tolist(), strict=True)) for run in (faulty, twin)
    ]
    both = keys[0] & keys[1]
    ranks = sorted({*faulty.ranks_R.tolist()} & {*twin.ranks_R.tolist()})
    return _restrict(faulty, both, ranks), _restrict(twin, both, ranks)


def _restrict(run: Recording, positions: set[tuple[int, int]], ranks: list[int]) -> Recording:
    pairs = zip(run.attempts_T.tolist(), run.iterations_T.tolist(), strict=True)
    rows = np.array([row for row, pair in enumerate(pairs) if pair in positions], dtype=np.int64)
    columns = np.array([run.ranks_R.tolist().index(rank) for rank in ranks], dtype=np.int64)
    if len(rows) == len(run) and len(columns) == len(run.ranks_R):
        return run
    return _at(run, rows, columns, run.layout)


def _at(run: Recording, rows: Ints, columns: Ints, layout: Layout | None) -> Recording:
    """Some positions and ranks of a recording."""
    at = np.ix_(rows, columns)
    return Recording(
        run.attempts_T[rows],
        run.iterations_T[rows],
        run.ranks_R[columns],
        {name: values[at] for name, values in run.numbers.items()},
        {name: values[at] for name, values in run.checksums.items()},
        {name: flags[at] for name, flags in run.present.items()},
        layout,
        run.layouts,
    )


def _columns(
    rows: dict[tuple[int, int], int],
    ranks: list[int],
    cells: dict[str, _Cells],
    layouts: Mapping[int, Layout],
) -> Recording:
    order = sorted(rows)
    place = np.empty(len(rows), dtype=np.int64)
    place[[rows[key] for key in order]] = np.arange(len(order))
    column = {rank: at for at, rank in enumerate(ranks)}
    shape = (len(rows), len(ranks))
    numbers: dict[str, Floats] = {}
    sums: dict[str, Bits] = {}
    present: dict[str, Flags] = {}
    for name, cell in cells.items():
        at = (place[cell.rows], np.array([column[rank] for rank in cell.ranks]))
        present[name] = np.zeros(shape, dtype=np.bool_)
        present[name][at] = True
        if is_checksum(name):
            sums[name] = np.zeros(shape, dtype=np.uint64)
            # both halves of a longer checksum count; unequal sums do not fold to equal ones by chance
            folded = [(int(value) ^ (int(value) >> 64)) & _LOW_64 for value in cell.values]
            sums[name][at] = np.array(folded, dtype=np.uint64)
        else:
            numbers[name] = np.full(shape, np.nan)
            numbers[name][at] = cell.values
    pairs = np.array(order, dtype=np.int64).reshape(-1, 2)
    return Recording(
        pairs[:, 0], pairs[:, 1], np.array(ranks), numbers, sums, present, layouts.get(0), layouts
    )


def _mean_over_ranks(values_TR: Floats, present_TR: Flags) -> Floats:
    """The mean of what was reported, as a trainer that logs one curve reduces it: NaN wins."""
    count_T = present_TR.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        total_T = np.where(present_TR, values_TR, 0.0).sum(axis=1)
        mean_T: Floats = np.where(count_T > 0, total_T / count_T, np.nan)
    return mean_T[:, None]
