"""One loss under the eyes of the whole-curve drift detector: from what the fold reports to findings.

Axes: K points of a curve, B mini-blocks of 8 points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ingest.blocks import Floats, Ints

from . import drift_fold as fold
from .curve import MARKS
from .drift_levels import MINI_RING
from .evidence import Annotation, Certainty, Direction, Evidence, Finding, Pattern
from .onset import MAX_WINDOW, find_onset

DETECTOR = "curve_drift"
"""The name of the detector in evidence."""
MAX_EPISODES = 100
"""Episodes of one curve that are told apart; later ones replace the last."""


class Stream:
    """One curve: its fold state, and the episode that is open."""

    def __init__(self, metric: str, knobs: Floats) -> None:
        self.metric = metric
        self.arrays = fold.make_state()
        self.knobs = knobs
        self.episode = 0
        self.alarm_iteration = 0
        self.stuck_rows = 0
        self.onset: dict[str, Any] = {}

    def fold(self, values_K: Floats, iteration_K: Ints, marks_K: Ints, attempt: int) -> list[Finding]:
        """Fold K points and give what there is to say."""
        findings: list[Finding] = []
        fold.FOLD.run(
            (values_K, iteration_K, marks_K),
            (*self.arrays, self.knobs),
            lambda code: findings.extend(self._report(code, attempt, iteration_K)),
        )
        return findings

    def _report(self, code: int, attempt: int, iteration_K: Ints) -> list[Finding]:
        now = int(iteration_K[int(self.arrays[0][fold.CURSOR]) - 1])
        if code == fold.STUCK:
            self.stuck_rows += 1
            return [self._stuck(attempt, now)]
        if code == fold.FLAT:
            return [self._flat(attempt, now)]
        if code in (fold.SUSPECTED, fold.EXPLAINED):
            self.episode += 1
            self.alarm_iteration = now
        if code == fold.EXPLAINED:
            return [self._explained(attempt, MARKS[int(self.arrays[0][fold.EXPLAINED_BY])])]
        if code == fold.HANDED_OVER:
            return [self._shift(Certainty.SUSPECTED, attempt, now, judged_by="explosion")]
        if code == fold.PASSED:
            return [self._shift(Certainty.RECOVERED, attempt, now)]
        if code == fold.LEARNED_ON:
            return [self._shift(Certainty.RECOVERED, attempt, now), self._explained(attempt, "learned_on")]
        return [
            self._shift(Certainty.CONFIRMED if code == fold.CONFIRMED else Certainty.SUSPECTED, attempt, now)
        ]

    def _shift(self, certainty: Certainty, attempt: int, now: int, judged_by: str = "") -> Evidence:
        ints, floats = self.arrays[0], self.arrays[1]
        is_slope = int(ints[fold.KIND]) == fold.SLOPE
        if certainty is not Certainty.RECOVERED and not judged_by:
            # One that is dropped or handed over keeps its onset: the points may be forgotten by now.
            refine = certainty is Certainty.CONFIRMED
            self.onset = self._slow_onset(refine) if is_slope else self._step_onset(refine)
        base = float(floats[fold.BASE])
        return Evidence(
            detector=DETECTOR,
            key=f"{self.metric}/{min(self.episode, MAX_EPISODES)}",
            pattern=Pattern.SLOW_DEGRADE if self.onset["shape"] == "ramp" else Pattern.SHARP_SLOW_DEGRADE,
            certainty=certainty,
            metric=self.metric,
            attempt=attempt,
            iteration=self.onset["iteration"],
            first_bad=self.onset["first_bad"],
            last_clean=self.onset["last_clean"],
            alarm_iteration=self.alarm_iteration,
            statistic=float(floats[fold.SCORE]),
            threshold=float(self.knobs[fold.SLOPE_Z if is_slope else fold.CONFIRM_Z]),
            direction=Direction.UP,
            supporting=bool(judged_by),
            detail={
                "baseline": base,
                "level": float(floats[fold.LEVEL]),
                "relative_rise": (float(floats[fold.LEVEL]) - base) / base,
                "sigma_of_8_points": float(floats[fold.SIGMA]),
                "judged_at": now,
                "shape": self.onset["shape"],
                "change_point_confirmed": self.onset["is_confirmed"],
                **({"judged_by": judged_by} if judged_by else {}),
            },
        )

    def _step_onset(self, refine: bool) -> dict[str, Any]:
        """Change point among the points around the mini-block at which the step was seen."""
        ints = self.arrays[0]
        points = int(ints[fold.POINTS])
        kept_K = np.arange(max(0, points - fold.RING), points) % fold.RING
        values_K, iteration_K = self.arrays[5][kept_K], self.arrays[6][kept_K]
        seen_at = self.arrays[4][int(ints[fold.TAU]) % MINI_RING]
        around = int(np.searchsorted(iteration_K, seen_at))
        window = slice(max(0, around - MAX_WINDOW // 2), around + MAX_WINDOW // 2)
        onset = find_onset(values_K[window], use_log=True, refine=refine).in_iterations(iteration_K[window])
        if onset["shape"] == "ramp":
            # A rise may have begun before this window, which only mini-blocks reach back to.
            known = (onset["last_clean"], self._slope_onset(refine)["last_clean"])
            onset["last_clean"] = None if None in known else min(known)
        return onset

    def _slope_onset(self, refine: bool) -> dict[str, Any]:
        """Where the level left its best, among mini-blocks; the iterations of their first points."""
        at_B = np.arange(self._slope_start(), int(self.arrays[0][fold.MINIS])) % MINI_RING
        found = find_onset(self.arrays[3][at_B], use_log=True, refine=refine, shapes=("ramp",))
        return found.in_iterations(self.arrays[4][at_B])

    def _slow_onset(self, refine: bool) -> dict[str, Any]:
        """The same for a rise found by the slope test: it may have begun as a mere slowing of a decline,
        before the level left its best, so that only the first mini-block looked at counts as clean."""
        onset = self._slope_onset(refine)
        onset["last_clean"] = int(self.arrays[4][self._slope_start() % MINI_RING])
        return onset

    def _slope_start(self) -> int:
        ints = self.arrays[0]
        oldest = int(ints[fold.MINIS]) - MAX_WINDOW
        return max(int(ints[fold.FROM]), oldest, int(ints[fold.TAU]) - 4 * fold.WIDE, 0)

    def _stuck(self, attempt: int, now: int) -> Evidence:
        ints, floats = self.arrays[0], self.arrays[1]
        start = int(ints[fold.RUN_START])
        # The first of the equal values may be the last true one: the fault shows at the second.
        before, first, second = (int(self.arrays[6][(start + off) % fold.RING]) for off in (-1, 0, 1))
        return Evidence(
            detector=DETECTOR,
            key=f"{self.metric}/stuck/{min(self.stuck_rows, MAX_EPISODES)}",
            pattern=Pattern.STUCK,
            certainty=Certainty.CONFIRMED,
            metric=self.metric,
            attempt=attempt,
            iteration=first,
            first_bad=second,
            last_clean=before,
            alarm_iteration=now,
            statistic=float(ints[fold.SAME_RUN] + 1),
            threshold=float(self.knobs[fold.STUCK_POINTS]),
            direction=Direction.DIFFERS,
            detail={
                "value": float(floats[fold.LAST]),
                "repeats_before_per_point": float(floats[fold.REPEATS]),
                "typical_step_before": float(floats[fold.STEP_SIZE]),
                "judged_at": now,
            },
        )

    def _flat(self, attempt: int, now: int) -> Evidence:
        floats = self.arrays[1]
        first = int(self.arrays[4][0])
        return Evidence(
            detector=DETECTOR,
            key=f"{self.metric}/plateau",
            pattern=Pattern.PLATEAU,
            certainty=Certainty.SUSPECTED,
            metric=self.metric,
            attempt=attempt,
            iteration=first,
            first_bad=now,
            last_clean=None,
            alarm_iteration=now,
            statistic=float(floats[fold.SCORE]),
            threshold=0.0,
            direction=Direction.DIFFERS,
            detail={
                "baseline": float(floats[fold.BASE]),
                "level": float(floats[fold.LEVEL]),
                "judged_at": now,
            },
        )

    def _explained(self, attempt: int, why: str) -> Annotation:
        ints, floats = self.arrays[0], self.arrays[1]
        return Annotation(
            kind="level_shift_explained",
            key=f"{self.metric}/{min(self.episode, MAX_EPISODES)}",
            attempt=attempt,
            iteration=int(self.arrays[4][int(ints[fold.TAU]) % MINI_RING]),
            detail={
                "metric": self.metric,
                "why": why,
                "baseline": float(floats[fold.BASE]),
                "level": float(floats[fold.LEVEL]),
            },
        )

    @property
    def points(self) -> int:
        """Finite points of the curve so far."""
        return int(self.arrays[0][fold.POINTS])

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain data."""
        return {
            "arrays": [array.copy() for array in self.arrays],
            "episode": self.episode,
            "alarm_iteration": self.alarm_iteration,
            "stuck_rows": self.stuck_rows,
            "onset": dict(self.onset),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        for array, kept in zip(self.arrays, state["arrays"], strict=True):
            array[:] = np.asarray(kept)
        self.episode = int(state["episode"])
        self.alarm_iteration = int(state["alarm_iteration"])
        self.stuck_rows = int(state["stuck_rows"])
        self.onset = dict(state["onset"])
