"""Whole-curve drift: the loss goes up for good without exploding, or repeats one value.

One-sided, upward, on ``loss`` and ``global_loss``; what a change of learning rate, batch size, data or
a resume explains is an annotation (``level_shift_explained``), and so is a step after which the run
learns on. A mere slowing of the decline cannot be told from a healthy curve: a run that does not learn
at all is at most suspected. `drift_fold` holds the tests.

Axes: T positions, K points of a curve, B mini-blocks of 8 points.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ingest.blocks import Floats, Ints, IterationBlock

from . import drift_fold as fold
from .base import State
from .curve import LOSSES, MARKS, Marks, curve_of
from .evidence import Annotation, Certainty, Check, CheckState, Direction, Evidence, Finding, Pattern
from .onset import MAX_WINDOW, find_onset

MAX_EPISODES = 100
"""Episodes of one curve that are told apart; later ones replace the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveDriftConfig:
    """When a rise of the level is suspected and confirmed, in standard deviations of its own noise."""

    suspect_sigmas: float = 4.75
    """Step test. 12 500 tests of 24 places in 100 000 iterations, some 30 000 independent ones: 6e-4
    false suspicions for Gaussian noise that is known; the noise is learned from about 60 differences,
    which makes that about 1 in 100."""
    confirm_sigmas: float = 5.25
    """Step test once more, over all points since the step, which must have lasted for 48 points: at most
    1 false confirmation in 100 000 healthy iterations, measured on real curves."""
    slope_sigmas: float = 6.5
    """Level of 128 points against the best of up to 15 such levels: choosing the best of 15 is worth
    1.7 sigma, slow wander of real curves the rest."""
    level_sigmas: float = 2.0
    """Rise of the level itself that a step needs besides: it rules out declines that merely slow."""
    min_step: float = 0.01
    """Relative step below which nothing is suspected: the same job on other hardware differs by up to
    0.5 % over 100 points."""
    min_slope: float = 0.03
    """Relative rise of the level below which no slope is suspected; healthy levels wander by 2 %."""
    large_step: float = 0.045
    """Relative step from which on it must also be shown not to decay: a change of data mix brings 6 to
    10 %, after which the run learns on over some hundred iterations."""
    stuck_chance: float = 1e-12
    """Chance of a row of repeats this long, by how often the curve repeated values before."""
    stuck_points: float = 24
    """Repeats in a row below which nothing is stuck."""

    def knobs(self) -> Floats:
        """The thresholds as the fold takes them."""
        knobs = np.zeros(fold.KNOBS)
        knobs[fold.SUSPECT_Z] = self.suspect_sigmas
        knobs[fold.CONFIRM_Z] = self.confirm_sigmas
        knobs[fold.SLOPE_Z] = self.slope_sigmas
        knobs[fold.LEVEL_Z] = self.level_sigmas
        knobs[fold.MIN_STEP] = self.min_step
        knobs[fold.MIN_SLOPE] = self.min_slope
        knobs[fold.LARGE_STEP] = self.large_step
        knobs[fold.STUCK_CHANCE] = self.stuck_chance
        knobs[fold.STUCK_POINTS] = self.stuck_points
        return knobs


