"""The same job with one process a rank, joined by ``torch.distributed`` (gloo).

Each process runs the engine with its own rank only; the first one's records go to the caller, and the
bytes are those of the one-process engine, since both add gradients in rank order.

Axes: H ranks held by this process (one), R ranks, P parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
import torch.distributed

from ...telemetry import Event, Record
from ..plans import DrillError
from ..processes import launch
from .catalogue import check
from .engine import run
from .observing import Columns
from .spec import Fault, Job, LayoutName

_LAYOUTS = (LayoutName.DP, LayoutName.ZERO1, LayoutName.FULL_SHARD, LayoutName.LOCAL_SGD)
"""Layouts whose ranks meet in collectives alone; the others compute several ranks' parts in one graph."""


class OneRank:
    """One rank of a ``torch.distributed`` group."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.ranks_here: Sequence[int] = (rank,)
        self._ranks = ranks

    def all_rows(self, rows_HP: torch.Tensor) -> torch.Tensor:
        """Gather from all: the bits do not depend on a ring's order."""
        parts = [torch.empty_like(rows_HP) for _ in range(self._ranks)]
        torch.distributed.all_gather(parts, rows_HP)
        return torch.cat(parts)

    def gather(self, columns: Columns) -> Columns:
        is_first = self.ranks_here[0] == 0
        gathered: list[Columns] | None = [{} for _ in range(self._ranks)] if is_first else None
        torch.distributed.gather_object(columns, gathered)
        if not gathered:
            return {}
        names = dict.fromkeys(name for one in gathered for name in one)
        return {name: [one[name][0] if name in one else None for one in gathered] for name in names}


def run_in_processes(job: Job, fault: Fault | None = None) -> Iterator[Record | Event]:
    """Run a job in as many processes as it has ranks, and yield what it says.

    Raises:
        DrillError: the layout cannot be split, or the job changes its world size, the fault does not fit
            it, or a process failed; the message holds what it said.
    """
    check(job, fault)
    if job.layout.name not in _LAYOUTS:
        raise DrillError(
            f"layout in one process a rank must be one of {', '.join(_LAYOUTS)}, got {job.layout.name}"
        )
    if any(restart.ranks is not None for restart in job.training.restarts):
        raise DrillError("training.restarts in one process a rank must keep the world size")
    return launch(job.layout.ranks, run_rank, job, fault)


def run_rank(rank: int, job: Job, fault: Fault | None) -> Iterator[Record | Event]:
    """One rank's part of the job, in a process of its own that is joined to the others'."""
    return run(job, fault, link=OneRank(rank, job.layout.ranks))
