"""Explosion: sustained growth of the loss or of the gradient norm over a robust baseline.

Each of the two curves suffices alone. Growth is *suspected* after three high points in a row (or two
high mini-blocks for slow growth); it is *confirmed* when something non-finite follows, when the curve
stays ten-fold over its baseline, or when it has not recovered after 50 points; it is *recovered* when
four points in a row are back (annotation ``spike_recovered``). `explosion_fold` holds the states.

Axes: T positions, K points of a curve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ingest.blocks import Flags, Floats, Ints, IterationBlock

from . import explosion_fold as fold
from .base import State
from .curve import GRAD_NORMS, LOSSES, Curve, Marks, curve_of
from .evidence import Annotation, Certainty, Check, CheckState, Direction, Evidence, Finding, Pattern
from .onset import find_onset

MAX_EPISODES = 100
"""Episodes of one curve that are told apart; what comes later is counted into the last one, so that a
curve that spikes for ever cannot fill the verdict."""
KEPT_SINCE = 120
"""Points since the suspicion up to which the onset is looked for anew: the ring then still holds as
many points before it."""
EXPLAINING = 3
"""Least mark (see `curve.MARKS`) that explains a new level: a batch, data, resume or stage change. A
change of the learning rate explains no explosion; it causes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplosionConfig:
    """When growth of one curve is suspected and confirmed.

    Every threshold on growth is joined by one on noise, so that the rate of false suspicions is that
    of ``sigmas`` and the ratios only say what is worth reporting.
    """

    loss_rise: float = 0.35
    """Relative rise of three points over the median of 32 that is suspected. Real spikes that recover
    start at about 1.3 times the level; below lies what whole-curve drift watches."""
    loss_slow_rise: float = 0.2
    """Relative rise of two mini-blocks over the best of 512 points: a loss that doubles in 200
    iterations gets there in 53."""
    loss_hold: float = 0.4
    """Relative rise that must be left after 50 points to be an explosion and not a level shift."""
    norm_rise: float = 4.0
    """Ratio of the gradient norm. Blips of three times the level are normal at lognormal sigma 0.18."""
    norm_slow_rise: float = 5.0
    """Ratio of mini-blocks over the best of 512 points: healthy norms drift by up to three or four."""
    norm_hold: float = 8.0
    """Ratio that must be left after 50 points."""
    start_rise: float = 1.0
    """Relative rise (ratio - 1) counted in the first 16 points, where the noise is not known yet: the
    first cross-entropy is near the ceiling of a model that knows nothing, twice that is lost."""
    start_norm_rise: float = 10.0
    """Ratio for the gradient norm there: large first norms belong to warm-up."""
    sigmas: float = 8.0
    """Rise in standard deviations of the noise. Three Gaussian points in a row past 8 sigma never
    happen; the margin is for heavy tails (a Student t of 4 degrees: 1e-9 for three)."""
    ten_fold: float = 10.0
    """Ratio at which growth is confirmed without waiting."""
    ten_fold_points: int = 3
    """Points in a row at ten-fold: start-up transients of real runs reach 5.4-fold at one point."""

    def knobs(self, *, is_loss: bool) -> Floats:
        """The thresholds of one curve as the fold takes them."""
        knobs = np.zeros(fold.KNOBS)
        knobs[fold.RELATIVE] = 1.0 if is_loss else 0.0
        knobs[fold.RISE] = self.loss_rise if is_loss else math.log(self.norm_rise)
        knobs[fold.START_RISE] = self.start_rise if is_loss else math.log(self.start_norm_rise)
        knobs[fold.SLOW_RISE] = self.loss_slow_rise if is_loss else math.log(self.norm_slow_rise)
        knobs[fold.HOLD] = self.loss_hold if is_loss else math.log(self.norm_hold)
        knobs[fold.FAR] = self.ten_fold - 1.0 if is_loss else math.log(self.ten_fold)
        knobs[fold.FAR_POINTS] = self.ten_fold_points if is_loss else 2 * self.ten_fold_points
        knobs[fold.SIGMAS] = self.sigmas
        # Non-finite weight: a loss at once; a norm after three in a row, as one may be a benign skip.
        knobs[fold.NONFINITE_POINTS] = 1.0 if is_loss else 3.0
        knobs[fold.SPIKE_RISE] = self.loss_rise if is_loss else math.log(2 * self.norm_rise)
        return knobs


