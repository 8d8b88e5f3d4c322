"""What the records of a dialect mean beyond their words: values left out, hidden, or never filled in.

Axes: N records of a batch; K of them written in the dialect.

A rule sees the records in the order of the log and keeps what it needs of those before, so that it does not
matter how the log is cut. A NaN that it concludes is marked ``inferred``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from firstfault.telemetry import Event, EventKind
from ingest.blocks import Flags, Floats, NumberColumn, RecordBatch

SMALL_LOSS = 0.2
"""Below it a loss may have become negative, as those of policies do, which Megatron leaves out like NaN."""
BATCH_SIZES = ("global batch size", "global_batch_size", "batch size", "batch_size")
MAX_CHANGES = 10_000
"""Changes of the batch size told of one log: a ramp has dozens; one that always differs is none."""


class Rule(Protocol):
    """Reads the records of one log in order."""

    def apply(self, batch: RecordBatch, own_N: Flags) -> RecordBatch:
        """The batch with what the records of ``own_N`` mean."""


class OmittedLoss:
    """A record without the loss that its siblings have: the mean was not ``>= 0``, hence NaN or negative.

    It was NaN where the gradient norm says so: it is NaN too, or stands still (a stale copy), or is not
    printed. A gradient norm that goes on changing tells of a negative loss, and so does a loss that was close
    to zero. Where all iterations since the record before were skipped there was none to print.
    """

    def __init__(self) -> None:
        self._iteration = np.nan
        self._gradient = np.nan
        self._loss = np.nan

    def apply(self, batch: RecordBatch, own_N: Flags) -> RecordBatch:
        """The batch with the losses that were left out."""
        at = np.flatnonzero(own_N)
        if not len(at):
            return batch
        loss_K = _cells(batch, "loss", at)
        gradient_K = _cells(batch, "grad_norm", at)
        has_loss_K, has_gradient_K = _present(batch, "loss", at), _present(batch, "grad_norm", at)
        iteration_K = batch.iteration_N[at].astype(np.float64)
        before_K = np.append(self._iteration, iteration_K[:-1])
        last_loss_K = _filled(np.where(has_loss_K, loss_K, np.nan), has_loss_K, self._loss)
        last_gradient_K = np.append(self._gradient, _filled(gradient_K, has_gradient_K, self._gradient)[:-1])
        skipped_K = np.where(_present(batch, "skipped", at), _cells(batch, "skipped", at), 0)
        with np.errstate(invalid="ignore"):
            span_K = np.where(iteration_K > before_K, iteration_K - before_K, 1)
            all_skipped_K = (skipped_K >= span_K) & (skipped_K > 0)
            gradient_is_bad_K = has_gradient_K & ~np.isfinite(gradient_K)
            is_alive_K = has_gradient_K & (gradient_K != 0) & (gradient_K != last_gradient_K)
            was_small_K = np.abs(last_loss_K) < SMALL_LOSS
        seen_K = ~np.isnan(last_loss_K)
        bad_K = ~has_loss_K & ~all_skipped_K
        bad_K &= gradient_is_bad_K | (seen_K & ~is_alive_K & ~was_small_K)
        self._iteration = iteration_K[-1]
        self._gradient = _filled(gradient_K, has_gradient_K, self._gradient)[-1]
        self._loss = last_loss_K[-1]
        return _with_inferred(batch, "loss", at[bad_K], np.nan)


class HiddenLoss:
    """A loss of exactly 0 beside a gradient norm that is NaN: the trainer replaced what it could not sum.

    So it is where no norm is printed and the evaluation before was NaN.
    """

    def __init__(self) -> None:
        self._evaluation = 0.0

    def apply(self, batch: RecordBatch, own_N: Flags) -> RecordBatch:
        """The batch with those losses as NaN."""
        at = np.flatnonzero(own_N)
        has_norm_K, has_eval_K = _present(batch, "grad_norm", at), _present(batch, "eval_loss", at)
        evaluation_K = _filled(_cells(batch, "eval_loss", at), has_eval_K, self._evaluation)
        self._evaluation = float(evaluation_K[-1]) if len(at) else self._evaluation
        hidden_K = _present(batch, "loss", at) & (_cells(batch, "loss", at) == 0)
        hidden_K &= np.where(has_norm_K, np.isnan(_cells(batch, "grad_norm", at)), np.isnan(evaluation_K))
        return _with_inferred(batch, "loss", at[hidden_K], np.nan)


class Saturated:
    """A loss that stays at the greatest one that single precision can show: outputs beyond all numbers.

    The second such record in a row counts: one may be a batch of hopeless samples.
    """

    def __init__(self, value: float, tolerance: float) -> None:
        self._value, self._tolerance = value, tolerance
        self._was_there = False

    def apply(self, batch: RecordBatch, own_N: Flags) -> RecordBatch:
        """The batch with those losses as infinity."""
        at = np.flatnonzero(own_N & _has(batch, "loss"))
        if not len(at):
            return batch
        there_K = np.abs(_cells(batch, "loss", at) - self._value) <= self._tolerance
        before_K = np.append(self._was_there, there_K[:-1])
        self._was_there = bool(there_K[-1])
        return _with_inferred(batch, "loss", at[there_K & before_K], np.inf)


class Unfilled:
    """A value that stands for "not filled in", wherever it comes."""

    def __init__(self, metric: str, value: float) -> None:
        self._metric, self._value = metric, value

    def apply(self, batch: RecordBatch, own_N: Flags) -> RecordBatch:
        """The batch without those values."""
        column = batch.numbers.get(self._metric)
        if column is None:
            return batch
        return _without(batch, self._metric, own_N & column.present_N & (column.values_N == self._value))


class ZeroUntilKnown:
    """A metric that is 0 in every record from the first on was not computed; once it is not, 0 is a value."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._is_known = False

    def apply(self, batch: RecordBatch, own_N: Flags) -> RecordBatch:
        """The batch without the zeros before the first other value."""
        column = batch.numbers.get(self._metric)
        if column is None or self._is_known:
            return batch
        known_N = own_N & column.present_N & (column.values_N != 0)
        first = int(np.argmax(known_N)) if known_N.any() else len(batch)
        self._is_known = first < len(batch)
        early_N = np.arange(len(batch)) < first
        return _without(batch, self._metric, own_N & early_N & column.present_N)


