"""Explosion: sustained growth of the loss or of the gradient norm over a robust baseline.

Each of the two curves suffices alone. Growth is *suspected* after three high points in a row (or two
high mini-blocks for slow growth); it is *confirmed* when something non-finite follows, when the curve
stays ten-fold over its baseline, or when it has not recovered after 50 points; it is *recovered* when
four points in a row are back (annotation ``spike_recovered``). `explosion_fold` walks the points.

Axes: T positions, K points of a curve.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ingest.blocks import Flags, Floats, Ints, IterationBlock
from ingest.bounds import check_bounds

from . import explosion_growth as growth
from .base import State
from .curve import GRAD_NORMS, LOSSES, Curve, Marks, curve_of
from .evidence import Check, CheckState, Finding
from .explosion_huge import HugeLoss
from .explosion_short import grew_together, stays_lost
from .explosion_stream import DETECTOR, Stream
from .explosion_vanished import Vanished
from .rate_returns import RateReturns

LEAST_POINTS = 4
"""A first value and three that grow: with fewer points nothing can be suspected."""
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
    norm_rise: float = 2.5
    """Ratio of three points of the gradient norm: of growth by half the third passes it. Blips of
    three times the level are normal at lognormal sigma 0.18, three of them in a row are not."""
    norm_slow_rise: float = 5.0
    """Ratio of mini-blocks over the best of 512 points: healthy norms drift by up to three or four."""
    norm_hold: float = 8.0
    """Ratio that must be left after 50 points."""
    start_rise: float = 1.0
    """Relative rise (ratio - 1) counted in the first 16 points, where the noise is not known yet: the
    first cross-entropy is near the ceiling of a model that knows nothing, twice that is lost."""
    start_norm_rise: float = 10.0
    """Ratio for the gradient norm there: large first norms belong to warm-up."""
    start_hold: float = 0.5
    """Relative rise of two mini-blocks over the least of the first four points, within the first 512."""
    sigmas: float = 8.0
    """Rise in standard deviations of the noise. Three Gaussian points in a row past 8 sigma never
    happen; the margin is for heavy tails (a Student t of 4 degrees: 1e-9 for three)."""
    ten_fold: float = 10.0
    """Ratio at which growth is confirmed without waiting."""
    ten_fold_points: int = 3
    """Points in a row at ten-fold: start-up transients of real runs reach 5.4-fold at one point."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)

    def knobs(self, *, is_loss: bool) -> Floats:
        """The thresholds of one curve as the fold takes them."""
        knobs = np.zeros(growth.KNOBS)
        knobs[growth.RELATIVE] = 1.0 if is_loss else 0.0
        knobs[growth.RISE] = self.loss_rise if is_loss else math.log(self.norm_rise)
        knobs[growth.START_RISE] = self.start_rise if is_loss else math.log(self.start_norm_rise)
        knobs[growth.START_HOLD] = self.start_hold if is_loss else math.log(self.start_norm_rise)
        knobs[growth.SLOW_RISE] = self.loss_slow_rise if is_loss else math.log(self.norm_slow_rise)
        knobs[growth.HOLD] = self.loss_hold if is_loss else math.log(self.norm_hold)
        knobs[growth.FAR] = self.ten_fold - 1.0 if is_loss else math.log(self.ten_fold)
        knobs[growth.FAR_POINTS] = self.ten_fold_points if is_loss else 2 * self.ten_fold_points
        knobs[growth.SIGMAS] = self.sigmas
        # Non-finite weight: a loss at once; a norm after three in a row, as one may be a benign skip.
        knobs[growth.NONFINITE_POINTS] = 1.0 if is_loss else 3.0
        knobs[growth.SPIKE_RISE] = self.loss_rise if is_loss else math.log(self.norm_hold)
        return knobs


