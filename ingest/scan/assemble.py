"""Values in slots become the columns of records.

Axes: N lines that give values or a counter, in the order of the log; S lines of one shape, K slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from firstfault.telemetry import MAX_ATTEMPT, MAX_ITERATION, MAX_RANK, WHOLE_ITERATION
from ingest.blocks import Flags, Floats, Ints, NumberColumn, RecordBatch

from .clock import Counted
from .counting import Counter, Style
from .losses import LOSS, is_loss
from .lost_losses import LOST
from .plans import Kind, Plan, Value, is_telling

MAX_CELLS = 1 << 24
"""Lines times metrics of one piece: 150 MB as columns. Reached only by made-up names."""
_LEAST_METRICS = 64
MAX_METRICS = 4096
"""Metrics of one piece: twice the layers of a large model; beyond, names with numbers in them are made up."""


@dataclass(slots=True)
class Part:
    """Lines that are read by one plan."""

    plan: Plan
    line_S: Ints
    values_SK: Floats
    printer_S: Ints

    def slot(self, slot: int) -> Floats:
        """The numbers of a slot; NaN where the plan has none."""
        if slot < 0:
            return np.full(len(self.line_S), np.nan)
        values: Floats = self.values_SK[:, slot]
        return values


@dataclass(frozen=True, slots=True)
class Lines:
    """All lines of a piece that give something, sorted; ``place`` says where the lines of a part went."""

    line_N: Ints
    counted: Counted
    places: Sequence[Ints]
    parts: Sequence[Part] = field(default_factory=tuple)


def gather(parts: Sequence[Part]) -> Lines:
    """The counters of all parts in the order of the log."""
    line_N = np.concatenate([part.line_S for part in parts]) if parts else np.empty(0, np.int64)
    order_N = None if (np.diff(line_N) > 0).all() else np.argsort(line_N, kind="stable")
    place_N = np.arange(len(line_N))
    if order_N is not None:
        line_N = line_N[order_N]
        place_N[order_N] = np.arange(len(order_N))
    ends = np.cumsum([len(part.line_S) for part in parts]).tolist()
    places = [place_N[end - len(part.line_S) : end] for part, end in zip(parts, ends, strict=True)]
    counters = [_counters(part) for part in parts]

    def column(name: int, kind: type[np.generic]) -> NDArray[Any]:
        cells = [each[name] for each in counters] or [np.empty(0)]
        joined = cells[0] if len(cells) == 1 else np.concatenate(cells)
        return (joined if order_N is None else joined[order_N]).astype(kind, copy=False)

    counted = Counted(
        style_N=column(0, np.int64),
        step_N=column(1, np.float64),
        total_N=column(2, np.float64),
        epoch_N=column(3, np.float64),
        epoch_total_N=column(4, np.float64),
        is_telling_N=column(5, np.bool_),
        is_record_N=column(6, np.bool_),
        printer_N=column(7, np.int64),
        series_N=column(8, np.int64),
        value_N=column(9, np.float64),
    )
    return Lines(line_N, counted, places, tuple(parts))


def _counters(part: Part) -> tuple[NDArray[Any], ...]:
    plan, size = part.plan, len(part.line_S)
    counter = _training_counter(plan)
    step_S = _whole(part.slot(counter.step))
    return (
        np.full(size, counter.style),
        step_S,
        _whole(part.slot(counter.total)),
        _whole(part.slot(counter.epoch)),
        _whole(part.slot(counter.epoch_total)),
        np.full(size, any(is_telling(value) for value in plan.values)),
        np.full(size, plan.kind is not Kind.COUNTER),
        part.printer_S,
        np.full(size, _series(plan)),
        _first_telling(part),
    )


def _series(plan: Plan) -> int:
    """A number that is the same for lines that report the same, told by the first value that tells."""
    telling = next((value.key for value in plan.values if is_telling(value)), "")
    return crc32(telling.encode()) + 1


def _first_telling(part: Part) -> Floats:
    telling = next((value for value in part.plan.values if is_telling(value)), None)
    return np.full(len(part.line_S), np.nan) if telling is None else _numbers(part, telling)


def _training_counter(plan: Plan) -> Counter:
    """The counter of a plan; batches of a validation say nothing of the iteration."""
    counter = plan.counter
    if plan.is_evaluation and counter.style in (Style.BAR, Style.IN_EPOCH, Style.FIRST):
        return Counter(epoch=counter.epoch, epoch_total=counter.epoch_total)
    return counter


def _whole(values_S: Floats) -> Floats:
    with np.errstate(invalid="ignore"):
        is_whole_S = (values_S >= 0) & (values_S <= MAX_ITERATION) & (values_S == np.floor(values_S))
        whole: Floats = np.where(is_whole_S, values_S, np.nan)
    return whole


def columns_of(lines: Lines, changes: list[tuple[int, str]], keep_N: Flags) -> dict[str, NumberColumn]:
    """The metrics of the lines that give a record."""
    columns = _Columns(len(lines.line_N))
    for part, all_S in zip(lines.parts, lines.places, strict=True):
        unset_S = _part_begins(part)
        for value in part.plan.values if part.plan.kind is not Kind.COUNTER else ():
            if value.is_lost:
                _put_lost(columns, part, all_S, value, changes)
                continue
            numbers_S = _numbers(part, value)
            line_S = part.line_S
            if unset_S is not None and not (keep_S := ~unset_S | np.isfinite(numbers_S)).all():
                numbers_S, line_S, place_S = numbers_S[keep_S], line_S[keep_S], all_S[keep_S]
            else:
                place_S = all_S
            chosen_S = None if value.loss_order is None else is_loss(value.key, line_S, changes)
            if chosen_S is None or not chosen_S.any():
                columns.put(value.name, place_S, numbers_S)
            elif chosen_S.all():
                columns.put(LOSS, place_S, numbers_S)
            else:
                columns.put(LOSS, place_S[chosen_S], numbers_S[chosen_S])
                columns.put(value.name, place_S[~chosen_S], numbers_S[~chosen_S])
    return columns.kept(keep_N)


def _put_lost(
    columns: _Columns, part: Part, place_S: Ints, value: Value, changes: list[tuple[int, str]]
) -> None:
    """Mark the lines on which what is the loss there is lost."""
    if value.loss_order is None:
        return
    chosen_S = is_loss(value.key, part.line_S, changes)
    if chosen_S.any():
        columns.put(LOST, place_S[chosen_S], np.ones(int(chosen_S.sum())))


def _part_begins(part: Part) -> Flags | None:
    """Where a bar stands at 0: nothing was computed yet, and a nan or inf is what its means begin with."""
    counter = part.plan.counter
    if not counter.is_bar or counter.step < 0:
        return None
    begins_S: Flags = part.slot(counter.step) == 0
    return begins_S


class _Columns:
    """Columns that are filled in part by part."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._columns: dict[str, tuple[Floats, Flags]] = {}

    def put(self, name: str, place_S: Ints, numbers_S: Floats) -> None:
        """Values of a metric; those of one metric too many are left out."""
        if name not in self._columns:
            if len(self._columns) >= min(MAX_METRICS, max(_LEAST_METRICS, MAX_CELLS // self._size)):
                return
            if len(place_S) == self._size:  # all lines, which hence are in order
                self._columns[name] = numbers_S.copy(), np.ones(self._size, np.bool_)
                return
            self._columns[name] = np.full(self._size, np.nan), np.zeros(self._size, np.bool_)
        values_N, present_N = self._columns[name]
        values_N[place_S] = numbers_S
        present_N[place_S] = True

    def kept(self, keep_N: Flags) -> dict[str, NumberColumn]:
        """The columns at some of the lines, without those that are empty there."""
        if keep_N.all():
            return {name: NumberColumn(*column) for name, column in self._columns.items()}
        return {
            name: NumberColumn(values_N[keep_N], present_N[keep_N])
            for name, (values_N, present_N) in self._columns.items()
            if present_N[keep_N].any()
        }


def _numbers(part: Part, value: Value) -> Floats:
    if value.slot < 0:
        return np.full(len(part.line_S), value.constant)
    values: Floats = part.values_SK[:, value.slot]
    return values * value.factor if value.factor != 1.0 else values


def batch_of(
    run: str, iteration_N: Ints, rank_N: Ints, numbers: dict[str, NumberColumn], attempt: int = 0
) -> RecordBatch:
    """Records of one run as a batch."""
    size = len(iteration_N)
    return RecordBatch(
        runs=(run,),
        run_N=np.zeros(size, np.int32),
        attempt_N=np.full(size, min(attempt, MAX_ATTEMPT), np.int32),
        rank_N=np.clip(rank_N, -1, MAX_RANK).astype(np.int32),
        iteration_N=iteration_N,
        microbatch_N=np.full(size, WHOLE_ITERATION, np.int32),
        time_N=np.full(size, np.nan),
        numbers=numbers,
    )
