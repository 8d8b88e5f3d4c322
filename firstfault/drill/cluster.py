"""Where the replicas live and how their gradients are reduced: one process, or one process a rank.

Both reduce by the same function in rank order, so both write the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from .replica import Metrics


class Cluster(Protocol):
    """Some ranks of the job, and the collectives that join them to the others."""

    @property
    def ranks_here(self) -> Sequence[int]:
        """The ranks whose replicas this process holds, ascending."""
        ...

    def reduce(self, grads_here: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The mean over all ranks, one copy for each rank here."""
        ...

    def gather(self, metrics_here: Sequence[Metrics]) -> list[Metrics]:
        """The metrics of all ranks in rank order on the first process, nothing elsewhere."""
        ...


class VirtualCluster:
    """All ranks in this process, each with its own tensors."""

    def __init__(self, ranks: int) -> None:
        self.ranks_here: Sequence[int] = range(ranks)

    def reduce(self, grads_here: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        mean_P = mean_in_rank_order(grads_here)
        return [mean_P.clone() for _ in grads_here]

    def gather(self, metrics_here: Sequence[Metrics]) -> list[Metrics]:
        return list(metrics_here)


class ProcessCluster:
    """One rank of a ``torch.distributed`` group (gloo)."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.ranks_here: Sequence[int] = (rank,)
        self._ranks = ranks

    def reduce(self, grads_here: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Gather from all, then add in rank order: the bits do not depend on the ring's order."""
        parts = [torch.empty_like(grads_here[0]) for _ in range(self._ranks)]
        torch.distributed.all_gather(parts, grads_here[0])
        return [mean_in_rank_order(parts)]

    def gather(self, metrics_here: Sequence[Metrics]) -> list[Metrics]:
        is_first = self.ranks_here[0] == 0
        gathered: list[Metrics] | None = [{} for _ in range(self._ranks)] if is_first else None
        torch.distributed.gather_object(metrics_here[0], gathered)
        return gathered or []


def mean_in_rank_order(grads_RP: Sequence[torch.Tensor]) -> torch.Tensor:
    """The mean gradient (P), added rank by rank."""
    total_P = grads_RP[0].clone()
    for grad_P in grads_RP[1:]:
        total_P += grad_P
    return total_P / len(grads_RP)
