"""Scalars that were logged one by one, each with a step of its own, as records.

TensorBoard, MLflow and W&B keep (name, step, time, value). Values of one step become one record; a
series whose step goes back tells a restart; a series that counts something else (epochs, samples) is
placed by its times. Axes: P points, N records.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from firstfault.telemetry import MAX_ITERATION, WHOLE_ITERATION

from .blocks import Flags, Floats, Ints, NumberColumn, RecordBatch, Rejected
from .columns import MAX_CELLS
from .scalar_steps import attempts_of, place_by_time

MAX_POINTS = 1 << 25
"""Values kept of one run: 33 million, 1 GB as columns, far beyond what a tracker can show."""


@dataclass(slots=True)
class Points:
    """The scalars of one run in the order in which they were logged."""

    names: dict[str, int] = field(default_factory=dict)
    name_P: array[int] = field(default_factory=lambda: array("l"))
    step_P: array[int] = field(default_factory=lambda: array("q"))
    time_P: array[float] = field(default_factory=lambda: array("d"))
    value_P: array[float] = field(default_factory=lambda: array("d"))
    part_P: array[int] = field(default_factory=lambda: array("l"))
    """The file of the run that each came from, counted from 0."""
    refused: int = 0
    """Values with a step that is no iteration, or beyond `MAX_POINTS`."""

    def __len__(self) -> int:
        return len(self.step_P)

    def add(self, name: str, step: int, time: float, value: float, part: int = 0) -> None:
        """Take the next scalar."""
        if not 0 <= step <= MAX_ITERATION or len(self.step_P) >= MAX_POINTS:
            self.refused += 1
            return
        self.name_P.append(self.names.setdefault(name, len(self.names)))
        self.step_P.append(step)
        self.time_P.append(time)
        self.value_P.append(value)
        self.part_P.append(part)


@dataclass(frozen=True, slots=True)
class Assembled:
    """Points with what was concluded of them: the place of each, and sentences about it."""

    iteration_P: Ints
    attempt_P: Ints
    remarks: tuple[str, ...]
    counter: str


def assemble(points: Points, counter: str = "step") -> Assembled:
    """The attempt and the iteration of each point."""
    name_P, step_P = np.array(points.name_P, np.int64), np.array(points.step_P, np.int64)
    time_P, part_P = np.array(points.time_P, np.float64), np.array(points.part_P, np.int64)
    remarks: list[str] = []
    if len(step_P) > 1 and not step_P.any() and len(points.names) < len(step_P):
        step_P, counter = _occurrence(name_P), "row number"
        remarks.append("every step is 0: values are counted in the order in which they were logged")
    names = list(points.names)
    step_P, moved = place_by_time(name_P, step_P, time_P)
    for at in moved[:5]:
        remarks.append(f"{names[at]!r} counts something else: placed at the steps of the others by its times")
    attempt_P = attempts_of(name_P, step_P, part_P)
    return Assembled(step_P, attempt_P, tuple(remarks), counter)


def batches(
    points: Points, assembled: Assembled, metrics: Mapping[str, str], run: str, rank: int, source: str
) -> Iterator[RecordBatch]:
    """The records, ascending by attempt and iteration, in batches within the cell budget.

    ``metrics`` gives the name of the metric for each name; those that it lacks are left out.
    """
    kept = [metrics.get(name) for name in points.names]
    wanted_P = np.array([name is not None for name in kept], np.bool_)[np.array(points.name_P, np.int64)]
    name_P = np.array(points.name_P, np.int64)[wanted_P]
    value_P, time_P = np.array(points.value_P)[wanted_P], np.array(points.time_P)[wanted_P]
    iteration_P, attempt_P = assembled.iteration_P[wanted_P], assembled.attempt_P[wanted_P]
    copy_P = _copies(name_P, iteration_P, attempt_P)
    order = np.lexsort((name_P, copy_P, iteration_P, attempt_P))
    keys_P3 = np.stack((attempt_P, iteration_P, copy_P), axis=1)[order]
    is_new_P = np.ones(len(order), np.bool_)
    is_new_P[1:] = (keys_P3[1:] != keys_P3[:-1]).any(axis=1)
    row_P = np.cumsum(is_new_P) - 1
    row_keys_N3 = keys_P3[is_new_P]
    starts_N = np.flatnonzero(is_new_P)
    height = max(1, MAX_CELLS // max(1, len(set(kept))))
    refused = _refused(points, source)
    for low in range(0, max(len(row_keys_N3), 1), height):
        rows = slice(low, min(low + height, len(row_keys_N3)))
        first = int(starts_N[low]) if low < len(starts_N) else 0
        last = int(starts_N[rows.stop]) if rows.stop < len(starts_N) else len(order)
        part = order[first:last]
        yield _batch(
            row_keys_N3[rows], row_P[first:last] - low, name_P[part], value_P[part], time_P[part],
            kept, run, rank, refused if low == 0 else (),
        )  # fmt: skip


def _batch(
    keys_N3: Ints,
    row_P: Ints,
    name_P: Ints,
    value_P: Floats,
    time_P: Floats,
    kept: Sequence[str | None],
    run: str,
    rank: int,
    rejected: tuple[Rejected, ...],
) -> RecordBatch:
    size = len(keys_N3)
    time_N = np.full(size, -np.inf)
    np.maximum.at(time_N, row_P, np.where(np.isfinite(time_P), time_P, -np.inf))
    numbers: dict[str, NumberColumn] = {}
    by_name = np.argsort(name_P, kind="stable")
    borders = np.searchsorted(name_P[by_name], np.arange(len(kept) + 1))
    for at, metric in enumerate(kept):
        mine = by_name[borders[at] : borders[at + 1]]
        if metric is None or not len(mine):
            continue
        values_N, present_N = np.full(size, np.nan), np.zeros(size, np.bool_)
        values_N[row_P[mine]] = value_P[mine]
        values_N[np.isnan(values_N)] = np.nan  # one NaN for all: conflicts are settled by bit patterns
        present_N[row_P[mine]] = True
        numbers[metric] = NumberColumn(values_N, present_N)
    return RecordBatch(
        runs=(run,),
        run_N=np.zeros(size, np.int32),
        attempt_N=keys_N3[:, 0].astype(np.int32),
        rank_N=np.full(size, rank, np.int32),
        iteration_N=keys_N3[:, 1].astype(np.int64),
        microbatch_N=np.full(size, WHOLE_ITERATION, np.int32),
        time_N=np.where(np.isfinite(time_N), time_N, np.nan),
        numbers=numbers,
        rejected=rejected,
    )


def _refused(points: Points, source: str) -> tuple[Rejected, ...]:
    if not points.refused:
        return ()
    rule = f"must be from 0 to {MAX_ITERATION}, of at most {MAX_POINTS} values of a run"
    return (Rejected("step", rule, f"{points.refused} values", whole=False, source=source),)


def _occurrence(name_P: Ints) -> Ints:
    """How many values of its name came before each."""
    order = np.argsort(name_P, kind="stable")
    return _running(name_P[order][:, None], order)


def _copies(name_P: Ints, iteration_P: Ints, attempt_P: Ints) -> Ints:
    """How often the same name came at the same place before: each copy has a record of its own."""
    order = np.lexsort((name_P, iteration_P, attempt_P))
    return _running(np.stack((name_P, iteration_P, attempt_P), axis=1)[order], order)


def _running(keys_PK: Ints, order: Ints) -> Ints:
    """The place of each within its group of equal keys, which stand together in ``order``."""
    size = len(order)
    is_new_P: Flags = np.ones(size, np.bool_)
    is_new_P[1:] = (keys_PK[1:] != keys_PK[:-1]).any(axis=1)
    starts = np.flatnonzero(is_new_P)
    result_P = np.zeros(size, np.int64)
    if size:
        result_P[order] = np.arange(size) - np.repeat(starts, np.diff(np.append(starts, size)))
    return result_P
