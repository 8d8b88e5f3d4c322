"""One episode of non-finite values: its onset, how long it lasts, whom it reaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from firstfault.telemetry import UNNAMED_RANK
from ingest.blocks import Ranks

from .base import State
from .curve import GRAD_NORMS, LOSSES
from .evidence import Certainty, Direction, Evidence, Pattern
from .nonfinite_onset import Onset
from .nonfinite_sites import Level, Scene


@dataclass(slots=True, eq=False)
class Episode:
    """Non-finite values from an onset on, until the metrics of its level are seen clean again."""

    onset: Onset
    level: int
    alarm_iteration: int
    reason: str
    certainty: str
    bad_ranks: Ranks
    later_ranks: list[list[int]] = field(default_factory=list)
    is_over: bool = False
    alarm_ordinal: int | None = None
    """How many iterations of the attempt came before the alarm, where a loss raised it."""
    bad_iterations: int = 0
    last_bad: int = 0
    last_ordinal: int = 0

    def evidence(self, detector: str, index: int, attempt: int) -> Evidence:
        """The episode as evidence; it changes only when the episode ends or more ranks turn bad."""
        onset = self.onset
        detail = {**onset.detail, "why": self.reason}
        if self.is_over:
            detail |= {"bad_iterations": self.bad_iterations, "last_bad": self.last_bad}
        return Evidence(
            detector=detector,
            key=str(index),
            pattern=Pattern.SHORT_NONFINITE if self.is_over else Pattern.IMMEDIATE_NONFINITE,
            certainty=Certainty(self.certainty),
            metric=onset.metric,
            attempt=attempt,
            iteration=onset.iteration,
            first_bad=onset.iteration,
            last_clean=onset.last_clean,
            alarm_iteration=self.alarm_iteration,
            microbatch=onset.microbatch,
            ranks=tuple(onset.ranks),
            later_ranks=tuple((iteration, rank) for iteration, rank in self.later_ranks),
            statistic=float(max(len(onset.ranks), 1)),
            threshold=0.0,
            direction=Direction.UP,
            detail=detail,
            phase=onset.declared_phase,
            sights=tuple(onset.sights),
        )

    def is_clean_again(self, scene: Scene, i: int, j: int) -> bool:
        """Whether in ``[i, j)`` a rank that was bad shows a metric of the level clean.

        A rank that fell silent does not: then the episode stays open.
        """
        ranks_R = scene.block.ranks_R
        was_bad_R = np.isin(ranks_R, self.bad_ranks) | (ranks_R == UNNAMED_RANK)
        if not len(self.bad_ranks):  # a skipped step, or a log without ranks
            was_bad_R[:] = True
        start, stop = scene.rows(i, j)
        if self.level == Level.GRADIENT and not scene.gradient_clean_I[i:j].any():
            return False
        sites = [site for site in scene.sites if site.level == self.level]
        is_skip = self.level == Level.GRADIENT and not sites
        return is_skip or any(site.clean(start, stop)[:, was_bad_R].any() for site in sites)

    @property
    def is_of_curves_alone(self) -> bool:
        """Whether nothing but losses and norms was bad at the onset."""
        bad = [sight.metric.partition("/")[0] for sight in self.onset.sights if sight.bad_R.any()]
        return bool(bad) and set(bad) <= {*LOSSES, *GRAD_NORMS}

    def snapshot(self) -> State:
        """The episode as plain data."""
        return asdict(self)

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> Episode:
        """The episode that gave ``state``."""
        return cls(**{**state, "onset": Onset.restored(state["onset"])})
