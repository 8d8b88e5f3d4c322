"""Losses beside the loss: of other players and terms, which a run may lose while the one it logs goes on.

A value loss that is infinite, a discriminator that is NaN: no metric of ours, but by its name what some part
of the job is trained on. It is told where it was finite and then is not to the end of the log, for longer
than it ever was in between: what comes and goes is how sparse tables are padded. A whole loss under a second
name (the mean of the epoch) need not have been finite; that of one part may be switched off from the start.
So it is with a loss of evaluation: from the start it may be the mean of no samples, later it is not.
Axes: T positions, K reports of a metric.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from firstfault.telemetry import Kind
from ingest.blocks import Flags, IterationBlock, NumberBlock
from ingest.role_values import is_evaluated_loss
from ingest.role_words import Loss, Part, meaning_of

from .base import State
from .evidence import Certainty, Direction, Evidence, Pattern

LEAST = 3
"""Reports in a row up to the end, of a loss that was not finite before and came back."""
USUAL = 4
"""So many times longer than ever before."""
MAX_METRICS = 64
"""Losses that are followed: a loop of more parts than that reports their sum too."""
_TRAINED = frozenset({Loss.WHOLE, Loss.COMPONENT, Loss.PLAYER})


@dataclass(slots=True)
class _Course:
    """How one loss went: finite up to ``last_clean``, not finite at the ``run`` reports since ``first``."""

    last_clean: int | None = None
    first: int = 0
    run: int = 0
    longest: int = 0
    """The longest run that ended in a finite value."""

    @property
    def needed(self) -> int:
        """Reports from which on it is not how it goes all the time."""
        return max(LEAST, USUAL * self.longest) if self.longest else 1


class OtherLosses:
    """Follows metrics that are losses by their names alone."""

    def __init__(self) -> None:
        self._courses: dict[str, _Course] = {}

    def update(self, block: IterationBlock) -> None:
        """Take the next settled positions."""
        for metric, numbers in sorted(block.numbers.items()):
            if metric in self._courses or self._is_new(block, metric):
                _follow(self._courses.setdefault(metric, _Course()), block, numbers)

    def finish(self, attempt: int, detector: str) -> list[Evidence]:
        """The losses that are not finite any more, in name order."""
        return [
            _evidence(metric, course, attempt, detector)
            for metric, course in sorted(self._courses.items())
            if course.run >= course.needed
            and (course.last_clean is not None or meaning_of(metric).loss is Loss.WHOLE)
        ]

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {metric: asdict(course) for metric, course in self._courses.items()}

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._courses = {metric: _Course(**held) for metric, held in state.items()}

    def _is_new(self, block: IterationBlock, metric: str) -> bool:
        if len(self._courses) >= MAX_METRICS or block.contracts.of(metric).kind is not Kind.SUPPORTING:
            return False
        meaning = meaning_of(metric)
        if meaning.part is Part.EVAL:
            return is_evaluated_loss(metric)
        return meaning.loss in _TRAINED


def _follow(course: _Course, block: IterationBlock, numbers: NumberBlock) -> None:
    at_K = np.flatnonzero(numbers.present_TR.any(axis=1))
    if not len(at_K):
        return
    iteration_K = block.iteration_T[at_K]
    values_KR, present_KR = numbers.values_TR[at_K], numbers.present_TR[at_K]
    # a mask is -Inf, and one rank of many may have had nothing to average
    fine_K: Flags = (present_KR & (np.isfinite(values_KR) | (values_KR == -np.inf))).any(axis=1)
    clean = np.flatnonzero(fine_K)
    if not len(clean):
        course.first = course.first if course.run else int(iteration_K[0])
        course.run += len(at_K)
        return
    between = int(np.diff(clean).max(initial=1)) - 1
    course.longest = max(course.longest, course.run + int(clean[0]), between)
    last = int(clean[-1])
    course.last_clean, course.run = int(iteration_K[last]), len(at_K) - 1 - last
    if course.run:
        course.first = int(iteration_K[last + 1])


def _evidence(metric: str, course: _Course, attempt: int, detector: str) -> Evidence:
    return Evidence(
        detector=detector,
        key=f"loss:{metric}",
        pattern=Pattern.IMMEDIATE_NONFINITE,
        certainty=Certainty.CONFIRMED,
        metric=metric,
        attempt=attempt,
        iteration=course.first,
        first_bad=course.first,
        last_clean=course.last_clean,
        alarm_iteration=course.first,
        statistic=float(course.run),
        threshold=float(course.needed),
        direction=Direction.UP,
        detail={"reports": course.run},
    )
