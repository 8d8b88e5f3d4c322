"""The counters of the lines of a log become iterations.

Axes: N lines with values or counters, in the order of the log.

A step counts on by itself; a batch of an epoch counts from the epoch's beginning (epoch × length + batch);
values without a counter belong to the counter that was printed last, by the same printer if there are
several; where nothing counts, records are numbered.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from firstfault.telemetry import MAX_ITERATION
from ingest.blocks import Flags, Floats, Ints

from .counting import Style
from .numbering import BareNumbers

_STEPS = (Style.FIRST, Style.IN_EPOCH, Style.NAMED)
_MAX_EPOCHS = 1 << 16
"""Beginnings of epochs that are remembered, for a log that goes back to one."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The counters of N lines, NaN where a line has none.

    ``is_telling_N`` are the lines that have values which make a record, ``is_record_N`` those that give
    one at all, ``printer_N`` says who printed it. Lines of one ``series_N`` report the same keys; ``value_N``
    is the first that tells.
    """

    style_N: Ints
    step_N: Floats
    total_N: Floats
    epoch_N: Floats
    epoch_total_N: Floats
    is_telling_N: Flags
    is_record_N: Flags
    printer_N: Ints
    series_N: Ints
    value_N: Floats

    def printers(self) -> list[int]:
        """Those who printed, ascending."""
        first = int(self.printer_N[0])
        if (self.printer_N == first).all():
            return [first]
        return [int(printer) for printer in np.unique(self.printer_N)]


@dataclass(slots=True)
class _Hand:
    """Where one printer stands."""

    iteration: float = np.nan
    epoch: float = np.nan
    epoch_total: float = np.nan
    counted_epoch: float = np.nan
    """The epoch that ``offset`` was found for."""
    offset: float = 0.0
    base: int = 0
    is_in_epoch: bool | None = None
    last_step: float = np.nan
    interval: float = 1.0
    starts: dict[float, float] = field(default_factory=dict)


class Clock:
    """Tells the iteration of each line; the state is a left fold over the lines."""

    def __init__(self) -> None:
        self._hands: dict[int, _Hand] = {}
        self._last: _Hand | None = None
        self._counts_bars: bool | None = None
        """Whether progress bars count (or named steps); None until a record has shown it."""
        self._bar_total = np.nan
        self._has_steps = False
        self._bare = BareNumbers()
        self.glued_length = 0.0
        """Length of an epoch, where iterations are made of epochs and steps in them."""

    def iterations(self, counted: Counted) -> Ints:
        """The iteration of each line."""
        if not len(counted.step_N):
            return np.empty(0, np.int64)
        step_N = self._believed(counted)
        iteration_N = np.full(len(step_N), np.nan)
        for printer in counted.printers():
            rows_N = np.flatnonzero(counted.printer_N == printer)
            hand = self._hands.setdefault(printer, _Hand())
            iteration_N[rows_N] = self._of_printer(counted, step_N, rows_N, hand)
        if not self._has_steps:  # epochs count only until steps do
            steps_N = np.flatnonzero(~np.isnan(step_N))
            until = int(steps_N[0]) if len(steps_N) else len(step_N)
            self._has_steps = len(steps_N) > 0
            iteration_N[:until] = counted.epoch_N[:until]
        return self._filled(counted, iteration_N)

    def _believed(self, counted: Counted) -> Floats:
        """The steps that count; of a bar beside named steps, or of another bar, none does."""
        step_N = counted.step_N.copy()
        is_bar_N = counted.style_N == Style.BAR
        if not is_bar_N.any() and self._counts_bars is not True and np.isnan(self._bar_total):
            if self._counts_bars is None and (np.isin(counted.style_N, _STEPS) & counted.is_record_N).any():
                self._counts_bars = False
            return step_N
        has_bar = not np.isnan(self._bar_total)
        for at in np.flatnonzero(counted.is_record_N | is_bar_N).tolist():
            if is_bar_N[at]:
                has_bar = True
                if self._counts_bars is None and counted.is_telling_N[at]:
                    is_last = counted.step_N[at] == counted.total_N[at] and self._knows_epoch(counted, at)
                    self._counts_bars, self._bar_total = not is_last, counted.total_N[at]
                elif (self._counts_bars and counted.is_telling_N[at]) or self._counts_bars is None:
                    self._bar_total = counted.total_N[at]
                is_other = counted.total_N[at] != self._bar_total
                if self._counts_bars is False or is_other:
                    step_N[at] = np.nan
            elif counted.style_N[at] in _STEPS:
                if self._counts_bars is None:
                    self._counts_bars = False
                elif self._counts_bars:
                    step_N[at] = np.nan
            elif counted.is_telling_N[at] and has_bar and self._counts_bars is None:
                self._counts_bars = True
        return step_N

    def _knows_epoch(self, counted: Counted, at: int) -> bool:
        """Whether an epoch was named: where only the full bar of each is logged, epochs count."""
        if (counted.epoch_N[: at + 1] >= 0).any():
            return True
        return any(hand.epoch >= 0 for hand in self._hands.values())

    def _of_printer(self, counted: Counted, step_N: Floats, rows_N: Ints, hand: _Hand) -> Floats:
        epoch_N = _forward(counted.epoch_N[rows_N], hand.epoch)
        epochs_N = _forward(counted.epoch_total_N[rows_N], hand.epoch_total)
        hand.epoch, hand.epoch_total = float(epoch_N[-1]), float(epochs_N[-1])
        steps_N = step_N[rows_N]
        found_N = np.full(len(rows_N), np.nan)
        at_C = np.flatnonzero(~np.isnan(steps_N))
        if len(at_C):
            changes = np.flatnonzero(_differs(epoch_N[at_C])) + 1
            for part in np.split(at_C, changes):
                first = part[0]
                row = rows_N[first]
                self._enter(
                    hand,
                    Style(int(counted.style_N[row])),
                    (steps_N[first], counted.total_N[row]),
                    (epoch_N[first], epochs_N[first]),
                )
                found_N[part] = steps_N[part] + hand.offset
                self._leave(hand, steps_N[part])
        return found_N

    def _enter(
        self, hand: _Hand, style: Style, step: tuple[float, float], epoch: tuple[float, float]
    ) -> None:
        """Note the first step of a stretch inside one epoch."""
        (now, total), (at, _) = step, epoch
        if np.isnan(at) or at == hand.counted_epoch:
            return
        if np.isnan(hand.counted_epoch):
            self._begin(hand, style, step, epoch)
        elif hand.is_in_epoch is None:
            hand.is_in_epoch = bool(now < hand.last_step)
        if hand.is_in_epoch and not np.isnan(hand.counted_epoch):
            self._next_epoch(hand, now, total, at)
        hand.counted_epoch = at
        if len(hand.starts) < _MAX_EPOCHS:
            hand.starts.setdefault(at, hand.offset)

    def _begin(
        self, hand: _Hand, style: Style, step: tuple[float, float], epoch: tuple[float, float]
    ) -> None:
        (now, total), (at, epochs) = step, epoch
        hand.base = 1 if at == 1 or (at > 1 and now != 0) else 0
        if style in (Style.IN_EPOCH, Style.BAR, Style.FIRST):
            hand.is_in_epoch = True
        elif at - hand.base >= 1 and now < at - hand.base:
            hand.is_in_epoch = True  # more epochs than steps were made
        elif epochs >= 1 and total >= 1 and abs(now / total - (at - hand.base) / epochs) > 1.5 / epochs:
            hand.is_in_epoch = True
        if hand.is_in_epoch and total >= 1:
            hand.offset = (at - hand.base) * total
            self.glued_length = total

    def _next_epoch(self, hand: _Hand, now: float, total: float, at: float) -> None:
        length = total if total >= 1 else hand.last_step + hand.interval
        if at < hand.counted_epoch:  # a restart
            hand.offset = hand.starts.get(at, max(at - hand.base, 0) * (total if total >= 1 else 0.0))
            return
        if not total >= 1 and now > hand.last_step:
            return  # goes on over the border
        hand.offset += (at - hand.counted_epoch) * length
        self.glued_length = length

    def _leave(self, hand: _Hand, steps_N: Floats) -> None:
        if len(steps_N) > 1 and steps_N[-1] > steps_N[-2]:
            hand.interval = float(steps_N[-1] - steps_N[-2])
        elif steps_N[-1] > hand.last_step:
            hand.interval = float(steps_N[-1] - hand.last_step)
        hand.last_step = float(steps_N[-1])

    def _filled(self, counted: Counted, iteration_N: Floats) -> Ints:
        """Lines without a counter get that of their printer, or else anyone's, or are numbered."""
        out_N = np.where(np.isnan(iteration_N), -1.0, iteration_N)
        filled_N = out_N.copy()
        for printer, hand in self._hands.items():
            rows_N = np.flatnonzero(counted.printer_N == printer)
            if len(rows_N):
                own_N = _forward(np.where(out_N[rows_N] < 0, np.nan, out_N[rows_N]), hand.iteration)
                hand.iteration = float(own_N[-1])
                filled_N[rows_N] = np.where(np.isnan(own_N), -1.0, own_N)
        missing_N = filled_N < 0
        if missing_N.any():
            anyone = np.nan if self._last is None else self._last.iteration
            others_N = _forward(np.where(out_N < 0, np.nan, out_N), anyone)
            filled_N = np.where(missing_N & ~np.isnan(others_N), others_N, filled_N)
        known_N = np.flatnonzero(out_N >= 0)
        if len(known_N):
            self._last = _Hand(iteration=float(out_N[known_N[-1]]))
        self._number(counted, filled_N)
        return np.clip(filled_N, 0, MAX_ITERATION).astype(np.int64)

    def _number(self, counted: Counted, filled_N: Floats) -> None:
        """Give records without a counter, or with that of a bar that stands still, numbers that rise."""
        bare_N = counted.is_record_N & (filled_N < 0)
        if self._counts_bars:
            bare_N |= counted.is_record_N & np.isnan(counted.step_N)
        for at in np.flatnonzero(bare_N).tolist():
            filled_N[at] = self._bare.number(
                filled_N[at],
                int(counted.series_N[at]) if counted.is_telling_N[at] else 0,
                float(counted.value_N[at]),
            )


def _forward(values_N: Floats, before: float) -> Floats:
    """Each NaN replaced by the last value in front of it, or ``before``."""
    known_N = ~np.isnan(values_N)
    last_N = np.maximum.accumulate(np.where(known_N, np.arange(1, len(values_N) + 1), 0))
    filled: Floats = np.concatenate(([before], values_N))[last_N]
    return filled


def _differs(values_N: Floats) -> Flags:
    """Where a value is not that before it; NaN is the same as NaN."""
    before, after = values_N[:-1], values_N[1:]
    different: Flags = (before != after) & ~(np.isnan(before) & np.isnan(after))
    return different
