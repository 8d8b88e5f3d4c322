"""State that is sharded over the data-parallel ranks: that of the optimizer alone (ZeRO-1), or all of it.

ZeRO-1: gradients are averaged for all; each rank keeps the moments of one shard, steps that shard, and all
gather the shards. What an owner gets wrong everybody gets; what one receiver gets wrong the next gather
heals. Full shard: each rank keeps parameters and moments of one shard alone; parameters are gathered before
the forward pass, gradients are reduced and scattered behind the backward pass. No rank holds a copy of
another's.

Source: Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, SC 2020,
sections 5 and 7 (stages 1 and 3).

Axes: H ranks (all are in this process), P parameters, Q = P / H parameters of a shard.
"""

from __future__ import annotations

import math

import torch

from ...telemetry import Kind as MetricKind
from ...telemetry import Phase, Relation
from ..checksum import row_checksums
from ..sketch import row_sketches
from . import observing
from .contribution import contribute
from .data_parallel import DataParallel
from .links import mean_in_rank_order
from .observing import Columns, digits
from .optimizer import fresh_moments, step
from .passes import Passes
from .spec import Kind, Site
from .state import State

Tensor = torch.Tensor
GATHERED = "gathered_checksum"
"""Hash of the parameters as a rank gathered them: the one thing that full-shard ranks hold alike."""


class ZeroOne(DataParallel):
    """Every rank has all parameters, and the moments of its own shard."""

    def fresh_state(self) -> State:
        state = super().fresh_state()
        state.tensors |= fresh_moments(self.job.training, own_shards(state.tensors["parameters"]))
        return state

    def norms(self, grad_HP: Tensor) -> list[float]:
        return _norms_of_shards(own_shards(grad_HP))

    def apply(self, grad_HP: Tensor, lrs: list[float]) -> None:
        """Step the own shard of the own copy, then gather."""
        tensors = self.state.tensors
        shards = {**tensors, "parameters": own_shards(tensors["parameters"])}
        self.state.steps = [count + 1 for count in self.state.steps]
        step(self.job.training, shards, own_shards(grad_HP), lrs, self.state.steps)
        self.faults.strike_in_place(Site.GATHER, shards["parameters"], Kind.SHARD_OWNER)
        tensors["parameters"].copy_(copies_of(shards["parameters"]))
        self.faults.strike_in_place(Site.GATHER, tensors["parameters"], Kind.WRONG_GATHER)


class FullShard(DataParallel):
    """Every rank has one shard of everything."""

    def fresh_state(self) -> State:
        state = super().fresh_state()
        shards_HQ = own_shards(state.tensors["parameters"])
        state.tensors |= {"parameters": shards_HQ, **fresh_moments(self.job.training, shards_HQ)}
        return state

    def make_passes(self) -> Passes:
        self._gathered_HP = copies_of(self.state.tensors["parameters"])
        return Passes(self.job, self.faults, self._gathered_HP)

    def run_start(self) -> dict[str, object]:
        declared = {
            GATHERED: {
                "kind": MetricKind.CHECKSUM.value,
                "phase": Phase.GATHER.label,
                "relations": {"dp": Relation.EQUAL.value},
            }
        }
        return super().run_start() | ({"metrics": declared} if self.job.watch.gathered_checksum else {})

    def gather(self, iteration: int, seen: Columns) -> None:
        shards_HQ = self.state.tensors["parameters"].clone()
        self.faults.strike_in_place(Site.GATHER, shards_HQ, Kind.SHARD_OWNER)
        self._gathered_HP.copy_(copies_of(shards_HQ))
        self.faults.strike_in_place(Site.GATHER, self._gathered_HP, Kind.WRONG_GATHER)
        if self.job.watch.is_due("gathered_checksum", iteration):
            seen[GATHERED] = row_checksums(self._gathered_HP)

    def reduce(self, iteration: int, local_HP: Tensor, seen: Columns) -> Tensor:
        """The mean of all ranks' gradients, to each rank its own shard of it."""
        sent_HP = contribute(self.faults, local_HP, self.state.tensors["sent"])
        mean_P = mean_in_rank_order(sent_HP)
        if self.faults.is_at(Site.REDUCE_ALL):
            self.faults.strike_rows(mean_P[None], [0])
        shards_HQ = mean_P.view(len(self.ranks), -1).clone()
        if self.faults.is_at(Site.REDUCE_OUT, Kind.MISSING_SYNC):
            rows = self.faults.rows()
            shards_HQ[rows] = own_shards(local_HP)[rows]
        else:
            self.faults.strike_in_place(Site.REDUCE_OUT, shards_HQ)
        self.look_at_reduced(iteration, shards_HQ, seen)
        return shards_HQ

    def look_at_reduced(self, iteration: int, reduced_HP: Tensor, seen: Columns) -> None:
        super().look_at_reduced(iteration, reduced_HP, seen)
        if "grad_sketch_out" in seen:
            # the signs are those of a shard's place in the whole
            whole_HHQ = torch.diag_embed(reduced_HP.T).permute(1, 2, 0)
            seen["grad_sketch_out"] = digits(row_sketches(observing.wide(whole_HHQ)), 9)

    def norms(self, grad_HP: Tensor) -> list[float]:
        return _norms_of_shards(grad_HP)


def own_shards(whole_HP: Tensor) -> Tensor:
    """The shard that each rank owns, from its own copy of the whole: (H, P) to (H, Q)."""
    ranks = len(whole_HP)
    at_H = torch.arange(ranks)
    return whole_HP.view(ranks, ranks, -1)[at_H, at_H].clone()


def copies_of(shards_HQ: Tensor) -> Tensor:
    """All shards joined, a copy for every rank: (H, Q) to (H, P).

    >>> copies_of(torch.tensor([[1.0], [2.0]])).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    return shards_HQ.reshape(1, -1).repeat(len(shards_HQ), 1)


def _norms_of_shards(shards_HQ: Tensor) -> list[float]:
    """All ranks add up the squares of all shards: the same number everywhere."""
    squares = observing.squares(observing.wide(shards_HQ))
    return [math.sqrt(sum(squares))] * len(squares)
