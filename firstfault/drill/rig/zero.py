"""State that is sharded over the data-parallel ranks: that of the optimizer alone (ZeRO-1), or all of it.

ZeRO-1: gradients are averaged for all; each rank keeps the moments of one shard, steps that shard, and all
gather the shards. What an owner gets wrong everybody gets; what one receiver gets wrong the next gather
heals. Full shard: each rank keeps parameters and moments of one shard alone; parameters are gathered before
the forward pass, gradients are reduced and scattered behind the backward pass. No rank holds a copy of
another's.

Source: Rajbhandari et al., ZeRO: memory optimizations toward training trillion parameter models, SC 2020,
sections 5 and 7 (stages 1 and 3).

Axes: H ranks held by this process, R ranks, P parameters, Q = P / R parameters of a shard.
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
from .links import Link, mean_in_rank_order
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
        state.tensors |= fresh_moments(self.job.training, own_shards(self, state.tensors["parameters"]))
        return state

    def norms(self, grad_HP: Tensor) -> list[float]:
        return _norms_of_shards(self.link, own_shards(self, grad_HP))

    def apply(self, grad_HP: Tensor, lrs: list[float]) -> None:
        """Step the own shard of the own copy, then gather."""
        tensors = self.state.tensors
        shards = {**tensors, "parameters": own_shards(self, tensors["parameters"])}
        self.state.steps = [count + 1 for count in self.state.steps]
        step(self.job.training, shards, own_shards(self, grad_HP), lrs, self.state.steps)
        self.faults.strike_in_place(Site.GATHER, shards["parameters"], Kind.SHARD_OWNER)
        tensors["parameters"].copy_(collected(self, shards["parameters"]))
        self.faults.strike_in_place(Site.GATHER, tensors["parameters"], Kind.WRONG_GATHER)


class FullShard(DataParallel):
    """Every rank has one shard of everything."""

    def fresh_state(self) -> State:
        state = super().fresh_state()
        shards_HQ = own_shards(self, state.tensors["parameters"])
        state.tensors |= {"parameters": shards_HQ, **fresh_moments(self.job.training, shards_HQ)}
        return state

    def make_passes(self) -> Passes:
        self._gathered_HP = collected(self, self.state.tensors["parameters"])
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
        self._gathered_HP.copy_(collected(self, shards_HQ))
        self.faults.strike_in_place(Site.GATHER, self._gathered_HP, Kind.WRONG_GATHER)
        if self.job.watch.is_due("gathered_checksum", iteration):
            seen[GATHERED] = row_checksums(self._gathered_HP)

    def reduce(self, iteration: int, local_HP: Tensor, seen: Columns) -> Tensor:
        """The mean of all ranks' gradients, to each rank its own shard of it."""
        sent_HP = contribute(self.faults, local_HP, self.state.tensors["sent"])
        mean_P = mean_in_rank_order(self.link.all_rows(sent_HP))
        if self.faults.is_at(Site.REDUCE_ALL):
            self.faults.strike_rows(mean_P[None], [0])
        shards_HQ = own_shards(self, mean_P.expand(len(self.ranks), -1))
        if self.faults.is_at(Site.REDUCE_OUT, Kind.MISSING_SYNC):
            rows = self.faults.rows()
            shards_HQ[rows] = own_shards(self, local_HP)[rows]
        else:
            self.faults.strike_in_place(Site.REDUCE_OUT, shards_HQ)
        self.look_at_reduced(iteration, shards_HQ, seen)
        return shards_HQ

    def look_at_reduced(self, iteration: int, reduced_HP: Tensor, seen: Columns) -> None:
        super().look_at_reduced(iteration, reduced_HP, seen)
        if "grad_sketch_out" in seen:
            # the signs are those of a shard's place in the whole
            ranks = len(self.ranks)
            whole_HRQ = torch.zeros(ranks, self.job.layout.ranks, reduced_HP.shape[1])
            whole_HRQ[torch.arange(ranks), list(self.ranks)] = reduced_HP
            seen["grad_sketch_out"] = digits(row_sketches(observing.wide(whole_HRQ)), 9)

    def norms(self, grad_HP: Tensor) -> list[float]:
        return _norms_of_shards(self.link, grad_HP)


def own_shards(strategy: DataParallel, whole_HP: Tensor) -> Tensor:
    """The shard that each rank here owns, from its own copy of the whole: (H, P) to (H, Q)."""
    here = len(whole_HP)
    shards_HRQ = whole_HP.reshape(here, strategy.job.layout.ranks, -1)
    return shards_HRQ[torch.arange(here), list(strategy.ranks)].clone()


def collected(strategy: DataParallel, shards_HQ: Tensor) -> Tensor:
    """What each rank here gathers from all owners: (H, Q) to (H, P)."""
    return copies_of(strategy.link.all_rows(shards_HQ), len(shards_HQ))


def copies_of(shards_RQ: Tensor, count: int) -> Tensor:
    """All shards joined, in so many copies: (R, Q) to (H, P).

    >>> copies_of(torch.tensor([[1.0], [2.0]]), 2).tolist()
    [[1.0, 2.0], [1.0, 2.0]]
    """
    return shards_RQ.reshape(1, -1).repeat(count, 1)


def _norms_of_shards(link: Link, shards_HQ: Tensor) -> list[float]:
    """All ranks add up the squares of all shards: the same number everywhere."""
    squares_H = torch.tensor(observing.squares(observing.wide(shards_HQ)), dtype=torch.float64)
    squares_R1 = link.all_rows(squares_H.view(-1, 1))
    return [math.sqrt(sum(squares_R1.flatten().tolist()))] * len(squares_H)
