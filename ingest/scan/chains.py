"""Records over several lines: a line with a counter, and indented lines of values right below it.

Axes: N lines of the piece that give something, in order.

Indented values are part of a record only there: a printed configuration has thousands of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from .assemble import Part
from .plans import Kind


class Chain:
    """Knows whether the last line may be gone on with, over the borders of pieces."""

    def __init__(self) -> None:
        self._is_open = False
        """Whether the last line of the pieces so far is a record or part of one."""
        self._last = -1
        """The last line that gave something, counted from the first of this piece."""

    def attached(self, parts: Sequence[Part]) -> list[Part]:
        """The parts without the values that stand below no counter."""
        if not parts:
            return []
        if not any(part.plan.kind is Kind.PART for part in parts):
            self._is_open, self._last = True, max(int(part.line_S[-1]) for part in parts)
            return list(parts)
        line_N = np.concatenate([part.line_S for part in parts])
        root_N = np.concatenate(
            [np.full(len(part.line_S), part.plan.kind is not Kind.PART) for part in parts]
        )
        order_N = np.argsort(line_N, kind="stable")
        line_N, root_N = line_N[order_N], root_N[order_N]
        begins_N = np.diff(line_N, prepend=self._last) != 1
        run_N = np.cumsum(begins_N)
        roots_N = np.cumsum(root_N)
        before_N = roots_N - root_N  # roots before the run of each line
        first_N = np.maximum.accumulate(np.where(begins_N, np.arange(len(line_N)), 0))
        has_root_N = roots_N > before_N[first_N]
        if self._is_open:
            has_root_N |= run_N == 0
        self._is_open, self._last = bool(has_root_N[-1]), int(line_N[-1])
        good = np.sort(line_N[has_root_N])
        return [kept for part in parts if (kept := _kept(part, good)) is not None]

    def advance(self, lines: int) -> None:
        """The next piece begins ``lines`` lines later."""
        self._last -= lines


def _kept(part: Part, good: np.ndarray) -> Part | None:
    if part.plan.kind is not Kind.PART:
        return part
    keep_S = np.isin(part.line_S, good)
    if not keep_S.any():
        return None
    return replace(
        part,
        line_S=part.line_S[keep_S],
        values_SK=part.values_SK[keep_S],
        printer_S=part.printer_S[keep_S],
    )
