"""Scalars that were logged one by one, each with a step of its own, as records.

TensorBoard, MLflow and W&B keep (name, step, time, value). Values of one step become one record; a
series whose step goes back tells a restart; a series that counts something else (epochs, samples) is
placed by its times. Axes: P points, N records.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from firstfault.telemetry import MAX_ITERATION, UNNAMED_RANK, WHOLE_ITERATION
from firstfault.wire import Defaults

from .blocks import Flags, Floats, Ints, NumberColumn, RecordBatch, Rejected
from .columns import MAX_CELLS
from .scalar_steps import attempts_of, place_by_time

MAX_POINTS = 1 << 25
"""Values kept of one run: 33 million, 1 GB as columns, far beyond what a tracker can show."""
_TOLD = 5
"""Series that are named in a sentence; more of them say nothing new."""


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

    def of_parts(self, parts: Collection[int]) -> Points:
        """The scalars that came from these files alone."""
        keep = np.flatnonzero(np.isin(np.array(self.part_P, np.int64), list(parts)))
        other = Points(names=dict(self.names))
        for mine, theirs in (
            (self.name_P, other.name_P),
            (self.step_P, other.step_P),
            (self.time_P, other.time_P),
            (self.value_P, other.value_P),
            (self.part_P, other.part_P),
        ):
            theirs.frombytes(np.array(mine)[keep].tobytes())
        return other


class Meanings(Protocol):
    """What names mean, as `scalar_names.Named` says it; a name without a metric is left out."""

    @property
    def metrics(self) -> Mapping[str, str]: ...

    @property
    def scales(self) -> Mapping[str, float]: ...

    @property
    def summed(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Assembled:
    """Points with what was concluded of them: the place of each, and sentences about it."""

    iteration_P: Ints
    attempt_P: Ints
    remarks: tuple[str, ...]
    counter: str


def assemble(points: Points, counter: str = "step", step_P: Ints | None = None) -> Assembled:
    """The attempt and the iteration of each point; ``step_P`` are steps in another counter than their own."""
    name_P = np.array(points.name_P, np.int64)
    step_P = np.array(points.step_P, np.int64) if step_P is None else step_P
    time_P, part_P = np.array(points.time_P, np.float64), np.array(points.part_P, np.int64)
    remarks: list[str] = []
    if len(step_P) > 1 and not step_P.any() and len(points.names) < len(step_P):
        step_P, counter = _occurrence(name_P), "row number"
        remarks.append("every step is 0: values are counted in the order in which they were logged")
    names = list(points.names)
    step_P, moved = place_by_time(name_P, step_P, time_P)
    remarks += [
        f"{names[at]!r} counts something else: placed at the steps of the others by its times"
        for at in moved[:_TOLD]
    ]
    attempt_P = attempts_of(name_P, step_P, part_P)
    return Assembled(step_P, attempt_P, tuple(remarks), counter)


def batches(
    points: Points,
    assembled: Assembled,
    meaning: Meanings,
    defaults: Defaults,
    *,
    source: str,
    rejected: tuple[Rejected, ...] = (),
) -> Iterator[RecordBatch]:
    """The records, ascending by attempt and iteration, in batches within the cell budget."""
    rows = _Rows.of(points, assembled, meaning)
    height = max(1, MAX_CELLS // max(1, len(set(rows.metrics))))
    refused = (*rejected, *_refused(points, source))
    for low in range(0, max(len(rows), 1), height):
        batch = with_sum(rows.batch(low, min(low + height, len(rows)), defaults), meaning.summed)
        yield replace(batch, rejected=refused) if low == 0 else batch


@dataclass(frozen=True, slots=True)
class _Rows:
    """Points in the order of the records that they become; N records with keys, each from its first point."""

    metrics: list[str | None]
    keys_N2: Ints
    first_N: Ints
    row_P: Ints
    name_P: Ints
    value_P: Floats
    time_P: Floats

    def __len__(self) -> int:
        return len(self.keys_N2)

    @classmethod
    def of(cls, points: Points, assembled: Assembled, meaning: Meanings) -> _Rows:
        metrics = [meaning.metrics.get(name) for name in points.names]
        scale_M = np.array([meaning.scales.get(name, 1.0) for name in points.names])
        is_wanted = np.array([metric is not None for metric in metrics], np.bool_)
        name_P = np.array(points.name_P, np.int64)
        wanted = np.flatnonzero(is_wanted[name_P])
        name_P = name_P[wanted]
        iteration_P, attempt_P = assembled.iteration_P[wanted], assembled.attempt_P[wanted]
        copy_P = _copies(name_P, iteration_P, attempt_P)
        order = np.lexsort((name_P, copy_P, iteration_P, attempt_P))
        keys_P3 = np.stack((attempt_P, iteration_P, copy_P), axis=1)[order]
        is_new_P = np.ones(len(order), np.bool_)
        is_new_P[1:] = (keys_P3[1:] != keys_P3[:-1]).any(axis=1)
        by_order = wanted[order]
        return cls(
            metrics=metrics,
            keys_N2=keys_P3[is_new_P][:, :2],
            first_N=np.flatnonzero(is_new_P),
            row_P=np.cumsum(is_new_P) - 1,
            name_P=name_P[order],
            value_P=np.array(points.value_P)[by_order] * scale_M[name_P[order]],
            time_P=np.array(points.time_P)[by_order],
        )

    def batch(self, low: int, high: int, defaults: Defaults) -> RecordBatch:
        """The records from ``low`` up to ``high``."""
        size = high - low
        last = self.first_N[high] if high < len(self) else len(self.row_P)
        part = slice(self.first_N[low] if size else 0, last)
        row_P, time_P = self.row_P[part] - low, self.time_P[part]
        time_N = np.full(size, -np.inf)
        np.maximum.at(time_N, row_P, np.where(np.isfinite(time_P), time_P, -np.inf))
        return RecordBatch(
            runs=(defaults.run or "",),
            run_N=np.zeros(size, np.int32),
            attempt_N=self.keys_N2[low:high, 0].astype(np.int32),
            rank_N=np.full(size, UNNAMED_RANK if defaults.rank is None else defaults.rank, np.int32),
            iteration_N=self.keys_N2[low:high, 1],
            microbatch_N=np.full(size, WHOLE_ITERATION, np.int32),
            time_N=np.where(np.isfinite(time_N), time_N, np.nan),
            numbers=self._columns(row_P, self.name_P[part], self.value_P[part], size),
        )

    def _columns(self, row_P: Ints, name_P: Ints, value_P: Floats, size: int) -> dict[str, NumberColumn]:
        by_name = np.argsort(name_P, kind="stable")
        borders = np.searchsorted(name_P[by_name], np.arange(len(self.metrics) + 1))
        numbers: dict[str, NumberColumn] = {}
        for at, metric in enumerate(self.metrics):
            mine = by_name[borders[at] : borders[at + 1]]
            if metric is None or not len(mine):
                continue
            values_N, present_N = np.full(size, np.nan), np.zeros(size, np.bool_)
            values_N[row_P[mine]] = value_P[mine]
            values_N[np.isnan(values_N)] = np.nan  # one NaN for all: conflicts are settled by bit patterns
            present_N[row_P[mine]] = True
            numbers[metric] = NumberColumn(values_N, present_N)
        return numbers


def with_sum(batch: RecordBatch, summed: Sequence[str]) -> RecordBatch:
    """The batch with the loss as the sum of the metrics ``summed``, where all of them were reported."""
    parts = [batch.numbers[name] for name in summed if name in batch.numbers]
    if not parts or len(parts) < len(summed):
        return batch
    present_N = np.logical_and.reduce([part.present_N for part in parts])
    total_N = np.where(present_N, np.sum([part.values_N for part in parts], axis=0), np.nan)
    return replace(batch, numbers={**batch.numbers, "loss": NumberColumn(total_N, present_N)})


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