class MeanOfWindow:
    """A gradient norm averaged over the records' window: one skipped step makes all of it NaN.

    A NaN there is kept under a name of its own, as support, where the loss of the window is finite.
    """

    def apply(self, batch: RecordBatch, own_N: Flags) -> RecordBatch:
        """The batch with those NaN under ``grad_norm_mean``."""
        column = batch.numbers.get("grad_norm")
        if column is None:
            return batch
        moved_N = own_N & column.present_N & ~np.isfinite(column.values_N)
        loss = batch.numbers.get("loss")
        moved_N &= (loss.present_N & np.isfinite(loss.values_N)) if loss is not None else False
        if not moved_N.any():
            return batch
        mean = NumberColumn(np.where(moved_N, column.values_N, np.nan), moved_N)
        numbers = {**_without(batch, "grad_norm", moved_N).numbers, "grad_norm_mean": mean}
        return replace(batch, numbers=numbers)


class CountSoFar:
    """A count of all skipped steps so far becomes that of the steps since the record before."""

    def __init__(self, metric: str) -> None:
        self._metric = metric
        self._before = 0.0

    def apply(self, batch: RecordBatch, own_N: Flags) -> RecordBatch:
        """The batch with differences."""
        column = batch.numbers.get(self._metric)
        if column is None:
            return batch
        at = np.flatnonzero(own_N & column.present_N & np.isfinite(column.values_N))
        if not len(at):
            return batch
        count_K = column.values_N[at]
        values_N = column.values_N.copy()
        # A count that falls begins anew with a restart of the job.
        rise_K = np.diff(count_K, prepend=self._before)
        values_N[at] = np.where(rise_K >= 0, rise_K, count_K)
        self._before = float(count_K[-1])
        return _with_column(batch, self._metric, replace(column, values_N=values_N))


