"""How the iterations of a run follow each other: the usual step of its log, and where some are missing.

Axes: T positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ingest.alignment import AttemptAligner
from ingest.blocks import IterationBlock

_MAX_STEPS = 512
"""Different steps that are counted: a log with more of them has no usual one."""
_MAX_GAPS = 64
"""Gaps kept, the widest first."""


@dataclass(frozen=True, slots=True)
class Strides:
    """What is known of the iterations of a run.

    ``missing`` counts iterations that are not there though the usual ``step`` says they should be;
    ``gaps`` are the widest such stretches, as (last before, first after), in order.
    """

    positions: int = 0
    first: int | None = None
    last: int | None = None
    step: int | None = None
    missing: int = 0
    gaps: tuple[tuple[int, int], ...] = ()
    restarts: tuple[int, ...] = ()
    """First iteration of every attempt but the first."""


class StrideWatch:
    """Counts the steps of any number of runs."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[int, _Attempt]] = {}

    def update(self, block: IterationBlock) -> None:
        """Take the next settled block."""
        if len(block):
            self._runs.setdefault(block.run, {}).setdefault(block.attempt, _Attempt()).update(block)

    def take(self, run: str, aligners: Iterable[AttemptAligner]) -> Strides:
        """The strides of ``run`` with what has not settled; it is let go of."""
        for aligner in aligners:
            for block in aligner.pending():
                self.update(block)
        attempts = self._runs.pop(run, {})
        if not attempts:
            return Strides()
        numbers = sorted(attempts)
        steps = sum((attempts[at].steps for at in numbers), Counter[int]())
        usual = min(steps, key=lambda step: (-steps[step], step)) if steps else None
        wide = [gap for at in numbers for gap in attempts[at].gaps if usual and gap[1] - gap[0] >= 2 * usual]
        missing = sum((step // usual - 1) * count for step, count in steps.items()) if usual else 0
        # where no step is usual, nothing is missing
        is_regular = usual is not None and 2 * steps[usual] > steps.total()
        return Strides(
            positions=sum(attempts[at].positions for at in numbers),
            first=min(attempts[at].first for at in numbers),
            last=max(attempts[at].last for at in numbers),
            step=usual if is_regular else None,
            missing=max(0, missing) if is_regular else 0,
            gaps=tuple(sorted(sorted(wide, key=lambda gap: gap[0] - gap[1])[:_MAX_GAPS]))
            if is_regular
            else (),
            restarts=tuple(attempts[at].first for at in numbers[1:]),
        )


@dataclass(slots=True)
class _Attempt:
    first: int = -1
    last: int = -1
    positions: int = 0
    steps: Counter[int] = field(default_factory=Counter)
    gaps: list[tuple[int, int]] = field(default_factory=list)

    def update(self, block: IterationBlock) -> None:
        iteration_T = block.iteration_T
        if not (iteration_T[1:] > iteration_T[:-1]).all():  # several microbatches of one iteration
            iteration_T = np.unique(iteration_T)
        if self.positions:
            iteration_T = iteration_T[iteration_T > self.last]
        if not len(iteration_T):
            return
        known_T = iteration_T if not self.positions else np.append(self.last, iteration_T)
        if not self.positions:
            self.first = int(iteration_T[0])
        self.last, self.positions = int(iteration_T[-1]), self.positions + len(iteration_T)
        step_T = np.diff(known_T)
        if not len(step_T) or (step_T == 1).all():
            self._count_step(1, len(step_T))
            return
        for step, count in zip(*np.unique(step_T, return_counts=True), strict=True):
            self._count_step(int(step), int(count))
        wide = np.argsort(-step_T, kind="stable")[:_MAX_GAPS]
        found = [(int(known_T[at]), int(known_T[at + 1])) for at in wide if step_T[at] > 1]
        self.gaps = sorted([*self.gaps, *found], key=lambda gap: gap[0] - gap[1])[:_MAX_GAPS]

    def _count_step(self, step: int, count: int) -> None:
        if count and (step in self.steps or len(self.steps) < _MAX_STEPS):
            self.steps[step] += count
