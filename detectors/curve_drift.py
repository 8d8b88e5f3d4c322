"""Whole-curve drift: the loss goes up for good without exploding, or repeats one value.

One-sided, upward, on ``loss`` and ``global_loss``; what a change of learning rate, batch size, data or
a resume explains is an annotation (``level_shift_explained``), and so is a step after which the run
learns on. A mere slowing of the decline cannot be told from a healthy curve: a run that does not learn
at all is at most suspected. `drift_fold` holds the tests.

Axes: T positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ingest.blocks import Floats, IterationBlock
from ingest.bounds import check_bounds

from . import drift_fold as fold
from .base import State
from .curve import LOSSES, Marks, curve_of
from .drift_stream import DETECTOR, Stream
from .evidence import Check, CheckState, Finding

LEAST_POINTS = 8 * 5
"""Points below which no test is made: a value counts as stuck only after five mini-blocks that moved."""
LEVEL_POINTS = 8 * fold.WARM
"""Points of the mini-blocks that the noise is learned from; no test of the level is made before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveDriftConfig:
    """When a rise of the level is suspected and confirmed, in standard deviations of its own noise."""

    suspect_sigmas: float = 4.75
    """Step test. 12 500 tests of 24 places in 100 000 iterations, some 30 000 independent ones: 0.03
    false suspicions for Gaussian noise that is known; that it is learned from 64 differences and may be
    correlated makes it about 0.3 (measured: 2 to 6 in 10^6 points of AR(1) noise up to 0.6)."""
    confirm_sigmas: float = 5.5
    """Step test once more, over all points since the step, which must have lasted for 48 points: none in
    6.4 x 10^7 points of independent, heavy-tailed (t of 5 degrees), lognormal and AR(1) noise of 0.3; of
    113 000 points of 175 healthy real curves, on which the tests were also tuned, 4.75 confirms none and
    4.5 one. At 5.25 it was 1 in 2 x 10^7."""
    slope_sigmas: float = 6.5
    """Level of 128 points against the best of up to 15 such levels: choosing the best of 15 is worth
    1.7 sigma, the rest is the slow wander of real curves."""
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
    explosion_rise: float = 0.4
    """Relative rise from which on a change is judged by the explosion detector (its ``loss_hold``)."""
    stuck_chance: float = 1e-12
    """Chance of a row of repeats this long, by how often the curve repeated values before."""
    stuck_points: float = 24
    """Repeats in a row below which nothing is stuck."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)

    def knobs(self) -> Floats:
        """The thresholds as the fold takes them."""
        knobs = np.zeros(fold.KNOBS)
        knobs[fold.SUSPECT_Z] = self.suspect_sigmas
        knobs[fold.CONFIRM_Z] = self.confirm_sigmas
        knobs[fold.SLOPE_Z] = self.slope_sigmas
        knobs[fold.LEVEL_Z] = self.level_sigmas
        knobs[fold.EXPLOSION_RISE] = self.explosion_rise
        knobs[fold.MIN_STEP] = self.min_step
        knobs[fold.MIN_SLOPE] = self.min_slope
        knobs[fold.LARGE_STEP] = self.large_step
        knobs[fold.STUCK_CHANCE] = self.stuck_chance
        knobs[fold.STUCK_POINTS] = self.stuck_points
        return knobs


_BOUNDS = {
    **dict.fromkeys(("suspect_sigmas", "confirm_sigmas", "slope_sigmas"), (1.0, 1000.0)),
    "level_sigmas": (0.0, 1000.0),
    **dict.fromkeys(("min_step", "min_slope", "large_step"), (0.0, 10.0)),
    "explosion_rise": (0.01, 100.0),
    "stuck_chance": (0.0, 1.0),
    "stuck_points": (2, 1_000_000),
}


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

    name: ClassVar[str] = DETECTOR

    def __init__(self, config: CurveDriftConfig | None = None) -> None:
        self.config = config or CurveDriftConfig()
        self._streams: dict[str, Stream] = {}
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
                stream = self._streams.setdefault(name, Stream(name, self.config.knobs()))
                findings += stream.fold(value_T, block.iteration_T, marks_T, block.attempt)
        return findings

    def finish(self) -> list[Finding]:
        """Nothing more: what is suspected stays so, since more points could have settled it."""
        return []

    def check(self) -> Check:
        """Whether a loss was there to watch."""
        if not self._streams:
            return Check(name=self.name, state=CheckState.NOT_RUN, why="no loss reported")
        names = tuple(sorted(self._streams))
        points = max(stream.points for stream in self._streams.values())
        if points < LEAST_POINTS:
            why = f"{points} points: no test is made before {LEAST_POINTS}"
            return Check(name=self.name, state=CheckState.NOT_RUN, why=why, metrics=names)
        is_partial = points < LEVEL_POINTS
        why = f"{points} points: only a stuck value can be found before {LEVEL_POINTS}" if is_partial else ""
        return Check(name=self.name, state=CheckState.RAN, why=why, metrics=names)

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
            self._streams[name] = Stream(name, self.config.knobs())
            self._streams[name].restore(kept)
        self._marks.restore(state["marks"])