class _Stream:
    """One curve: its fold state, and the episode that is open."""

    def __init__(self, metric: str, config: CurveDriftConfig) -> None:
        self.metric = metric
        self.config = config
        self.arrays = fold.make_state()
        self.knobs = config.knobs()
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
        if code == fold.PASSED:
            return [self._shift(Certainty.RECOVERED, attempt, now)]
        if code == fold.LEARNED_ON:
            return [self._shift(Certainty.RECOVERED, attempt, now), self._explained(attempt, "learned_on")]
        return [
            self._shift(Certainty.CONFIRMED if code == fold.CONFIRMED else Certainty.SUSPECTED, attempt, now)
        ]

    def _shift(self, certainty: Certainty, attempt: int, now: int) -> Evidence:
        ints, floats = self.arrays[0], self.arrays[1]
        is_slope = int(ints[fold.KIND]) == fold.SLOPE
        if certainty is not Certainty.RECOVERED:
            # A suspicion that is dropped keeps the onset it had: its points may be forgotten by now.
            self.onset = self._slope_onset() if is_slope else self._step_onset()
        base = float(floats[fold.BASE])
        return Evidence(
            detector=CurveDrift.name,
            key=f"{self.metric}/{min(self.episode, MAX_EPISODES)}",
            pattern=Pattern.SLOW_DEGRADE if is_slope else Pattern.SHARP_SLOW_DEGRADE,
            certainty=certainty,
            metric=self.metric,
            attempt=attempt,
            iteration=self.onset["iteration"],
            first_bad=self.onset["first_bad"],
            last_clean=self.onset["last_clean"],
            alarm_iteration=self.alarm_iteration,
            statistic=float(floats[fold.SCORE]),
            threshold=self.config.slope_sigmas if is_slope else self.config.confirm_sigmas,
            direction=Direction.UP,
            detail={
                "baseline": base,
                "level": float(floats[fold.LEVEL]),
                "relative_rise": (float(floats[fold.LEVEL]) - base) / base,
                "sigma_of_8_points": float(floats[fold.SIGMA]),
                "judged_at": now,
                "shape": self.onset["shape"],
                "change_point_confirmed": self.onset["is_confirmed"],
            },
        )

    def _step_onset(self) -> dict[str, Any]:
        """Change point among the points around the mini-block at which the step was seen."""
        ints = self.arrays[0]
        points = int(ints[fold.POINTS])
        around = int(ints[fold.TAU]) * fold.MINI
        start = max(0, points - fold.RING, around - MAX_WINDOW // 2)
        at_K = np.arange(start, min(points, around + MAX_WINDOW // 2)) % fold.RING
        values_K, iteration_K = self.arrays[5][at_K], self.arrays[6][at_K]
        return find_onset(values_K, use_log=True).in_iterations(iteration_K)

    def _slope_onset(self) -> dict[str, Any]:
        """Where the level left its best, among mini-blocks; the iterations of their first points."""
        ints = self.arrays[0]
        minis = int(ints[fold.MINIS])
        start = max(int(ints[fold.FROM]), minis - MAX_WINDOW, int(ints[fold.TAU]) - 6 * fold.WIDE, 0)
        at_B = np.arange(start, minis) % fold.MINI_RING
        found = find_onset(self.arrays[3][at_B], use_log=True, shapes=("ramp",))
        return found.in_iterations(self.arrays[4][at_B])

    def _stuck(self, attempt: int, now: int) -> Evidence:
        ints, floats = self.arrays[0], self.arrays[1]
        start = int(ints[fold.RUN_START])
        # The first of the equal values may be the last true one: the fault shows at the second.
        before, first, second = (int(self.arrays[6][(start + off) % fold.RING]) for off in (-1, 0, 1))
        return Evidence(
            detector=CurveDrift.name,
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
            threshold=self.config.stuck_points,
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
            detector=CurveDrift.name,
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
            iteration=int(self.arrays[4][int(ints[fold.TAU]) % fold.MINI_RING]),
            detail={
                "metric": self.metric,
                "why": why,
                "baseline": float(floats[fold.BASE]),
                "level": float(floats[fold.LEVEL]),
            },
        )

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


class CurveDrift:
    """A lasting upward step, a slow rise or a stuck value of ``loss`` or ``global_loss``.

    >>> import numpy as np
    >>> from ingest.blocks import NumberBlock
    >>> loss_T = 2.0 * np.exp(np.random.default_rng(0).normal(0, 0.01, 600))
    >>> loss_T[400:] *= 1.04
    >>> block = IterationBlock(
    ...     run="r", attempt=0, iteration_T=np.arange(600), microbatch_T=np.zeros(600, np.int32),
    ...     ranks_R=np.zeros(1, np.int32),
    ...     numbers={"loss": NumberBlock(loss_T.reshape(-1, 1), np.ones((600, 1), np.bool_))})
    >>> found = CurveDrift().update(block)[-1]
    >>> (str(found.certainty), found.last_clean < 400 <= found.first_bad)
    ('confirmed', True)
    """

    name: ClassVar[str] = "curve_drift"

    def __init__(self, config: CurveDriftConfig | None = None) -> None:
        self.config = config or CurveDriftConfig()
        self._streams: dict[str, _Stream] = {}
        self._marks = Marks()

    def update(self, block: IterationBlock) -> list[Finding]:
        """Fold the losses of the block."""
        findings: list[Finding] = []
        if not len(block):
            return findings
        marks_T = self._marks.of(block)
        for name in LOSSES:
            curve = curve_of(block, name)
            if curve is not None:
                value_T = np.full(len(block), np.nan)
                value_T[curve.at_K] = curve.value_K
                stream = self._streams.setdefault(name, _Stream(name, self.config))
                findings += stream.fold(value_T, block.iteration_T, marks_T, block.attempt)
        return findings

    def finish(self) -> list[Finding]:
        """Nothing more: what is suspected stays so, since more points could have settled it."""
        return []

    def check(self) -> Check:
        """Whether a loss was there to watch."""
        if not self._streams:
            return Check(name=self.name, state=CheckState.NOT_RUN, why="no loss reported")
        return Check(name=self.name, state=CheckState.RAN, metrics=tuple(sorted(self._streams)))

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "streams": {name: stream.snapshot() for name, stream in self._streams.items()},
            "marks": self._marks.snapshot(),
        }

    def restore(self, state: State) -> None:
        """Continue from what `snapshot` gave."""
        self._streams = {}
        for name, kept in state["streams"].items():
            self._streams[name] = _Stream(name, self.config)
            self._streams[name].restore(kept)
        self._marks.restore(state["marks"])