_RELATIVE = (0.01, 100.0)  # of the level: 1 % is below the noise of any training loss
_RATIO = (1.01, 1e6)  # the fold takes its logarithm, which must be above 0
_BOUNDS = {
    **dict.fromkeys(("loss_rise", "loss_slow_rise", "loss_hold", "start_rise", "start_hold"), _RELATIVE),
    **dict.fromkeys(("norm_rise", "norm_slow_rise", "norm_hold", "start_norm_rise", "ten_fold"), _RATIO),
    "sigmas": (1.0, 1000.0),
    "ten_fold_points": (1, 1000),
}


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

    name: ClassVar[str] = DETECTOR

    def __init__(self, config: ExplosionConfig | None = None) -> None:
        self.config = config or ExplosionConfig()
        self._streams: dict[str, Stream] = {}
        self._huge: dict[str, HugeLoss] = {}
        self._vanished: dict[str, Vanished] = {}
        self._marks = Marks()
        self._rates = RateReturns()
        self._attempt = 0

    def update(self, block: IterationBlock) -> list[Finding]:
        """Fold the curves of the block; findings in the order of the metrics' names."""
        findings: list[Finding] = []
        if not len(block):
            return findings
        self._attempt = block.attempt
        event_T = self._marks.of(block) >= EXPLAINING
        marks_T = np.where(event_T, growth.EVENT, np.where(self._rates.of(block), growth.RATE_BACK, 0))
        curves = {
            name: curve for name in (*LOSSES, *GRAD_NORMS) if (curve := curve_of(block, name)) is not None
        }
        broken_T = _broken_losses(block, curves)
        for name, curve in curves.items():
            stream = self._streams.setdefault(name, Stream(name, self.config.knobs(is_loss=name in LOSSES)))
            findings += self._fold(stream, curve, block, broken_T, marks_T)
            watched = self._vanished.setdefault(name, Vanished(is_loss=stream.is_loss))
            findings += watched.update(curve, block.attempt)
            if stream.is_loss:
                findings += self._huge.setdefault(name, HugeLoss()).update(curve, block.attempt)
        return findings

    def _fold(
        self, stream: Stream, curve: Curve, block: IterationBlock, broken_T: Flags, marks_T: Ints
    ) -> list[Finding]:
        value_T = curve.over(len(block))
        own_T = np.isnan(value_T)
        if len(curve) < len(block):
            own_T = np.zeros(len(block), np.bool_)
            own_T[curve.at_K] = np.isnan(curve.value_K)
        weight_T = own_T.astype(np.int64)
        if not stream.is_loss:
            own_T &= ~_skipped(block)
            weight_T = np.where(broken_T, 3, own_T.astype(np.int64))
            # A norm printed as 0 means that it was not computed.
            value_T[value_T <= 0] = np.nan
            np.log(value_T, out=value_T)
        jumped = stream.jumps.update(curve, block.attempt) if stream.is_loss else []
        return stream.fold(value_T, block.iteration_T, weight_T, marks_T, block.attempt, jumped=jumped)

    def finish(self) -> list[Finding]:
        """What short curves say together. A suspicion stays one: more points could have let it recover."""
        streams = self._streams
        pairs = [(streams[a], streams[b]) for a in LOSSES for b in GRAD_NORMS if {a, b} <= streams.keys()]
        losses = [streams[name] for name in LOSSES if name in streams]
        together = [grew_together(loss, norm, self._attempt) for loss, norm in pairs]
        sure = [*together, *(stays_lost(loss, self._attempt) for loss in losses)]
        found: list[Finding] = [one for one in sure if one is not None]
        return found[:1] or [one for loss in losses for one in loss.end_high(self._attempt)]

    def check(self) -> Check:
        """Whether a curve was there to watch."""
        if not self._streams:
            return Check(
                name=self.name, state=CheckState.NOT_RUN, why="no loss and no gradient norm reported"
            )
        names = tuple(sorted(self._streams))
        points = max(stream.points for stream in self._streams.values())
        if points < LEAST_POINTS:
            why = f"{points} points: growth needs at least {LEAST_POINTS}"
            return Check(name=self.name, state=CheckState.NOT_RUN, why=why, metrics=names)
        return Check(name=self.name, state=CheckState.RAN, metrics=names)

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "streams": {name: stream.snapshot() for name, stream in self._streams.items()},
            "huge": {name: huge.snapshot() for name, huge in self._huge.items()},
            "vanished": {name: vanished.snapshot() for name, vanished in self._vanished.items()},
            "marks": self._marks.snapshot(),
            "rates": self._rates.snapshot(),
            "attempt": self._attempt,
        }

    def restore(self, state: State) -> None:
        """Continue from what `snapshot` gave."""
        self._streams = {}
        for name, kept in state["streams"].items():
            self._streams[name] = Stream(name, self.config.knobs(is_loss=name in LOSSES))
            self._streams[name].restore(kept)
        self._huge = {name: HugeLoss(**kept) for name, kept in state["huge"].items()}
        self._vanished = {name: Vanished(**kept) for name, kept in state["vanished"].items()}
        self._marks.restore(state["marks"])
        self._rates = RateReturns.restored(state["rates"])
        self._attempt = int(state["attempt"])


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
