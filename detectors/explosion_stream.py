"""One curve under the eyes of the explosion detector: from what the fold reports to findings.

Axes: K points of a curve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ingest.blocks import Floats, Ints

from . import explosion_baseline as at
from . import explosion_fold as fold
from . import explosion_growth as growth
from .curve import LOSSES
from .evidence import Annotation, Certainty, Direction, Evidence, Finding, Pattern
from .explosion_jump import Jumps
from .onset import find_onset, from_first_high
from .onset_ramp import find_ramp

DETECTOR = "explosion"
"""The name of the detector in evidence."""
MAX_EPISODES = 100
"""Episodes of one curve that are told apart; what comes later is counted into the last one, so that a
curve that spikes for ever cannot fill the verdict."""
KEPT_SINCE = 120
"""Points since the suspicion up to which the onset is looked for anew: the ring then still holds as
many points before it."""


class Stream:
    """One curve: its fold state, and the episode that is open."""

    def __init__(self, metric: str, knobs: Floats) -> None:
        self.metric = metric
        self.is_loss = metric in LOSSES
        self.arrays = fold.make_state()
        self.knobs = knobs
        self.episode = 0
        self.alarm_iteration = 0
        self.spikes = 0
        self.onset: dict[str, Any] = {}
        self.jumps = Jumps()

    def fold(
        self,
        values_K: Floats,
        iteration_K: Ints,
        broken_K: Ints,
        marks_K: Ints,
        attempt: int,
        *,
        jumped: list[tuple[int, Annotation]],
    ) -> list[Finding]:
        """Fold K points and give what there is to say; ``jumped``: what is told of jumps, and when."""
        findings: list[Finding] = []

        def report(code: int) -> None:
            now = int(iteration_K[int(self.arrays[0][at.CURSOR]) - 1])
            while jumped and jumped[0][0] <= now:
                findings.append(jumped.pop(0)[1])
            findings.extend(self._report(code, attempt, now))

        fold.FOLD.run((values_K, iteration_K, broken_K, marks_K), (*self.arrays, self.knobs), report)
        return [*findings, *(note for _, note in jumped)]

    def window(self) -> tuple[Floats, Ints]:
        """The last points and their iterations, oldest first."""
        ints, ring, ring_iterations = self.arrays[0], self.arrays[6], self.arrays[7]
        points = int(ints[at.POINTS])
        kept = min(points, growth.RING)
        at_K = np.arange(points - kept, points) % growth.RING
        return ring[at_K], ring_iterations[at_K]

    def end_high(self, attempt: int) -> list[Finding]:
        """That a short curve ends above its level, though in too few points to be suspected elsewhere."""
        ints = self.arrays[0]
        is_high = ints[at.PHASE] == growth.QUIET and ints[at.HIGH_RUN] > 0 and ints[at.LOW_RUN] == 0
        if not is_high or ints[at.POINTS] > at.WARM:
            return []
        now = int(self.window()[1][-1])
        self.episode += 1
        self.alarm_iteration, self.onset = now, {}
        return [self._evidence(Certainty.SUSPECTED, attempt, now)]

    def _report(self, code: int, attempt: int, now: int) -> list[Finding]:
        if code == growth.SPIKE:
            return self._spike(attempt, now)
        if code in (growth.SUSPECTED, growth.GREW_TO_NONFINITE):
            self.episode += 1
            self.alarm_iteration = now
            self.onset = {}
        if code == growth.RECOVERED:
            return [self._evidence(Certainty.RECOVERED, attempt, now), *self._spike(attempt, now)]
        if code == growth.EXPLAINED:
            return [
                self._evidence(Certainty.RECOVERED, attempt, now),
                self._annotation("level_shift_explained", self.episode, attempt),
            ]
        is_confirmed = code in (growth.CONFIRMED, growth.GREW_TO_NONFINITE)
        return [self._evidence(Certainty.CONFIRMED if is_confirmed else Certainty.SUSPECTED, attempt, now)]

    def _find_onset(self, certainty: Certainty) -> dict[str, Any]:
        """Change point in the kept points, up to where growth had nearly reached its peak.

        What came after is a level of its own or a recovery, which would draw the change point to it.
        """
        values_K, iteration_K = self.window()
        stop = len(values_K)
        if certainty is not Certainty.SUSPECTED:
            base, peak = float(self.arrays[1][at.BASE]), float(self.arrays[1][at.PEAK])
            low_K = np.flatnonzero(values_K <= _part_of_growth(base, peak, 0.2, is_loss=self.is_loss))
            last_low = int(low_K[-1]) if len(low_K) and low_K[-1] < stop - 1 else 0
            is_near_K = values_K[last_low:] >= _part_of_growth(base, peak, 0.8, is_loss=self.is_loss)
            stop = last_low + int(is_near_K.argmax()) + 1 if is_near_K.any() else stop
        is_from_start = int(self.arrays[0][at.POINTS]) <= len(values_K)
        found = find_onset(
            values_K[:stop],
            use_log=self.is_loss,
            is_from_start=is_from_start,
            refine=certainty is Certainty.CONFIRMED,
        )
        floats = self.arrays[1]
        if self.is_loss and self.arrays[0][at.CREEPS]:
            # slow growth out of a decline: a ramp out of a level would begin when it has made up for that
            ramp = find_ramp(values_K[:stop], elapsed=int(self.arrays[0][at.POINTS]) - len(values_K))
            if ramp is not None and ramp.onset.shape == "ramp" and not ramp.is_after_rise:
                return ramp.onset.in_iterations(iteration_K)
        found = from_first_high(
            found, values_K, base=float(floats[at.BASE]), sigma=1.25 * float(floats[at.NOISE])
        )
        return found.in_iterations(iteration_K)

    def _evidence(self, certainty: Certainty, attempt: int, now: int) -> Evidence:
        ints, floats = self.arrays[0], self.arrays[1]
        if not self.onset or (certainty is not Certainty.RECOVERED and ints[at.SINCE] <= KEPT_SINCE):
            self.onset = self._find_onset(certainty)
        base, unit, peak_value = floats[at.BASE], floats[at.UNIT], floats[at.PEAK]
        return Evidence(
            detector=DETECTOR,
            key=f"{self.metric}/{min(self.episode, MAX_EPISODES)}",
            pattern=self._pattern(certainty),
            certainty=certainty,
            metric=self.metric,
            attempt=attempt,
            iteration=self.onset["iteration"],
            first_bad=self.onset["first_bad"],
            last_clean=self.onset["last_clean"],
            alarm_iteration=self.alarm_iteration,
            statistic=float((peak_value - base) / unit),
            threshold=float(floats[at.GATE] / unit),
            direction=Direction.UP,
            detail=self._detail(now, certainty),
        )

    def _pattern(self, certainty: Certainty) -> Pattern:
        if certainty is Certainty.CONFIRMED and self.arrays[0][at.WHY] == growth.BY_LEVEL:
            return Pattern.SHARP_SLOW_DEGRADE
        return Pattern.RUNAWAY if self.onset["shape"] == "ramp" else Pattern.SHARP_DEGRADE

    def _detail(self, now: int, certainty: Certainty) -> dict[str, Any]:
        ints, floats = self.arrays[0], self.arrays[1]
        reasons = {
            0: "",
            growth.BY_NONFINITE: "non-finite",
            growth.BY_TENFOLD: "ten-fold",
            growth.BY_NO_RECOVERY: "no recovery",
            growth.BY_LEVEL: "another level",
        }
        detail: dict[str, Any] = {
            "baseline": self._natural(floats[at.BASE]),
            "peak": self._natural(floats[at.PEAK]),
            "judged_at": now,
            "shape": self.onset["shape"],
            "change_point_confirmed": self.onset["is_confirmed"],
        }
        if certainty is Certainty.CONFIRMED:
            detail["confirmed_by"] = reasons[int(ints[at.WHY])]
            if ints[at.WHY] == growth.BY_NONFINITE:
                detail["growing_points"] = int(ints[at.GROWING])
        return detail

    def _natural(self, value: float) -> float:
        """A loss as it is, a gradient norm back from its logarithm."""
        return float(value) if self.is_loss else math.exp(min(float(value), 700.0))

    def _spike(self, attempt: int, now: int) -> list[Finding]:
        """The note of a spike, unless it was told as a jump already."""
        note = self._annotation("spike_recovered", self.spikes + 1, attempt)
        if self.jumps.has_told(note.iteration, now):
            return []
        self.spikes += 1
        return [note]

    def _annotation(self, kind: str, ordinal: int, attempt: int) -> Annotation:
        ints, floats = self.arrays[0], self.arrays[1]
        ring_iterations = self.arrays[7]
        start = max(int(ints[at.START]), int(ints[at.POINTS]) - growth.RING + 1, 0)
        base, peak = self._natural(floats[at.BASE]), self._natural(floats[at.PEAK])
        return Annotation(
            kind=kind,
            key=f"{self.metric}/{min(ordinal, MAX_EPISODES)}",
            attempt=attempt,
            iteration=int(ring_iterations[start % growth.RING]),
            detail={
                "metric": self.metric,
                "baseline": base,
                "peak": peak,
                "peak_ratio": peak / base if base > 0 else None,
                "duration_points": int(ints[at.SINCE]),
                "ordinal": ordinal,
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
            "spikes": self.spikes,
            "onset": dict(self.onset),
            "jumps": self.jumps.snapshot(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        for array, kept in zip(self.arrays, state["arrays"], strict=True):
            array[:] = np.asarray(kept)
        self.episode = int(state["episode"])
        self.alarm_iteration = int(state["alarm_iteration"])
        self.spikes = int(state["spikes"])
        self.onset = dict(state["onset"])
        self.jumps = Jumps.restored(state["jumps"])


def _part_of_growth(base: float, peak: float, part: float, *, is_loss: bool) -> float:
    """The value at ``part`` of the growth from ``base`` to ``peak``, in the logarithm where there is one."""
    if is_loss and base > 0:
        return float(base * (peak / base) ** part)
    return base + part * (peak - base)
