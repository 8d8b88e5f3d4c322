"""The counters of the lines of a log become iterations.

Axes: N lines with values or counters, in the order of the log.

A step counts on by itself; a batch of an epoch counts from the epoch's beginning (epoch × length + batch);
values without a counter belong to the counter that was printed last, by the same printer if there are
several; where nothing counts, records are numbered.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from itertools import pairwise

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
    one at all, ``printer_N`` says who printed it. Lines of one ``series_N`` tell the same; ``value_N``
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

    def only(self, rows: Ints | slice) -> Counted:
        """Some of the lines."""
        if isinstance(rows, slice):
            return self
        return Counted(*(getattr(self, each.name)[rows] for each in fields(self)))

    def by_printer(self) -> Iterator[tuple[int, Ints | slice]]:
        """The lines of each who printed."""
        first = int(self.printer_N[0])
        if (self.printer_N == first).all():
            yield first, slice(None)
            return
        order_N = np.argsort(self.printer_N, kind="stable")
        borders = np.flatnonzero(np.diff(self.printer_N[order_N])) + 1
        for rows_N in np.split(order_N, borders):
            yield int(self.printer_N[rows_N[0]]), rows_N


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
        self._anyone = np.nan
        """The iteration printed last, by anyone."""
        self._counts_bars: bool | None = None
        """Whether progress bars count (or named steps); None until a record has shown it."""
        self._bars_from = 0
        """The first line of the piece from which on they do."""
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
        printers = list(counted.by_printer())
        for printer, rows in printers:
            hand = self._hands.setdefault(printer, _Hand())
            iteration_N[rows] = self._of_printer(counted.only(rows), step_N[rows], hand)
        if not self._has_steps:  # epochs count only until steps do
            steps_N = np.flatnonzero(~np.isnan(step_N))
            until = int(steps_N[0]) if len(steps_N) else len(step_N)
            self._has_steps = len(steps_N) > 0
            iteration_N[:until] = counted.epoch_N[:until]
        return self._filled(counted, iteration_N, printers)

    def _believed(self, counted: Counted) -> Floats:
        """The steps that count; of a bar beside named steps, or of another bar, none does."""
        step_N = counted.step_N.copy()
        self._bars_from = 0 if self._counts_bars else len(step_N)
        is_bar_N = counted.style_N == Style.BAR
        if not is_bar_N.any() and self._counts_bars is not True and np.isnan(self._bar_total):
            if self._counts_bars is None and (np.isin(counted.style_N, _STEPS) & counted.is_record_N).any():
                self._counts_bars = False
            return step_N
        has_bar = not np.isnan(self._bar_total)
        looked_J = np.flatnonzero(counted.is_record_N | is_bar_N)
        for place, at in enumerate(looked_J.tolist()):
            if self._counts_bars is not None:
                self._believe_rest(counted, looked_J[place:], step_N)
                break
            if is_bar_N[at]:
                has_bar = True
                if counted.is_telling_N[at]:
                    is_last = counted.step_N[at] == counted.total_N[at] and self._knows_epoch(counted, at)
                    self._counts_bars, self._bar_total = not is_last, counted.total_N[at]
                    self._bars_from = at if self._counts_bars else self._bars_from
                else:
                    self._bar_total = counted.total_N[at]
                is_other = counted.total_N[at] != self._bar_total
                if self._counts_bars is False or is_other:
                    step_N[at] = np.nan
            elif counted.style_N[at] in _STEPS:
                self._counts_bars = False
            elif counted.is_telling_N[at] and has_bar:
                self._counts_bars, self._bars_from = True, at
        return step_N

    def _believe_rest(self, counted: Counted, rows_J: Ints, step_N: Floats) -> None:
        """Take back, on the rows left of a piece, the steps that do not count, once it is known which do."""
        is_bar_J = counted.style_N[rows_J] == Style.BAR
        if not self._counts_bars:
            step_N[rows_J[is_bar_J]] = np.nan
            return
        total_J = counted.total_N[rows_J]
        told_J = np.maximum.accumulate(
            np.where(is_bar_J & counted.is_telling_N[rows_J], np.arange(len(rows_J)), -1)
        )
        bar_total_J = np.where(told_J >= 0, total_J[told_J], self._bar_total)  # of the last bar that tells
        self._bar_total = float(bar_total_J[-1])
        is_other_J = np.where(is_bar_J, total_J != bar_total_J, np.isin(counted.style_N[rows_J], _STEPS))
        step_N[rows_J[is_other_J]] = np.nan

    def _knows_epoch(self, counted: Counted, at: int) -> bool:
        """Whether an epoch was named: where only the full bar of each is logged, epochs count."""
        if (counted.epoch_N[: at + 1] >= 0).any():
            return True
        return any(hand.epoch >= 0 for hand in self._hands.values())

    def _of_printer(self, counted: Counted, steps_N: Floats, hand: _Hand) -> Floats:
        epoch_N = _forward(counted.epoch_N, hand.epoch)
        epochs_N = _forward(counted.epoch_total_N, hand.epoch_total)
        hand.epoch, hand.epoch_total = float(epoch_N[-1]), float(epochs_N[-1])
        counts_N = ~np.isnan(steps_N)
        if not counts_N.any():
            return np.full(len(steps_N), np.nan)
        at: Ints | slice = slice(None) if counts_N.all() else np.flatnonzero(counts_N)
        steps_C, epoch_C, epochs_C = steps_N[at], epoch_N[at], epochs_N[at]
        total_C, style_C = counted.total_N[at], counted.style_N[at]
        found_C = steps_C.copy()
        starts = [0, *(np.flatnonzero(_differs(epoch_C)) + 1).tolist(), len(steps_C)]
        for start, stop in pairwise(starts):
            step, epoch = (steps_C[start], total_C[start]), (epoch_C[start], epochs_C[start])
            self._enter(hand, Style(int(style_C[start])), step, epoch)
            found_C[start:stop] += hand.offset
            needs_no_length = bool(total_C[start] >= 1 or np.isnan(epoch_C[start]))
            self._leave(hand, steps_C[start:stop], has_length=needs_no_length)
        if isinstance(at, slice):
            return found_C
        found_N = np.full(len(steps_N), np.nan)
        found_N[at] = found_C
        return found_N

    def _enter(
        self, hand: _Hand, style: Style, step: tuple[float, float], epoch: tuple[float, float]
    ) -> None:
        """Note the first step of a stretch inside one epoch."""
        (now, total), (at, epochs) = step, epoch
        if np.isnan(at) or at == hand.counted_epoch:
            return
        if np.isnan(hand.counted_epoch):
            self._begin(hand, style, step, epoch)
        elif hand.is_in_epoch is None:
            hand.is_in_epoch = bool(now < hand.last_step)
        elif style is Style.BAR and hand.last_step < now <= total and epochs > 1:
            # a bar that goes on over the border, and is as far as all epochs are, is one of all of them
            hand.is_in_epoch = not abs(now / total - (at - hand.base) / epochs) <= 0.5 / epochs
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
        length = total if total >= 1 else hand.last_step + hand.interval - now
        if at < hand.counted_epoch:  # a restart
            hand.offset = hand.starts.get(at, max(at - hand.base, 0) * (total if total >= 1 else 0.0))
            return
        if not total >= 1 and now > hand.last_step:
            return  # goes on over the border
        hand.offset += (at - hand.counted_epoch) * length
        self.glued_length = length

    def _leave(self, hand: _Hand, steps_C: Floats, *, has_length: bool) -> None:
        """Note the last step of a stretch, and how far steps are apart where no epoch's length is told."""
        if not has_length:
            risen_C = np.diff(steps_C, prepend=hand.last_step)
            rises = np.flatnonzero(risen_C > 0)
            hand.interval = float(risen_C[rises[-1]]) if len(rises) else hand.interval
        hand.last_step = float(steps_C[-1])

    def _filled(
        self, counted: Counted, iteration_N: Floats, printers: Sequence[tuple[int, Ints | slice]]
    ) -> Ints:
        """Lines without a counter get that of their printer, or else anyone's, or are numbered."""
        filled_N = iteration_N.copy()
        for printer, rows in printers:
            hand = self._hands[printer]
            filled_N[rows] = own_N = _forward(iteration_N[rows], hand.iteration)
            hand.iteration = float(own_N[-1])
        anyone_N = _forward(iteration_N, self._anyone)
        self._anyone = float(anyone_N[-1])
        missing_N = np.isnan(filled_N)
        if missing_N.any():
            filled_N[missing_N] = anyone_N[missing_N]
        self._number(counted, filled_N)
        filled_N[np.isnan(filled_N)] = 0.0
        return np.clip(filled_N, 0, MAX_ITERATION, out=filled_N).astype(np.int64)

    def _number(self, counted: Counted, filled_N: Floats) -> None:
        """Give records without a counter, or with that of a bar that stands still, numbers that rise."""
        bare_N = counted.is_record_N & np.isnan(filled_N)
        with_bars = slice(self._bars_from, None)
        bare_N[with_bars] |= counted.is_record_N[with_bars] & np.isnan(counted.step_N[with_bars])
        rows = np.flatnonzero(bare_N)
        series_K = np.where(counted.is_telling_N[rows], counted.series_N[rows], 0)
        value_K = counted.value_N[rows]
        has_counters = not np.isnan(filled_N[rows]).all()
        for k, at in enumerate(rows.tolist()):
            if self._bare.counts_alone and not has_counters:
                filled_N[rows[k:]] = self._bare.number_all(series_K[k:], value_K[k:])
                break
            counter = -1.0 if np.isnan(filled_N[at]) else float(filled_N[at])
            filled_N[at] = self._bare.number(counter, int(series_K[k]), float(value_K[k]))


def _forward(values_N: Floats, before: float) -> Floats:
    """Each NaN replaced by the last value in front of it, or ``before``."""
    known_N = ~np.isnan(values_N)
    if known_N.all():
        return values_N
    if not known_N.any():
        return np.full(len(values_N), before)
    last_N = np.maximum.accumulate(np.where(known_N, np.arange(1, len(values_N) + 1), 0))
    filled: Floats = np.concatenate(([before], values_N))[last_N]
    return filled


def _differs(values_N: Floats) -> Flags:
    """Where a value is not that before it; NaN is the same as NaN."""
    before, after = values_N[:-1], values_N[1:]
    different: Flags = (before != after) & ~(np.isnan(before) & np.isnan(after))
    return different
