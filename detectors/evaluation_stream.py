"""One evaluation metric point by point: the rank test, and what became of a fall.

Axes: B points before, M points after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np

from firstfault.telemetry import Phase
from ingest.blocks import Floats

from .evidence import Annotation, Certainty, Direction, Evidence, Finding, Json, Pattern

if TYPE_CHECKING:
    from .evaluation import EvaluationConfig

DETECTOR = "evaluation"
BEFORE = 16
"""Points before the fall that it is held against, at most."""
LEAST_BEFORE = 8
CONFIRM_BEFORE = 12
SUSPECT_BEFORE = 12
SUSPECT_AFTER = 4
BACK_POINTS = 3
"""Points in a row that have come at least half of the way back: the evaluation has recovered."""
MAX_EPISODES = 8
"""Falls told of one metric."""
_EDGE = 4
"""Points at either end of a window that tell a step from a slope."""
_CREEP_POINTS = 12
"""Points over which an evaluation must be on its way down: a step is suspected long before."""


@dataclass(slots=True)
class _Fall:
    """A fall that was told; values are in the direction in which higher is better."""

    ordinal: int
    iteration: int
    last_clean: int
    alarm: int
    before: float
    after: float
    certainty: str
    reason: str
    chance: float
    back: int = 0


class EvaluationStream:
    """Holds the last points of one metric; O(1) a point."""

    def __init__(self, metric: str, sign: int, config: EvaluationConfig) -> None:
        self.metric = metric
        self.points = 0
        self._sign = sign
        self._config = config
        self._held: list[list[float]] = []
        """[iteration, value with higher as better, training level] of the last points."""
        self._fall: _Fall | None = None
        self._falls = 0
        self._best: list[float] | None = None
        """[iteration, value, training level] where the evaluation was best, over a few points."""
        self._has_crept = False

    def take(
        self, iteration: int, value: float, level: float, changes: Sequence[int], attempt: int
    ) -> list[Finding]:
        """Take the next point; the median over ranks, and the level of the training loss with it."""
        if self._held and self._held[-1][0] == iteration:
            return []  # microbatches of one evaluation: the first stands
        self.points += 1
        room = max(BEFORE + self._config.confirm_after, _CREEP_POINTS)
        self._held = [*self._held, [iteration, self._sign * value, level]][-room:]
        if self._fall is not None and self._fall.certainty != Certainty.RECOVERED:
            return self._follow(self._fall, attempt)
        if self._falls >= MAX_EPISODES:
            return []
        return self._seek(changes, attempt) + self._creep(attempt)

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        fall = self._fall
        return {
            "points": self.points,
            "held": [list(point) for point in self._held],
            "fall": None if fall is None else [getattr(fall, name) for name in _Fall.__slots__],
            "falls": self._falls,
            "best": None if self._best is None else list(self._best),
            "has_crept": self._has_crept,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``."""
        self.points, self._falls = state["points"], state["falls"]
        self._best = None if state["best"] is None else list(state["best"])
        self._has_crept = state["has_crept"]
        self._held = [list(point) for point in state["held"]]
        self._fall = None if state["fall"] is None else _Fall(*state["fall"])

    def _seek(self, changes: Sequence[int], attempt: int) -> list[Finding]:
        found = self._test(SUSPECT_AFTER, LEAST_BEFORE, SUSPECT_BEFORE, self._config.min_sigmas)
        if found is None:
            return []
        before_B3, after_M3 = found
        if not _is_step(before_B3[:, 1], after_M3[:, 1]):
            return []
        self._falls += 1
        points_N3 = np.concatenate([before_B3, after_M3])
        onset = _onset(points_N3, len(after_M3))
        self._fall = _Fall(
            ordinal=self._falls,
            iteration=int(points_N3[onset, 0]),
            last_clean=int(points_N3[onset - 1, 0]),
            alarm=int(after_M3[-1, 0]),
            before=float(np.median(before_B3[:, 1])),
            after=float(np.median(after_M3[:, 1])),
            certainty=Certainty.SUSPECTED.value,
            reason=_doubt(before_B3, after_M3, changes),
            chance=1.0 / comb(len(before_B3) + len(after_M3), len(after_M3)),
        )
        return [self._evidence(self._fall, attempt)]

    def _follow(self, fall: _Fall, attempt: int) -> list[Finding]:
        """Whether a fall comes back, or lasts for as many points as confirm it."""
        half = fall.before + (fall.after - fall.before) / 2
        fall.back = fall.back + 1 if self._held[-1][1] >= half else 0
        if fall.back >= BACK_POINTS:
            fall.certainty = Certainty.RECOVERED.value
            return [self._evidence(fall, attempt)]
        if fall.certainty != Certainty.SUSPECTED or fall.reason:
            return []
        after = [point for point in self._held if point[0] >= fall.iteration]
        if len(after) != self._config.confirm_after:
            return []
        found = self._test(self._config.confirm_after, CONFIRM_BEFORE, BEFORE, self._config.confirm_sigmas)
        if found is None:
            return []
        before_B3, after_M3 = found
        if not _is_step(before_B3[:, 1], after_M3[:, 1]):
            fall.reason = "it goes on falling by and by"
            return [self._evidence(fall, attempt)]
        fall.certainty = Certainty.CONFIRMED.value
        fall.after = float(np.median(after_M3[:, 1]))
        fall.chance = 1.0 / comb(len(before_B3) + len(after_M3), len(after_M3))
        return [self._evidence(fall, attempt)]

    def _test(self, after: int, least: int, most: int, sigmas: float) -> tuple[Floats, Floats] | None:
        """The points before and after, if all of the last ``after`` are worse than each before."""
        if len(self._held) < least + after:
            return None
        earlier, later = self._held[-after - most : -after], self._held[-after:]
        if not max(point[1] for point in later) < min(point[1] for point in earlier):
            return None
        before_B3, after_M3 = np.array(earlier), np.array(later)
        level = float(np.median(before_B3[:, 1]))
        fall = level - float(np.median(after_M3[:, 1]))
        # What has fallen may well be restless: it counts by half.
        sigma = max(_sigma(before_B3[:, 1]), _sigma(after_M3[:, 1]) / 2)
        is_large = fall >= self._config.min_fall * abs(level) and fall >= sigmas * sigma
        return (before_B3, after_M3) if is_large and not self._train_rose(before_B3, after_M3) else None

    def _train_rose(self, before_B3: Floats, after_M3: Floats) -> bool:
        """Whether the training loss got worse too; not where there is none."""
        earlier, later = (points[:, 2][np.isfinite(points[:, 2])] for points in (before_B3, after_M3))
        if not len(earlier) or not len(later):
            return False
        level = float(np.median(earlier[-_EDGE:]))
        return float(np.median(later)) - level > self._config.train_rise * abs(level)

    def _creep(self, attempt: int) -> list[Finding]:
        """That the evaluation gets worse by and by while the training loss falls: overfitting, told once."""
        if len(self._held) < _CREEP_POINTS or self._has_crept:
            return []
        held = np.array(self._held[-_CREEP_POINTS:])
        first_EDGE, last_EDGE = held[:_EDGE], held[-_EDGE:]
        if self._best is None or np.median(first_EDGE[:, 1]) > self._best[1]:
            at = np.median(first_EDGE, axis=0).tolist()
            self._best = [float(first_EDGE[0, 0]), at[1], at[2]]
        iteration, value, level = self._best
        worse = [value - float(np.median(edge[:, 1])) for edge in (first_EDGE, last_EDGE)]
        learns = float(np.median(last_EDGE[:, 2])) < level  # false where there is no training loss
        if not (learns and worse[1] >= self._config.min_fall * abs(value) and 2 * worse[0] >= worse[1]):
            return []
        self._has_crept = True
        detail: dict[str, Json] = {
            "metric": self.metric,
            "best": self._sign * value,
            "now": self._sign * float(np.median(last_EDGE[:, 1])),
        }
        kind, best_at = "overfitting", int(iteration)
        return [Annotation(kind=kind, key=self.metric, attempt=attempt, iteration=best_at, detail=detail)]

    def _evidence(self, fall: _Fall, attempt: int) -> Evidence:
        detail: dict[str, Json] = {
            "before": self._sign * fall.before,
            "after": self._sign * fall.after,
            "chance": fall.chance,
        }
        if fall.reason:
            detail["why_not_confirmed"] = fall.reason
        return Evidence(
            detector=DETECTOR,
            key=f"{self.metric}/{fall.ordinal}",
            pattern=Pattern.LOW_TEST_ACCURACY,
            certainty=Certainty(fall.certainty),
            metric=self.metric,
            attempt=attempt,
            iteration=fall.iteration,
            first_bad=fall.iteration,
            last_clean=fall.last_clean,
            alarm_iteration=fall.alarm,
            statistic=abs(fall.before - fall.after) / abs(fall.before) if fall.before else abs(fall.after),
            threshold=self._config.min_fall,
            direction=Direction.DOWN if self._sign > 0 else Direction.UP,
            phase=Phase.STATE,
            detail=detail,
        )