class BatchSizes:
    """A batch size that changes from one record to the next becomes an event."""

    def __init__(self) -> None:
        self._size = np.nan
        self._told = 0

    def apply(self, batch: RecordBatch, own_N: Flags) -> RecordBatch:
        """The batch with those events."""
        name = next((name for name in BATCH_SIZES if name in batch.numbers), None)
        if name is None:
            return batch
        at = np.flatnonzero(own_N & _has(batch, name) & np.isfinite(batch.numbers[name].values_N))
        if not len(at):
            return batch
        size_K = batch.numbers[name].values_N[at]
        changed_K = size_K != np.append(self._size, size_K[:-1])
        if np.isnan(self._size):
            changed_K[0] = False
        self._size = float(size_K[-1])
        rows = at[changed_K][: MAX_CHANGES - self._told].tolist()
        self._told += len(rows)
        events = [(row, _batch_size(batch, row, name)) for row in rows]
        return replace(batch, events=tuple(sorted([*batch.events, *events], key=lambda one: one[0])))


class DialectRules:
    """The rules of one dialect, applied one after the other."""

    def __init__(self, makers: Sequence[Callable[[], Rule]]) -> None:
        self._rules = [make() for make in (*makers, BatchSizes)]

    def apply(self, batch: RecordBatch, own_N: Flags) -> RecordBatch:
        """What the records of ``own_N``, written in the dialect, mean."""
        for rule in self._rules if len(batch) else ():
            batch = rule.apply(batch, own_N)
        return batch


def _batch_size(batch: RecordBatch, row: int, name: str) -> Event:
    return Event(
        kind=EventKind.BATCH_SIZE,
        run=batch.runs[batch.run_N[row]],
        rank=int(batch.rank_N[row]),
        iteration=int(batch.iteration_N[row]),
        attempt=int(batch.attempt_N[row]),
        fields={"batch_size": float(batch.numbers[name].values_N[row])},
    )


def _has(batch: RecordBatch, metric: str) -> Flags:
    column = batch.numbers.get(metric)
    return np.zeros(len(batch), np.bool_) if column is None else column.present_N


def _cells(batch: RecordBatch, metric: str, at: Sequence[int] | np.ndarray) -> Floats:
    column = batch.numbers.get(metric)
    return np.full(len(at), np.nan) if column is None else column.values_N[at]


def _present(batch: RecordBatch, metric: str, at: Sequence[int] | np.ndarray) -> Flags:
    return _has(batch, metric)[at]


def _filled(values_K: Floats, known_K: Flags, before: float) -> Floats:
    """Each value that is known, and else the one known last."""
    last_K = np.maximum.accumulate(np.where(known_K, np.arange(len(values_K)), -1))
    return np.where(last_K >= 0, values_K[last_K], before)


def _with_column(batch: RecordBatch, metric: str, column: NumberColumn) -> RecordBatch:
    return replace(batch, numbers={**batch.numbers, metric: column})


def _with_inferred(batch: RecordBatch, metric: str, rows: np.ndarray, value: float) -> RecordBatch:
    if not len(rows):
        return batch
    column = batch.numbers.get(metric)
    if column is None:
        column = NumberColumn(np.full(len(batch), np.nan), np.zeros(len(batch), np.bool_))
    values_N, present_N = column.values_N.copy(), column.present_N.copy()
    inferred_N = np.zeros(len(batch), np.bool_) if column.inferred_N is None else column.inferred_N.copy()
    values_N[rows], present_N[rows], inferred_N[rows] = value, True, True
    return _with_column(batch, metric, NumberColumn(values_N, present_N, inferred_N))


def _without(batch: RecordBatch, metric: str, gone_N: Flags) -> RecordBatch:
    if not gone_N.any():
        return batch
    column = batch.numbers[metric]
    # Cells of what was not reported hold NaN, so that equal records give equal bytes.
    values_N = np.where(gone_N, np.nan, column.values_N)
    return _with_column(
        batch, metric, replace(column, values_N=values_N, present_N=column.present_N & ~gone_N)
    )
