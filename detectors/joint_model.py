"""What `joint` has learned: which scores go together, and how far those of a rank are from that.

Axes: T positions, R ranks of a block, M metrics, C ranks known so far.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from firstfault.contracts import Contracts
from firstfault.telemetry import Kind, MetricContract, Phase
from ingest.blocks import Floats, Ints, IterationBlock, Ranks

from . import joint_fold
from .base import State
from .evidence import JOINT
from .groups import peer_classes


@dataclass(slots=True)
class Learned:
    """What the fit gave: the metrics that count, the precision of their scores, their averages per rank."""

    metrics: list[str] = field(default_factory=list)
    precision_MM: Floats = field(default_factory=lambda: np.empty((0, 0)))
    ranks_C: Ranks = field(default_factory=lambda: np.empty(0, np.int32))
    centre_CM: Floats = field(default_factory=lambda: np.empty((0, 0)))

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "metrics": list(self.metrics),
            "precision": self.precision_MM.copy(),
            "ranks": self.ranks_C.copy(),
            "centres": self.centre_CM.copy(),
        }

    @classmethod
    def of(cls, state: State) -> Learned:
        """What gave that snapshot."""
        return cls(
            list(state["metrics"]),
            np.array(state["precision"]),
            np.array(state["ranks"], np.int32),
            np.array(state["centres"]),
        )

    def distances(self, ranks_R: Ranks, score_TRM: Floats) -> Floats:
        """The distances as `PeerMetric` takes them, by their logarithm: a cube root is nearly normal."""
        T, R, M = score_TRM.shape
        centre_V = self._centres(ranks_R).reshape(-1)
        ints, given_N = np.array([0, R, M], np.int64), np.zeros(T * R)
        joint_fold.FOLD.run(
            (score_TRM.reshape(-1),), (ints, centre_V, self.precision_MM.reshape(-1), np.zeros(M), given_N)
        )
        self.ranks_C, self.centre_CM = ranks_R.copy(), centre_V.reshape(R, M)
        given_TR = given_N.reshape(T, R)
        return np.where(given_TR < 0, np.nan, np.exp(np.cbrt(np.maximum(given_TR, 0.0) / M)))

    def classes(self, block: IterationBlock) -> Ints:
        """Peers in all metrics: the groups of the first, which are those of a norm or finer."""
        finest = [
            peer_classes(block.contracts.of(name), block.ranks_R, block.layout) for name in self.metrics
        ]
        return max(finest, key=lambda class_R: len(np.unique(class_R)))

    def contract(self, contracts: Contracts) -> MetricContract:
        """Stands for all metrics: taken where the last of them is."""
        phases = [contracts.of(name).phase for name in self.metrics]
        return MetricContract(
            name=JOINT, kind=Kind.CURVE, phase=max(phases, default=Phase.REDUCE_IN), is_built_in=False
        )

    def _centres(self, ranks_R: Ranks) -> Floats:
        """The averages of the scores of ``ranks_R``, R × M; 0 for a rank that is new."""
        centre_RM = np.zeros((len(ranks_R), len(self.metrics)))
        centre_RM[np.searchsorted(ranks_R, self.ranks_C)] = self.centre_CM
        return centre_RM
