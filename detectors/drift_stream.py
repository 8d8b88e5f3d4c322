"""One loss under the eyes of the whole-curve drift detector: from what the fold reports to findings.

Axes: K points of a curve, B mini-blocks of 8 points.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ingest.blocks import Floats, Ints

from . import drift_fold as fold
from . import drift_state as at
from .curve import MARKS
from .drift_levels import FIT_MIDDLE, FIT_ORIGIN, FIT_SLOPE, FIT_U, FIT_Y, MINI, MINI_RING
from .evidence import Annotation, Certainty, Direction, Evidence, Finding, Pattern
from .onset import MAX_WINDOW, find_onset
from .onset_ramp import find_ramp

DETECTOR = "curve_drift"
"""The name of the detector in evidence."""
MAX_EPISODES = 100
"""Episodes of one curve that are told apart; later ones replace the last."""
RAMP_PAST = (48, 96, 192)
"""Mini-blocks before the place at which a change was seen that its begin is looked for in: 384 points, since
a decline bends if it is seen for long, and more where it is not there yet."""


class Stream:
    """One curve: its fold state, and the episode that is open."""

    def __init__(self, metric: str, knobs: Floats) -> None:
        self.metric = metric
        self.arrays = at.make_state()
        self.knobs = knobs
        self.episode = 0
        self.alarm_iteration = 0
        self.judged_at = 0
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
        now = int(iteration_K[int(self.arrays[0][at.CURSOR]) - 1])
        if code == at.STUCK:
            self.stuck_rows += 1
            return [self._stuck(attempt, now)]
        if code == at.FLAT:
            return [self._flat(attempt, now)]
        if code in (at.SUSPECTED, at.EXPLAINED):
            self.episode += 1
            self.alarm_iteration = now
        if code == at.EXPLAINED:
            return [self._explained(attempt, MARKS[int(self.arrays[0][at.EXPLAINED_BY])])]
        if code == at.REFINED:
            return self._refined(attempt)
        if code == at.HANDED_OVER:
            return [self._shift(Certainty.SUSPECTED, attempt, now, judged_by="explosion")]
        if code == at.PASSED:
            return [self._shift(Certainty.RECOVERED, attempt, now)]
        if code == at.LEARNED_ON:
            return [self._shift(Certainty.RECOVERED, attempt, now), self._explained(attempt, "learned_on")]
        if code == at.CONFIRMED:
            self.judged_at = now
        return [
            self._shift(Certainty.CONFIRMED if code == at.CONFIRMED else Certainty.SUSPECTED, attempt, now)
        ]

    def _shift(
        self, certainty: Certainty, attempt: int, now: int, judged_by: str = "", *, is_dated: bool = False
    ) -> Evidence:
        ints, floats = self.arrays[0], self.arrays[1]
        is_slope = int(ints[at.KIND]) == at.SLOPE
        if certainty is not Certainty.RECOVERED and not judged_by and not is_dated:
            # One that is dropped or handed over keeps its onset: the points may be forgotten by now.
            refine = certainty is Certainty.CONFIRMED
            self.onset = self._slow_onset() if is_slope else self._step_onset(refine)
        base = float(floats[at.BASE])
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
            statistic=float(floats[at.SCORE]),
            threshold=float(self.knobs[at.SLOPE_Z if is_slope else at.CONFIRM_Z]),
            direction=Direction.UP,
            supporting=bool(judged_by),
            detail={
                "baseline": base,
                "level": float(floats[at.LEVEL]),
                "relative_rise": (float(floats[at.LEVEL]) - base) / base,
                "sigma_of_8_points": float(floats[at.SIGMA]),
                "judged_at": now,
                "shape": self.onset["shape"],
                "change_point_confirmed": self.onset["is_confirmed"],
                **({"judged_by": judged_by} if judged_by else {}),
            },
        )

    def _refined(self, attempt: int) -> list[Finding]:
        """The confirmed shift once more, unless a plain step: what came since says better when it began."""
        if self.onset["is_confirmed"]:
            return []
        before, width = self.onset, self._width()
        self.onset = self._slow_onset()
        if self._width() < width:
            return [self._shift(Certainty.CONFIRMED, attempt, self.judged_at, is_dated=True)]
        self.onset = before
        return []

    def _width(self) -> int:
        clean = self.onset["last_clean"]
        return int(self.onset["first_bad"]) - (-1 if clean is None else int(clean))

    def _step_onset(self, refine: bool) -> dict[str, Any]:
        """Where a step lies among the points around the mini-block at which it was seen, the decline taken
        out; where the rise took longer than that, or may have, since when it can have risen."""
        ramp = self._ramp_onset()
        if ramp is not None and ramp["shape"] == "ramp":
            return ramp
        points = int(self.arrays[0][at.POINTS])
        kept_K = np.arange(max(0, points - at.RING), points)
        values_K, iteration_K = self.arrays[5][kept_K % at.RING], self.arrays[6][kept_K % at.RING]
        seen_at = self.arrays[4][int(self.arrays[0][at.TAU]) % MINI_RING]
        around = int(np.searchsorted(iteration_K, seen_at))
        window = slice(max(0, around - MAX_WINDOW // 2), around + MAX_WINDOW // 2)
        level_K = values_K[window] / self._decline(np.arange(len(values_K))[window] - around)
        found = find_onset(level_K, use_log=True, refine=refine, shapes=("step",))
        onset = found.in_iterations(iteration_K[window])
        if ramp is not None and not ramp["is_confirmed"]:
            onset["is_confirmed"] = False
            clean = (onset["last_clean"], ramp["last_clean"])
            onset["last_clean"] = None if None in clean else min(clean)
            onset["first_bad"] = max(onset["first_bad"], ramp["first_bad"])
        return onset

    def _decline(self, away_K: Ints) -> Floats:
        """The fitted decline at points so far from the step, over what it is there; 1 if it says nothing."""
        floats, tau = self.arrays[1], int(self.arrays[0][at.TAU])
        elapsed_K = np.maximum(tau - floats[FIT_ORIGIN] + away_K / MINI, 1.0)
        u_K = 2.0 * (elapsed_K - floats[FIT_MIDDLE]) / (elapsed_K + floats[FIT_MIDDLE])
        fitted_K = floats[FIT_Y] + floats[FIT_SLOPE] * (u_K - floats[FIT_U])
        at_step = fitted_K[int(np.abs(away_K).argmin())]
        usable_K = (fitted_K > 0.5 * at_step) & (fitted_K < 2.0 * at_step)
        return np.where(usable_K, fitted_K / at_step, 1.0)

    def _ramp_onset(self) -> dict[str, Any] | None:
        """Where the rise began, among mini-blocks, in iterations of their first points; None if it is none.

        A window that rises before it begins holds no decline that could be told from the rise: a longer one.
        """
        ints = self.arrays[0]
        minis, first = int(ints[at.MINIS]), max(int(ints[at.FROM]), int(ints[at.MINIS]) - MAX_WINDOW, 0)
        for past in RAMP_PAST:
            start = max(first, int(ints[at.TAU]) - past)
            at_B = np.arange(start, minis) % MINI_RING
            seen = max(int(ints[at.TAU]) - start, 0)
            found = find_ramp(self.arrays[3][at_B], elapsed=start - int(ints[at.FROM]), seen=seen)
            if found is None or start == first or not found.is_after_rise:
                break
        if found is None:
            return None
        onset = found.onset.in_iterations(self.arrays[4][at_B])
        if found.is_after_rise:
            onset["last_clean"] = None
        return onset

    def _slow_onset(self) -> dict[str, Any]:
        """The same for a rise found by the slope test."""
        found = self._ramp_onset()
        if found is not None:
            return found
        first = int(self.arrays[4][int(self.arrays[0][at.TAU]) % MINI_RING])
        last = int(self.arrays[4][(int(self.arrays[0][at.MINIS]) - 1) % MINI_RING])
        return {
            "iteration": last,
            "first_bad": last,
            "last_clean": first,
            "shape": "ramp",
            "is_confirmed": False,
        }

    def _stuck(self, attempt: int, now: int) -> Evidence:
        ints, floats = self.arrays[0], self.arrays[1]
        start = int(ints[at.RUN_START])
        # The first of the equal values may be the last true one: the fault shows at the second.
        before, first, second = (int(self.arrays[6][(start + off) % at.RING]) for off in (-1, 0, 1))
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
            statistic=float(ints[at.SAME_RUN] + 1),
            threshold=float(self.knobs[at.STUCK_POINTS]),
            direction=Direction.DIFFERS,
            detail={
                "value": float(floats[at.LAST]),
                "repeats_before_per_point": float(floats[at.REPEATS]),
                "typical_step_before": float(floats[at.STEP_SIZE]),
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
            statistic=float(floats[at.SCORE]),
            threshold=0.0,
            direction=Direction.DIFFERS,
            detail={
                "baseline": float(floats[at.BASE]),
                "level": float(floats[at.LEVEL]),
                "judged_at": now,
            },
        )

    def _explained(self, attempt: int, why: str) -> Annotation:
        ints, floats = self.arrays[0], self.arrays[1]
        return Annotation(
            kind="level_shift_explained",
            key=f"{self.metric}/{min(self.episode, MAX_EPISODES)}",
            attempt=attempt,
            iteration=int(self.arrays[4][int(ints[at.TAU]) % MINI_RING]),
            detail={
                "metric": self.metric,
                "why": why,
                "baseline": float(floats[at.BASE]),
                "level": float(floats[at.LEVEL]),
            },
        )

    @property
    def points(self) -> int:
        """Finite points of the curve so far."""
        return int(self.arrays[0][at.POINTS])

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain data."""
        return {
            "arrays": [array.copy() for array in self.arrays],
            "episode": self.episode,
            "alarm_iteration": self.alarm_iteration,
            "judged_at": self.judged_at,
            "stuck_rows": self.stuck_rows,
            "onset": dict(self.onset),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        for array, kept in zip(self.arrays, state["arrays"], strict=True):
            array[:] = np.asarray(kept)
        self.episode = int(state["episode"])
        self.alarm_iteration = int(state["alarm_iteration"])
        self.judged_at = int(state["judged_at"])
        self.stuck_rows = int(state["stuck_rows"])
        self.onset = dict(state["onset"])
