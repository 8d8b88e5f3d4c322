"""Which detectors judge an attempt, one line each, in the order in which findings are listed.

A new detector is one file, one line here and one line in ``tests/registry.py``. Peer outlier and
joint detectors take their place below the ones that are here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .agreement import Agreement
from .base import Detector
from .checksum_vote import ChecksumVote
from .curve_drift import CurveDrift, CurveDriftConfig
from .evaluation import Evaluation, EvaluationConfig
from .explosion import Explosion, ExplosionConfig
from .joint import Joint, JointConfig
from .linear_checksum import LinearChecksum
from .linear_rates import LinearChecksumConfig
from .loss_scale import LossScaleConfig
from .nonfinite import Nonfinite
from .peer_outlier import PeerOutlier, PeerOutlierConfig
from .repeat import Repeat
from .repeat_fold import RepeatConfig
from .slowdown import Slowdown, SlowdownConfig
from .stall import Stall, StallConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectorsConfig:
    """The settings of the detectors that have any, each under its detector's name.

    Values that must be equal leave nothing to set (`checksum_vote`, `agreement`): their tolerance is learned.
    """

    nonfinite: LossScaleConfig = field(default_factory=LossScaleConfig)
    explosion: ExplosionConfig = field(default_factory=ExplosionConfig)
    curve_drift: CurveDriftConfig = field(default_factory=CurveDriftConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    stall: StallConfig = field(default_factory=StallConfig)
    peer_outlier: PeerOutlierConfig = field(default_factory=PeerOutlierConfig)
    joint: JointConfig = field(default_factory=JointConfig)
    slowdown: SlowdownConfig = field(default_factory=SlowdownConfig)
    repeat: RepeatConfig = field(default_factory=RepeatConfig)
    linear_checksum: LinearChecksumConfig = field(default_factory=LinearChecksumConfig)

    def __post_init__(self) -> None:
        least = self.explosion.loss_hold
        if self.curve_drift.explosion_rise < least:
            # between the two a rise would be handed over to a detector that does not confirm it
            raise ValueError(
                f"curve_drift.explosion_rise must be >= explosion.loss_hold, {least}, "
                f"got {self.curve_drift.explosion_rise}"
            )


def make_detectors(config: DetectorsConfig | None = None) -> list[Detector]:
    """A fresh detector of each kind, for one attempt of one run."""
    config = config or DetectorsConfig()
    return [
        Nonfinite(config.nonfinite),
        Explosion(config.explosion),
        ChecksumVote(),
        Agreement(),
        Repeat(config.repeat),
        LinearChecksum(config.linear_checksum),
        CurveDrift(config.curve_drift),
        Evaluation(config.evaluation),
        Stall(config.stall),
        PeerOutlier(config.peer_outlier),
        Joint(config.joint),
        Slowdown(config.slowdown),
    ]