class _Stream:
    """One curve: its fold state, and the episode that is open."""

    def __init__(self, metric: str, config: ExplosionConfig) -> None:
        self.metric = metric
        self.is_loss = metric in LOSSES
        self.arrays = fold.make_state()
        self.knobs = config.knobs(is_loss=self.is_loss)
        self.episode = 0
        self.alarm_iteration = 0
        self.spikes = 0
        self.onset: dict[str, Any] = {}

    def fold(
        self, values_K: Floats, iteration_K: Ints, broken_K: Ints, marks_K: Ints, attempt: int
    ) -> list[Finding]:
        """Fold K points and give what there is to say."""
        findings: list[Finding] = []
        fold.FOLD.run(
            (values_K, iteration_K, broken_K, marks_K),
            (*self.arrays, self.knobs),
            lambda code: findings.extend(self._report(code, attempt, iteration_K)),
        )
        return findings

    def _report(self, code: int, attempt: int, iteration_K: Ints) -> list[Finding]:
        now = int(iteration_K[int(self.arrays[0][fold.CURSOR]) - 1])
        if code == fold.SPIKE:
            return [self._spike(attempt)]
        if code in (fold.SUSPECTED, fold.GREW_TO_NONFINITE):
            self.episode += 1
            self.alarm_iteration = now
            self.onset = {}
        if code == fold.RECOVERED:
            return [self._evidence(Certainty.RECOVERED, attempt, now), self._spike(attempt)]
        if code == fold.EXPLAINED:
            return [
                self._evidence(Certainty.RECOVERED, attempt, now),
                self._annotation("level_shift_explained", self.episode, attempt),
            ]
        is_confirmed = code in (fold.CONFIRMED, fold.GREW_TO_NONFINITE)
        return [self._evidence(Certainty.CONFIRMED if is_confirmed else Certainty.SUSPECTED, attempt, now)]

    def _window(self) -> tuple[Floats, Ints]:
        """The last points and their iterations, oldest first."""
        ints, ring, ring_iterations = self.arrays[0], self.arrays[6], self.arrays[7]
        points = int(ints[fold.POINTS])
        kept = min(points, fold.RING)
        at_K = np.arange(points - kept, points) % fold.RING
        return ring[at_K], ring_iterations[at_K]

    def _find_onset(self, certainty: Certainty) -> dict[str, Any]:
        """Change point in the kept points, up to the peak: what came after it is no part of the growth."""
        since = int(self.arrays[0][fold.SINCE])
        values_K, iteration_K = self._window()
        peak = len(values_K) - 1 if certainty is Certainty.SUSPECTED else int(values_K.argmax())
        stop = max(1, min(len(values_K), max(peak + 1, len(values_K) - since)))
        return find_onset(values_K[:stop], use_log=self.is_loss).in_iterations(iteration_K)

    def _evidence(self, certainty: Certainty, attempt: int, now: int) -> Evidence:
        ints, floats = self.arrays[0], self.arrays[1]
        if not self.onset or (certainty is not Certainty.RECOVERED and ints[fold.SINCE] <= KEPT_SINCE):
            self.onset = self._find_onset(certainty)
        base, unit, peak_value = floats[fold.BASE], floats[fold.UNIT], floats[fold.PEAK]
        return Evidence(
            detector=Explosion.name,
            key=f"{self.metric}/{min(self.episode, MAX_EPISODES)}",
            pattern=Pattern.RUNAWAY if self.onset["shape"] == "ramp" else Pattern.SHARP_DEGRADE,
            certainty=certainty,
            metric=self.metric,
            attempt=attempt,
            iteration=self.onset["iteration"],
            first_bad=self.onset["first_bad"],
            last_clean=self.onset["last_clean"],
            alarm_iteration=self.alarm_iteration,
            statistic=float((peak_value - base) / unit),
            threshold=float(floats[fold.GATE] / unit),
            direction=Direction.UP,
            detail=self._detail(now, certainty),
        )

    def _detail(self, now: int, certainty: Certainty) -> dict[str, Any]:
        ints, floats = self.arrays[0], self.arrays[1]
        reasons = {
            0: "",
            fold.BY_NONFINITE: "non-finite",
            fold.BY_TENFOLD: "ten-fold",
            fold.BY_NO_RECOVERY: "no recovery",
        }
        detail: dict[str, Any] = {
            "baseline": self._natural(floats[fold.BASE]),
            "peak": self._natural(floats[fold.PEAK]),
            "judged_at": now,
            "shape": self.onset["shape"],
            "change_point_confirmed": self.onset["is_confirmed"],
        }
        if certainty is Certainty.CONFIRMED:
            detail["confirmed_by"] = reasons[int(ints[fold.WHY])]
            if ints[fold.WHY] == fold.BY_NONFINITE:
                detail["growing_points"] = int(ints[fold.GROWING])
        return detail

    def _natural(self, value: float) -> float:
        """A loss as it is, a gradient norm back from its logarithm."""
        return float(value) if self.is_loss else math.exp(min(float(value), 700.0))

    def _spike(self, attempt: int) -> Annotation:
        self.spikes += 1
        return self._annotation("spike_recovered", self.spikes, attempt)

    def _annotation(self, kind: str, ordinal: int, attempt: int) -> Annotation:
        ints, floats = self.arrays[0], self.arrays[1]
        ring_iterations = self.arrays[7]
        start = max(int(ints[fold.START]), int(ints[fold.POINTS]) - fold.RING + 1, 0)
        base, peak = self._natural(floats[fold.BASE]), self._natural(floats[fold.PEAK])
        return Annotation(
            kind=kind,
            key=f"{self.metric}/{min(ordinal, MAX_EPISODES)}",
            attempt=attempt,
            iteration=int(ring_iterations[start % fold.RING]),
            detail={
                "metric": self.metric,
                "baseline": base,
                "peak": peak,
                "peak_ratio": peak / base if base > 0 else None,
                "duration_points": int(ints[fold.SINCE]),
                "ordinal": ordinal,
            },
        )

    def snapshot(self) -> dict[str, Any]:
        """The whole state as plain data."""
        return {
            "arrays": [array.copy() for array in self.arrays],
            "episode": self.episode,
            "alarm_iteration": self.alarm_iteration,
            "spikes": self.spikes,
            "onset": dict(self.onset),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        for array, kept in zip(self.arrays, state["arrays"], strict=True):
            array[:] = np.asarray(kept)
        self.episode = int(state["episode"])
        self.alarm_iteration = int(state["alarm_iteration"])
        self.spikes = int(state["spikes"])
        self.onset = dict(state["onset"])


class Explosion:
    """Sustained growth of ``loss``, ``global_loss``, ``grad_norm`` or ``local_grad_norm``.

    >>> import numpy as np
    >>> from ingest.blocks import NumberBlock
    >>> loss_T = np.concatenate((np.full(60, 2.0), 2.0 * 1.4 ** np.arange(1, 12)))
    >>> loss_T *= np.exp(np.random.default_rng(0).normal(0, 0.01, 71))
    >>> block = IterationBlock(
    ...     run="r", attempt=0, iteration_T=np.arange(71), microbatch_T=np.zeros(71, np.int32),
    ...     ranks_R=np.zeros(1, np.int32),
    ...     numbers={"loss": NumberBlock(loss_T.reshape(-1, 1), np.ones((71, 1), np.bool_))})
    >>> found = Explosion().update(block)[-1]
    >>> (str(found.certainty), found.iteration)
    ('confirmed', 60)
    """

    name: ClassVar[str] = "explosion"

    def __init__(self, config: ExplosionConfig | None = None) -> None:
        self.config = config or ExplosionConfig()
        self._streams: dict[str, _Stream] = {}
        self._marks = Marks()

    def update(self, block: IterationBlock) -> list[Finding]:
        """Fold the curves of the block; findings in the order of the metrics' names."""
        findings: list[Finding] = []
        if not len(block):
            return findings
        marks_T = (self._marks.of(block) >= EXPLAINING).astype(np.int64)
        curves = {
            name: curve for name in (*LOSSES, *GRAD_NORMS) if (curve := curve_of(block, name)) is not None
        }
        broken_T = _broken_losses(block, curves)
        for name, curve in curves.items():
            stream = self._streams.setdefault(name, _Stream(name, self.config))
            findings += self._fold(stream, curve, block, broken_T, marks_T)
        return findings

    def _fold(
        self, stream: _Stream, curve: Curve, block: IterationBlock, broken_T: Flags, marks_T: Ints
    ) -> list[Finding]:
        value_T = np.full(len(block), np.nan)
        value_T[curve.at_K] = curve.value_K
        own_T = np.zeros(len(block), np.bool_)
        own_T[curve.at_K] = np.isnan(curve.value_K)
        weight_T = own_T.astype(np.int64)
        if not stream.is_loss:
            own_T &= ~_skipped(block)
            weight_T = np.where(broken_T, 3, own_T.astype(np.int64))
            # A norm printed as 0 means that it was not computed.
            value_T = np.log(np.where(value_T > 0, value_T, np.nan))
        return stream.fold(value_T, block.iteration_T, weight_T, marks_T, block.attempt)

    def finish(self) -> list[Finding]:
        """Nothing more: a suspicion stays one, since more points could have let it recover."""
        return []

    def check(self) -> Check:
        """Whether a curve was there to watch."""
        if not self._streams:
            return Check(
                name=self.name, state=CheckState.NOT_RUN, why="no loss and no gradient norm reported"
            )
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


def _broken_losses(block: IterationBlock, curves: Mapping[str, Curve]) -> Flags:
    """Positions at which a loss was reported and no rank had a finite one."""
    broken_T = np.zeros(len(block), np.bool_)
    for name in LOSSES:
        if name in curves:
            broken_T[curves[name].at_K] |= np.isnan(curves[name].value_K)
    return broken_T


def _skipped(block: IterationBlock) -> Flags:
    """Positions whose update some rank says it skipped."""
    skipped = block.numbers.get("skipped")
    if skipped is None:
        return np.zeros(len(block), np.bool_)
    return np.asarray((skipped.present_TR & (skipped.values_TR > 0)).any(axis=1))