def _sigma(values: Floats) -> float:
    """Robust standard deviation beside a trend: of a normal it is 1.4826 median absolute deviations.

    Only learning is taken out: a level that sinks by itself must not make its own fall look large.
    """
    at = np.arange(len(values)) - (len(values) - 1) / 2
    slope = max(0.0, float((at * values).sum() / (at * at).sum()))
    rest = values - slope * at
    return 1.4826 * float(np.median(np.abs(rest - np.median(rest))))


def _onset(points_N3: Floats, after: int) -> int:
    """Index of the first fallen one of the last ``after`` points: the split with the least squares left.

    A point that is low by chance may stand just before the fall and pass the test with it.
    """
    values = points_N3[:, 1]
    splits = range(len(values) - after, len(values) - 1)

    def left(split: int) -> float:
        return sum(float(((part - part.mean()) ** 2).sum()) for part in (values[:split], values[split:]))

    return min(splits, key=left)


def _is_step(before_B: Floats, after_M: Floats) -> bool:
    """Whether the level falls between the two windows by twice what it falls inside either."""
    jump = float(np.median(before_B[-_EDGE:]) - np.median(after_M[:_EDGE]))
    inside = [float(np.median(one[:_EDGE]) - np.median(one[-_EDGE:])) for one in (before_B, after_M)]
    return jump >= 2 * max(0.0, *inside)


def _doubt(before_B3: Floats, after_M3: Floats, changes: Sequence[int]) -> str:
    """Why a fall cannot be confirmed; empty if it can."""
    if not (np.isfinite(before_B3[:, 2]).any() and np.isfinite(after_M3[:, 2]).any()):
        return "no training loss to hold it against"
    if any(before_B3[-1, 0] < change <= after_M3[0, 0] for change in changes):
        return "the data or the run changed just before"
    return ""
