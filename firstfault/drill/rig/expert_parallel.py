"""A mixture of experts: dense parameters on every rank, one expert on each rank of the ``ep`` axis.

Every rank reads data of its own. Dense gradients are averaged over all ranks, an expert's over the ranks that
hold the same expert; both are means over all tokens.

Axes: H ranks (all of them), P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from . import observing
from .experts import ExpertModel
from .layouts import MESSAGES
from .losses import losses
from .model_parallel import ModelParallel, Passed
from .part_looks import Said, put
from .parts import Part, PartFaults
from .reading import Shards
from .rows import Tap
from .spec import places

Tensor = torch.Tensor
LOAD = "expert_tokens"
"""Tokens that a rank's expert got: supporting evidence, uneven as the router makes it."""


class ExpertParallel(ModelParallel):
    """The layout dp × ep, in this order of its axes."""

    message_axis = "ep"

    def make_parts(self) -> list[Part]:
        layout = self.job.layout
        self._experts = layout.size("ep")
        self._model = ExpertModel(self.job.model, layout.ranks, self._experts, self.job.seed)
        dense, sparse = (
            PartFaults(self.faults, self.ranks, places(self.job.model), MESSAGES[layout.name], (at, 2))
            for at in range(2)
        )
        parts = [
            Part(self.job, self._model.dense, dense, self.ranks, replicas=layout.ranks),
            Part(self.job, self._model.sparse, sparse, self.ranks, replicas=layout.size("dp")),
        ]
        parts[1].scope, parts[1].losses = "expert", self._experts
        return parts

    def make_readers(self) -> list[int]:
        return list(self.ranks)

    def data_rank(self, rank: int) -> int:
        return rank

    def forward(self, shards: Shards, tap: Tap) -> Passed:
        logits, balance_H = self._model.logits(shards.tokens_HBS[:, :, :-1], shards.features_HBLF, tap)
        loss_H = losses(self.parts[0].faults, logits, shards.targets())
        return Passed(loss_H, self._model.objective(loss_H, balance_H))

    def synchronize(self, grads: Sequence[Tensor]) -> None:
        """Nothing: each part has one reduction."""

    def global_norms(self, grads: Sequence[Tensor]) -> list[float]:
        """Dense parameters as this rank has them, and the experts of its group."""
        dense_R, sparse_R = (observing.squares(observing.wide(grad_HP)) for grad_HP in grads)
        starts = [rank - rank % self._experts for rank in self.ranks]
        group_R = [sum(sparse_R[start : start + self._experts]) for start in starts]
        return [math.sqrt(dense + group) for dense, group in zip(dense_R, group_R, strict=True)]

    def look(self, iteration: int, seen: Said) -> None:
        super().look(iteration, seen)
        put(seen, LOAD, self.ranks, self._model.load_H.tolist())
