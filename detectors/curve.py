"""One curve out of a block: a number per position, whichever ranks reported it; and what explains steps.

Axes: T positions of a block, R ranks, K positions with a point of the curve.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from firstfault.telemetry import EventKind
from ingest.blocks import Flags, Floats, Ints, IterationBlock, NumberBlock

LOSSES = ("loss", "global_loss")
GRAD_NORMS = ("grad_norm", "local_grad_norm")
STAGES = ("epoch", "stage", "data_stage")
"""Integer step-like columns: a change of one is a change of the data."""
SIZES = (
    "batch_size", "global_batch_size", "micro_batch_size", "microbatches", "num_microbatches",
    "gradient_accumulation_steps", "seq_len", "seqlen", "seq_length", "sequence_length", "context_length",
    "world_size",
)  # fmt: skip
"""Columns that say how much a step is made of: a change of one counts as the event ``batch_size``."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one metric in one block, in order.

    ``value_K`` is the median over the ranks that reported a finite value, NaN where some reported
    but none a finite one. Positions at which nobody reported have no point.
    """

    metric: str
    iteration_K: Ints
    microbatch_K: Ints
    value_K: Floats
    at_K: Ints
    """Index of the position in the block."""

    def __len__(self) -> int:
        return len(self.value_K)

    @property
    def finite(self) -> tuple[Floats, Ints]:
        """The finite values, and the positions that they are of."""
        finite_K = np.isfinite(self.value_K)
        return (self.value_K, self.at_K) if finite_K.all() else (self.value_K[finite_K], self.at_K[finite_K])

    def over(self, positions: int) -> Floats:
        """The values at all T ``positions`` of the block, NaN at those without a point."""
        if len(self.value_K) == positions:
            return self.value_K.copy()
        value_T = np.full(positions, np.nan)
        value_T[self.at_K] = self.value_K
        return value_T


_newest: list[tuple[Callable[[], IterationBlock | None], dict[str, Curve | None]]] = [(lambda: None, {})]
"""The block that was asked about last, if it is still there, and its curves: each detector asks for those of
the context anew."""


def curve_of(block: IterationBlock, metric: str) -> Curve | None:
    """The curve of ``metric`` in ``block``, not to be written to; None where the block does not hold it.

    >>> import numpy as np
    >>> from ingest.blocks import NumberBlock
    >>> loss = NumberBlock(np.array([[3.0, np.nan, 5.0]]), np.array([[True, True, True]]))
    >>> block = IterationBlock(
    ...     run="r", attempt=0, iteration_T=np.array([7]), microbatch_T=np.array([0], np.int32),
    ...     ranks_R=np.arange(3, dtype=np.int32), numbers={"loss": loss})
    >>> curve_of(block, "loss").value_K
    array([4.])
    """
    if metric not in block.numbers:
        return None
    newest, curves = _newest[0]
    if newest() is not block:
        newest, curves = _newest[0] = weakref.ref(block), {}
    if metric not in curves:
        curves[metric] = _curve_of(block, metric, block.numbers[metric])
    return curves[metric]


def _curve_of(block: IterationBlock, metric: str, numbers: NumberBlock) -> Curve | None:
    some_T = np.asarray(numbers.present_TR.any(axis=1))
    whole = bool(some_T.all())
    at_K = np.arange(len(some_T)) if whole else np.flatnonzero(some_T)
    if not len(at_K):
        return None
    values_KR = numbers.values_TR if whole else numbers.values_TR[at_K]
    present_KR = numbers.present_TR if whole else numbers.present_TR[at_K]
    iteration_K = block.iteration_T.view() if whole else block.iteration_T[at_K]
    microbatch_K = block.microbatch_T if whole else block.microbatch_T[at_K]
    curve = Curve(
        metric=metric,
        iteration_K=iteration_K,
        microbatch_K=microbatch_K.astype(np.int64),
        value_K=median_of_ranks(values_KR, present_KR),
        at_K=at_K,
    )
    for column in (curve.iteration_K, curve.microbatch_K, curve.value_K, curve.at_K):
        column.flags.writeable = False
    return curve


def median_of_ranks(values_KR: Floats, present_KR: Flags) -> Floats:
    """The median of each row over its present finite values, NaN where there are none.

    An order statistic: the same bits whatever else is in the block.
    """
    usable_KR = present_KR & np.isfinite(values_KR)
    if values_KR.shape[1] == 1:
        return np.where(usable_KR[:, 0], values_KR[:, 0], np.nan)
    masked_KR = np.where(usable_KR, values_KR, np.inf)
    count_K = usable_KR.sum(axis=1)
    median_K = np.full(len(values_KR), np.nan)
    for count in np.unique(count_K[count_K > 0]):
        rows = np.flatnonzero(count_K == count)
        low, high = (int(count) - 1) // 2, int(count) // 2
        sorted_KR = np.partition(masked_KR[rows], [low, high], axis=1)
        # Halves first: the sum of two values near the greatest float would be infinite.
        median_K[rows] = sorted_KR[:, low] * 0.5 + sorted_KR[:, high] * 0.5
    return median_K


NO_MARK = 0
MARKS: Mapping[int, str] = {
    1: "lr_rise",
    2: "lr_change",
    3: "batch_size",
    4: "data_change",
    5: "resume",
    6: "stage_change",
}
"""What may explain a step of the curve; of several at one position the greatest is kept."""
_MARK_OF_EVENT = {
    EventKind.LR_CHANGE: 2,
    EventKind.BATCH_SIZE: 3,
    EventKind.DATA_CHANGE: 4,
    EventKind.RESUME: 5,
}


MIN_HELD_POINTS = 16
"""Points for which a stage column must have stood still before its change means anything: a column
that moves at every point is a counter (a log of one row an epoch)."""


class Marks:
    """Learns from context which positions may bring a step of the curve that is no fault.

    A rise of the reported learning rate, a change of an integer stage column, and the events
    lr_change, batch_size, data_change, resume. State: per context column its last value and for how
    many points it has stood still.
    """

    def __init__(self) -> None:
        self._last: dict[str, float] = {}
        self._held: dict[str, int] = {}

    def of(self, block: IterationBlock) -> Ints:
        """The mark of each of the T positions of the block, `NO_MARK` where nothing happened."""
        mark_T = np.zeros(len(block), np.int64)
        if not len(block):
            return mark_T
        mark_T[self._changes(block, "lr", is_stage=False)] = 1
        for name in STAGES:
            mark_T[self._changes(block, name, is_stage=True)] = 6
        for name in SIZES:
            sized_K = self._changes(block, name, is_stage=True)
            mark_T[sized_K] = np.maximum(mark_T[sized_K], 3)
        for event in block.events:
            code = _MARK_OF_EVENT.get(event.kind, NO_MARK)
            if code:
                at = min(int(np.searchsorted(block.iteration_T, event.iteration)), len(block) - 1)
                mark_T[at] = max(int(mark_T[at]), code)
        return mark_T

    def _changes(self, block: IterationBlock, name: str, *, is_stage: bool) -> Ints:
        """Positions at which the column rose (a rate) or moved after standing still (a stage)."""
        curve = curve_of(block, name)
        if curve is None:
            return np.empty(0, np.int64)
        value_K, at_K = curve.finite
        if not len(value_K):
            return np.empty(0, np.int64)
        before_K = np.concatenate(([self._last.get(name, value_K[0])], value_K[:-1]))
        self._last[name] = float(value_K[-1])
        if not is_stage:
            return at_K[value_K > before_K]
        moved = np.flatnonzero(value_K != before_K)
        # Points since the move before; the first one continues the count of earlier blocks.
        held = np.diff(np.concatenate(([-self._held.get(name, 0)], moved)))
        self._held[name] = (
            len(value_K) - int(moved[-1]) if len(moved) else self._held.get(name, 0) + len(value_K)
        )
        is_integer = (value_K[moved] % 1.0 == 0.0) & (before_K[moved] % 1.0 == 0.0)
        return np.asarray(at_K[moved[(held >= MIN_HELD_POINTS) & is_integer]])

    def snapshot(self) -> dict[str, dict[str, float]]:
        """What is remembered of each context column."""
        return {"last": dict(self._last), "held": {name: float(held) for name, held in self._held.items()}}

    def restore(self, state: Mapping[str, Mapping[str, float]]) -> None:
        """Continue from what `snapshot` gave."""
        self._last = {str(name): float(value) for name, value in state["last"].items()}
        self._held = {str(name): int(held) for name, held in state["held"].items()}
