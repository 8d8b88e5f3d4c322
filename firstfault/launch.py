"""Who this process is in its job, by what launchers say in the environment.

Understood are torchrun, Slurm, Open MPI, MPICH and PMIx; ours (``FIRSTFAULT_RUN`` and the like) win.
Standard library only: this module is imported inside training jobs.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath

from .telemetry import MAX_ATTEMPT, MAX_RANK
from .wire_values import is_run_name

_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
_WORLD_SIZE = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL_RANK = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_LOCAL_SIZE = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
# torchrun names a job "none" where nobody named it
_RUN = ("FIRSTFAULT_RUN", "WANDB_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_NAME")
_NO_NAMES = frozenset({"", "none", "interactive", "bash", "sh"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One process of a job."""

    run: str
    rank: int = 0
    world_size: int | None = None
    """None where no launcher says it."""
    local_rank: int = 0
    local_size: int | None = None
    """Processes of the job on this host; None where no launcher says it."""
    attempt: int = 0
    host: str = ""


def launch_from(environ: Mapping[str, str], script: str = "") -> Launch:
    """What ``environ`` says of this process; ``script`` names the run where nothing else does.

    >>> launch_from({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "FIRSTFAULT_RUN": "r"}).rank
    3
    """
    world_size = _number(environ, _WORLD_SIZE, MAX_RANK + 1)
    return Launch(
        run=_run_name(environ, script),
        rank=_number(environ, _RANK, MAX_RANK) or 0,
        world_size=world_size,
        local_rank=_number(environ, _LOCAL_RANK, MAX_RANK) or 0,
        local_size=_number(environ, _LOCAL_SIZE, MAX_RANK + 1) or _tasks_of_node(environ),
        attempt=_attempt(environ),
        host=host_name(environ),
    )


def host_name(environ: Mapping[str, str]) -> str:
    """The name by which operators know this host."""
    return environ.get("SLURMD_NODENAME") or socket.gethostname()


def _run_name(environ: Mapping[str, str], script: str) -> str:
    for key in _RUN:
        name = environ.get(key, "")
        if name.lower() not in _NO_NAMES and is_run_name(name):
            job = environ.get("SLURM_JOB_ID", "") if key == "SLURM_JOB_NAME" else ""
            return f"{name}-{job}" if job and is_run_name(f"{name}-{job}") else name
    stem = PurePath(script or sys.argv[0] or "run").stem
    return stem if is_run_name(stem) else "run"


def _attempt(environ: Mapping[str, str]) -> int:
    """The launch of the job: torchrun counts its own restarts, Slurm those of the whole job."""
    given = _number(environ, ("FIRSTFAULT_ATTEMPT",), MAX_ATTEMPT)
    if given is not None:
        return given
    restarts = _number(environ, ("TORCHELASTIC_RESTART_COUNT",), MAX_ATTEMPT) or 0
    most = _number(environ, ("TORCHELASTIC_MAX_RESTARTS",), MAX_ATTEMPT) or 0
    requeued = _number(environ, ("SLURM_RESTART_COUNT",), MAX_ATTEMPT) or 0
    # torchrun starts from 0 again in a job that was queued again, and must not repeat a number
    return min(requeued * (most + 1) + restarts, MAX_ATTEMPT)


def _tasks_of_node(environ: Mapping[str, str]) -> int | None:
    """Slurm writes ``4(x2),3`` for all nodes; only where all have the same is this node's number known."""
    text = environ.get("SLURM_TASKS_PER_NODE", "").partition("(")[0]
    rest = environ.get("SLURM_TASKS_PER_NODE", "").partition(",")[2]
    return int(text) if text.isascii() and text.isdigit() and not rest and len(text) < 8 else None


def _number(environ: Mapping[str, str], keys: tuple[str, ...], high: int) -> int | None:
    for key in keys:
        text = environ.get(key, "")
        if text.isascii() and text.isdigit() and len(text) < 12 and int(text) <= high:
            return int(text)
    return None
