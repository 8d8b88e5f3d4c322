"""Values in slots become the columns of records.

Axes: N lines that give values or a counter, in the order of the log; S lines of one shape, K slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from zlib import crc32

import numpy as np

from firstfault.telemetry import MAX_ATTEMPT, MAX_RANK, WHOLE_ITERATION
from ingest.blocks import Flags, Floats, Ints, NumberColumn, RecordBatch

from .clock import Counted
from .counting import Counter, Style
from .losses import LOSS, is_loss
from .plans import Kind, Plan, Value, is_telling

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
    order_N = np.argsort(line_N, kind="stable")
    place_N = np.empty(len(order_N), np.int64)
    place_N[order_N] = np.arange(len(order_N))
    places = np.split(place_N, np.cumsum([len(part.line_S) for part in parts])[:-1]) if parts else []
    counters = [_counters(part) for part in parts]

    def column(name: int, kind: type[np.generic]) -> np.ndarray:
        joined = np.concatenate([each[name] for each in counters]) if parts else np.empty(0)
        return joined[order_N].astype(kind)

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
    return Lines(line_N[order_N], counted, places, tuple(parts))


def _counters(part: Part) -> tuple[np.ndarray, ...]:
    plan, size = part.plan, len(part.line_S)
    counter = _training_counter(plan)
    step_S = _whole(part.slot(counter.step))
    return (
        np.full(size, counter.style),
        step_S,
        part.slot(counter.total),
        _whole(part.slot(counter.epoch)),
        part.slot(counter.epoch_total),
        np.full(size, any(is_telling(value) for value in plan.values)),
        np.full(size, plan.kind is not Kind.COUNTER),
        part.printer_S,
        np.full(size, _series(plan)),
        _first_telling(part),
    )


def _series(plan: Plan) -> int:
    """A number that is the same for lines that report the same keys."""
    return crc32("\n".join(value.key for value in plan.values).encode()) + 1


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
        whole: Floats = np.where((values_S >= 0) & (values_S == np.floor(values_S)), values_S, np.nan)
    return whole


def columns_of(lines: Lines, changes: list[tuple[int, str]], keep_N: Flags) -> dict[str, NumberColumn]:
    """The metrics of the lines that give a record."""
    size = len(lines.line_N)
    values: dict[str, Floats] = {}
    present: dict[str, Flags] = {}
    for part, place_S in zip(lines.parts, lines.places, strict=True):
        for value in part.plan.values if part.plan.kind is not Kind.COUNTER else ():
            numbers_S = _numbers(part, value)
            chosen_S = _chosen(value, part, changes)
            for name, which_S in ((LOSS, chosen_S), (value.name, ~chosen_S)):
                if not which_S.any():
                    continue
                if name not in values:
                    if len(values) >= MAX_METRICS:
                        continue
                    values[name], present[name] = np.full(size, np.nan), np.zeros(size, np.bool_)
                values[name][place_S[which_S]] = numbers_S[which_S]
                present[name][place_S[which_S]] = True
    return {
        name: NumberColumn(values[name][keep_N], present[name][keep_N])
        for name in values
        if present[name][keep_N].any()
    }


def _numbers(part: Part, value: Value) -> Floats:
    if value.slot < 0:
        return np.full(len(part.line_S), value.constant)
    values: Floats = part.values_SK[:, value.slot]
    return values * value.factor if value.factor != 1.0 else values


def _chosen(value: Value, part: Part, changes: list[tuple[int, str]]) -> Flags:
    if value.loss_order is None:
        return np.zeros(len(part.line_S), np.bool_)
    return is_loss(value.key, part.line_S, changes)


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
