"""Whole-curve drift: the loss goes up for good without exploding, or repeats one value.

One-sided, upward, on ``loss`` and ``global_loss``; what a change of learning rate, batch size, data or
a resume explains is an annotation (``level_shift_explained``), and so is a step after which the run
learns on. A mere slowing of the decline cannot be told from a healthy curve: a run that does not learn
at all is at most suspected. `drift_fold` holds the tests. The loss of a fixed batch, ``canary_loss``, has no
sampling noise: a break of its decline is found too (`canary_curve`).

Axes: T positions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ingest.blocks import Floats, IterationBlock
from ingest.bounds import check_bounds

from . import drift_state as at
from .base import State
from .canary_curve import LEAST_CELLS, gate_of
from .canary_stream import METRIC as CANARY
from .canary_stream import CanaryStream
from .curve import LOSSES, Marks, curve_of
from .curve_gates import normal_sigmas, slope_sigmas, step_sigmas
from .drift_stream import DETECTOR, Stream
from .evidence import Check, CheckState, Finding

LEAST_POINTS = 8 * 5
"""Points below which no test is made: a value counts as stuck only after five mini-blocks that moved."""
LEVEL_POINTS = 8 * at.WARM
"""Points of the mini-blocks that the noise is learned from; no test of the level is made before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveDriftConfig:
    """How often healthy noise may have a rise suspected and confirmed, and how small a rise may be."""

    suspected_per_million: float = 3.0
    """Suspected steps in a million points of healthy noise (`curve_gates`): a gate of 4.7 standard deviations
    of what is tested."""
    confirmed_per_million: float = 0.04
    """The same once more over all points since the step, of which 40 are the least: 6.0. Measured on healthy
    curves of any shape and on surrogates of recorded ones, whose declines bend and whose noise is correlated
    and heavy-tailed: one or less, confirmed."""
    slope_per_million: float = 1.0
    """Levels of 128 points that rise over the best of up to 15 such levels, in a million points: 6.5."""
    level_chance: float = 0.023
    """Chance with which noise alone gives the rise of the level itself that a step needs besides: 2.0. It
    rules out declines that merely slow."""
    gap_chance: float = 5e-4
    """The same of the gap between the lines before and after a step that has not risen, as the decline took
    it back: 3.3."""
    min_step: float = 0.01
    """Relative step from which on its size alone is worth a word; a fifth of it is the least at all: the same
    job on other hardware differs by up to 0.5 % over 100 points."""
    min_slope: float = 0.03
    """Relative rise of the level below which no slope is suspected; healthy levels wander by 2 %."""
    small_step_sigmas: float = 4.0
    """A smaller step counts too if it is so many standard deviations of eight points."""
    explosion_rise: float = 0.4
    """Relative rise from which on a change is judged by the explosion detector (its ``loss_hold``)."""
    stuck_chance: float = 1e-12
    """Chance of a row of repeats this long, by how often the curve repeated values before."""
    stuck_points: float = 24
    """Repeats in a row below which nothing is stuck."""

    canary_suspected_chance: float = 0.005
    """Chance that a healthy ``canary_loss`` has a break of its decline suspected anywhere: a z of 17.2, since
    healthy declines are never quite as fitted (`canary_curve`)."""
    canary_confirmed_chance: float = 5e-4
    """The same of a confirmed one: 21.3. Declines that slow to half at once reach it in 99 of 100."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)

    def knobs(self) -> Floats:
        """The thresholds as the fold takes them."""
        knobs = np.zeros(at.KNOBS)
        knobs[at.SUSPECT_Z] = step_sigmas(self.suspected_per_million)
        knobs[at.CONFIRM_Z] = step_sigmas(self.confirmed_per_million)
        knobs[at.SLOPE_Z] = slope_sigmas(self.slope_per_million)
        knobs[at.LEVEL_Z] = normal_sigmas(self.level_chance)
        knobs[at.GAP_Z] = normal_sigmas(self.gap_chance)
        knobs[at.EXPLOSION_RISE] = self.explosion_rise
        knobs[at.MIN_STEP] = self.min_step
        knobs[at.MIN_SLOPE] = self.min_slope
        knobs[at.SMALL_STEP_Z] = self.small_step_sigmas
        knobs[at.STUCK_CHANCE] = self.stuck_chance
        knobs[at.STUCK_POINTS] = self.stuck_points
        return knobs


_BOUNDS = {
    # Below 1e-8 the gate is out of reach of any step, above 1000 everything is suspected.
    **dict.fromkeys(("suspected_per_million", "confirmed_per_million", "slope_per_million"), (1e-8, 1000.0)),
    **dict.fromkeys(("level_chance", "gap_chance"), (1e-9, 0.5)),
    "small_step_sigmas": (0.0, 1000.0),
    **dict.fromkeys(("min_step", "min_slope"), (0.0, 10.0)),
    "explosion_rise": (0.01, 100.0),
    "stuck_chance": (0.0, 1.0),
    "stuck_points": (2, 1_000_000),
    **dict.fromkeys(("canary_suspected_chance", "canary_confirmed_chance"), (1e-9, 0.1)),
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
        self._canary = CanaryStream(
            gate_of(self.config.canary_suspected_chance), gate_of(self.config.canary_confirmed_chance)
        )
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
                stream = self._streams.setdefault(name, Stream(name, self.config.knobs()))
                findings += stream.fold(curve.over(len(block)), block.iteration_T, marks_T, block.attempt)
        return findings + self._canary.update(block, marks_T)

    def finish(self) -> list[Finding]:
        """Nothing more: what is suspected stays so, since more points could have settled it."""
        return []

    def check(self) -> Check:
        """Whether a loss was there to watch."""
        if not self._streams and self._canary.points >= LEAST_CELLS:
            return Check(name=self.name, state=CheckState.RAN, metrics=(CANARY,))
        if not self._streams:
            return Check(name=self.name, state=CheckState.NOT_RUN, why="no loss reported")
        seen = [CANARY] if self._canary.points >= LEAST_CELLS else []
        names = tuple(sorted([*self._streams, *seen]))
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
            "canary": self._canary.snapshot(),
            "marks": self._marks.snapshot(),
        }

    def restore(self, state: State) -> None:
        """Continue from what `snapshot` gave."""
        self._streams = {}
        for name, kept in state["streams"].items():
            self._streams[name] = Stream(name, self.config.knobs())
            self._streams[name].restore(kept)
        self._canary.restore(state["canary"])
        self._marks.restore(state["marks"])
