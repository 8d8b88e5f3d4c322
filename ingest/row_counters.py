"""The iteration of rows of a log, where not every row counts as training does.

Axes: N rows.

A row of validation may count something else than iterations (mmengine counts epochs there, mmcv the
samples of the validation), or nothing at all. It belongs to the training row before it.
"""

from __future__ import annotations

import numpy as np

from .blocks import Flags, Ints


class RowCounter:
    """Gives rows their iterations, in the order of the log, however they are cut into pieces."""

    def __init__(self) -> None:
        self._last = -1
        """The iteration of the last row of training before the next piece, -1 without any."""

    def place(
        self, iteration_N: Ints, counted_N: Flags, trains_N: Flags, evaluates_N: Flags
    ) -> tuple[Ints, Flags]:
        """The iterations, and which rows have one.

        ``counted_N``: the row's own counter can be used; ``trains_N``: it has a loss of training;
        ``evaluates_N``: it is said to be of validation. Such a row, and one without a loss whose counter
        is missing or lies before the last row of training, belongs to that.
        """
        before_N = self._before(iteration_N, counted_N & trains_N)
        strays_N = ~trains_N & (~counted_N | (iteration_N < before_N))
        follows_N = (before_N >= 0) & (evaluates_N | strays_N)
        return np.where(follows_N, before_N, iteration_N), counted_N | follows_N

    def _before(self, iteration_N: Ints, anchors_N: Flags) -> Ints:
        """The iteration of the last anchor at or before each row, -1 without any."""
        at_N = np.maximum.accumulate(np.where(anchors_N, np.arange(len(anchors_N)), -1))
        before_N: Ints = np.where(at_N >= 0, iteration_N[at_N], self._last)
        if len(before_N):
            self._last = int(before_N[-1])
        return before_N
