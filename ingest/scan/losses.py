"""Which of the losses that a log prints is the loss.

Axes: N lines with values, in the order of the log.

``loss`` in the records of steps and ``train_loss`` in the summary of an epoch are two curves: mixed they
would jump. The name that says it best is the loss, from where it first appears; the others keep their names.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ingest.blocks import Flags, Ints

LOSS = "loss"
_BEFORE = -(1 << 62)
"""Before every line of a piece; a box that began in the piece before has a negative number."""


class LossChoice:
    """Decides line by line, hence the same however the log is cut."""

    def __init__(self, wanted: str | None = None) -> None:
        self._wanted = wanted
        self.key = wanted or ""
        """The name in the file of what is the loss now; empty as long as none was seen."""
        self._order = -1 if wanted else np.iinfo(np.int64).max

    def choose(self, seen: Iterable[tuple[int, int, str]]) -> list[tuple[int, str]]:
        """From which line on which key is the loss, in a piece where (line, order, key) were first seen.

        The first entry stands for the lines before the first change.
        """
        changes = [(_BEFORE, self.key)]
        for line, order, key in sorted(seen):
            if order < self._order:
                self._order, self.key = order, key
                changes.append((line, key))
        return changes


def is_loss(key: str, line_N: Ints, changes: list[tuple[int, str]]) -> Flags:
    """At which of the lines ``key`` is the loss."""
    starts = np.array([line for line, _ in changes], np.int64)
    keys = np.array([chosen == key for _, chosen in changes], np.bool_)
    chosen_N: Flags = keys[np.searchsorted(starts, line_N, side="right") - 1]
    return chosen_N
