"""The drill: a real small multi-rank training job with fault injection.

It makes the sample logs, and lets an operator see the whole path of an alert with a fault that is
known. Importing it loads the standard library alone; torch is loaded when a drill runs.

    >>> from firstfault.drill import SCENARIOS
    >>> SCENARIOS["drift_param"].label
    'silent_drift'
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..telemetry import Event, Record
from .log import Progress, log_lines, log_path, write_log
from .plans import DrillConfig, DrillError, Plan, plan, require_torch
from .scenarios import SCENARIOS, FaultKind, Scenario

__all__ = [
    "SCENARIOS",
    "DrillConfig",
    "DrillError",
    "FaultKind",
    "Plan",
    "Scenario",
    "default_out",
    "drill_lines",
    "plan",
    "run_drill",
]


def drill_lines(config: DrillConfig, progress: Progress | None = None) -> Iterator[str]:
    """Run a drill and yield its log, one JSON line at a time, as the job writes it.

    Raises:
        DrillError: a setting is out of range, or torch is not installed.
    """
    planned = plan(config)
    yield from log_lines(_job(planned), planned.stop, progress)


def run_drill(
    scenario: str,
    seed: int | None = None,
    ranks: int = 8,
    iterations: int | None = None,
    out: Path | None = None,
    *,
    engine: str = "virtual",
    progress: Progress | None = None,
) -> Path:
    """Run one drill and write its log; the path it was written to.

    ``out`` is a file (``.jsonl`` or ``.jsonl.gz``) or a folder; without it the log goes to
    ``<scenario>.jsonl.gz`` in the current folder. The same arguments give the same bytes on the same
    machine and torch.

    Raises:
        DrillError: a setting is out of range, or torch is not installed.
        OSError: the log cannot be written.
    """
    config = DrillConfig(scenario=scenario, seed=seed, ranks=ranks, iterations=iterations, engine=engine)
    path = default_out(config, out)
    write_log(drill_lines(config, progress), path)
    return path


def default_out(config: DrillConfig, out: Path | None = None) -> Path:
    """Where the log of a drill goes, given a file, a folder or nothing.

    Raises:
        DrillError: the scenario or another setting is not allowed, or the file has another ending.
    """
    return log_path(plan(config).run, out)


def _job(planned: Plan) -> Iterator[Record | Event]:
    require_torch()
    if planned.engine == "processes":
        from .processes import run_in_processes

        return run_in_processes(planned)
    from .cluster import VirtualCluster
    from .job import run_job

    return run_job(planned, VirtualCluster(planned.ranks))
