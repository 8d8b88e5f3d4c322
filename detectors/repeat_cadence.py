"""Since when no computation was repeated: what a canary would have shown after it, nothing shows.

Axes: T positions, R ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ingest.blocks import IterationBlock

REPEATED = ("canary_", "repeat_")
"""What the names of metrics begin with that a computation made for the purpose, or a second one, gives."""


class RepeatCadence:
    """The last iteration with a canary or a repetition on any rank, and the widest gap between two."""

    def __init__(self) -> None:
        self.last: int | None = None
        self.widest = 0

    def update(self, block: IterationBlock) -> None:
        """Take the next settled positions."""
        seen_T = np.zeros(len(block), np.bool_)
        present = {metric: column.present_TR for metric, column in block.numbers.items()}
        present |= {metric: column.present_TR for metric, column in block.checksums.items()}
        for metric, present_TR in present.items():
            if metric.startswith(REPEATED):
                seen_T |= present_TR.any(axis=1)
        for iteration in block.iteration_T[seen_T].tolist():
            if self.last is not None:
                self.widest = max(self.widest, iteration - self.last)
            self.last = iteration

    def over_since(self, judged_to: int | None) -> int | None:
        """The last iteration with one, where more have passed since than ever did between two."""
        if self.last is None or judged_to is None or judged_to - self.last <= self.widest:
            return None
        return self.last

    def snapshot(self) -> list[int | None]:
        """The whole state as plain data."""
        return [self.last, self.widest]

    def restore(self, state: Sequence[Any]) -> None:
        """Continue from what `snapshot` gave."""
        self.last, self.widest = state
