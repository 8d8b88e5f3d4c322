"""Which strategy runs a layout. Its module is loaded when a job of that layout runs."""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from ..plans import DrillError
from .faults import Faults
from .links import Link
from .observing import Columns
from .spec import Job, LayoutName
from .state import State

_STRATEGIES: dict[LayoutName, tuple[str, str]] = {
    LayoutName.DP: ("data_parallel", "DataParallel"),
    LayoutName.PP4_TP2_DP2: ("pipeline", "Pipeline"),
    LayoutName.ZERO1: ("zero", "ZeroOne"),
    LayoutName.FULL_SHARD: ("zero", "FullShard"),
    LayoutName.EXPERT: ("expert_parallel", "ExpertParallel"),
    LayoutName.LOCAL_SGD: ("local_sgd", "LocalSgd"),
}
"""Module and class by layout."""


class Strategy(Protocol):
    """How one layout trains: what `data_parallel.DataParallel` does, in its own way."""

    state: State

    def run_start(self) -> dict[str, object]:
        """What the layout has to say in the job's ``run_start``."""
        ...

    def iterate(self, iteration: int, attempt: int) -> Columns:
        """One iteration of every rank here: what they saw. A value of NaN is an observation; a rank that
        does not report a metric has None in its place."""
        ...

    def restore(self, state: State) -> None:
        """Go on from a checkpoint."""
        ...


def make_strategy(job: Job, link: Link, faults: Faults) -> Strategy:
    """The strategy of the job's layout, at the start of training.

    Raises:
        DrillError: no strategy runs this layout.
    """
    if job.layout.name not in _STRATEGIES:
        raise DrillError(f"layout must be one of {', '.join(_STRATEGIES)}, got {job.layout.name!r}")
    module, name = _STRATEGIES[job.layout.name]
    strategy: Strategy = getattr(import_module(f"{__package__}.{module}"), name)(job, link, faults)
    return strategy
