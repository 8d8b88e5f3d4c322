"""How the ranks of a launch meet, and how what each found comes to rank 0.

Results go through the store at which the ranks met, not through the collectives that are being tested, and
rank 0 waits for no one while it computes.
"""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from ..launch import Launch
from ..run_facts import device_facts
from .config import PreflightError

_FIRST_PORT, _PORTS = 20_000, 20_000
"""Where rank 0 of a Slurm step listens, by the number of the job: two jobs on a host seldom share it."""
_PORT = "29512"
"""Where it listens when nothing else is said."""


class Meeting:
    """The ranks of this launch; of one alone nothing is joined."""

    def __init__(self, launch: Launch, device: torch.device, timeout_s: float) -> None:
        self.rank, self.ranks = launch.rank, launch.world_size or 1
        self.device = device
        self._timeout = timedelta(seconds=timeout_s)
        self._store: Any = None
        self._mine: dict[str, Any] = {}
        if self.ranks > 1:
            self._join(timeout_s)

    @property
    def group(self) -> Any:
        """The group of all ranks."""
        return torch.distributed.group.WORLD

    def told_by_all(self, name: str, mine: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What every rank says under ``name``; each hears all.

        Raises:
            PreflightError: some have not said it in time; names them.
        """
        self.tell(name, mine)
        return [self.heard(name, rank) for rank in range(self.ranks)]

    def tell(self, name: str, what: Mapping[str, Any] | Sequence[Any]) -> None:
        """Leave something for others."""
        if self._store is None:
            self._mine[name] = what
        else:
            self._store.set(f"{name}/{self.rank}", json.dumps(what))

    def heard(self, name: str, rank: int, *, is_last: bool = False) -> Any:
        """What ``rank`` has left under ``name``; ``is_last`` when nobody else asks.

        Raises:
            PreflightError: it has not come in time.
        """
        if self._store is None:
            return self._mine[name]
        key = f"{name}/{rank}"
        try:
            self._store.wait([key], self._timeout)
            found = json.loads(self._store.get(key))
        except RuntimeError as error:
            raise PreflightError(
                f"rank {rank} said nothing within {self._timeout.total_seconds():g} s ({name}):"
                " look at its host"
            ) from error
        if is_last:
            self._store.delete_key(key)
        return found

    def is_there(self, name: str) -> bool:
        """Whether every rank has left something under ``name``."""
        if self._store is None:
            return True
        return bool(self._store.check([f"{name}/{rank}" for rank in range(self.ranks)]))

    def leave(self) -> None:
        """Go apart: rank 0, at whose store all meet, once the others have asked for the last time."""
        if self._store is None:
            return
        try:
            if self.rank == 0:
                for other in range(1, self.ranks):
                    self.heard("over", other)
            else:
                self.tell("over", {})
        finally:
            torch.distributed.destroy_process_group()

    def _join(self, timeout_s: float) -> None:
        for name, value in meeting_place(os.environ).items():
            os.environ.setdefault(name, value)
        os.environ.setdefault("RANK", str(self.rank))
        os.environ.setdefault("WORLD_SIZE", str(self.ranks))
        backend = "nccl" if self.device.type == "cuda" else "gloo"
        try:
            torch.distributed.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
        except (RuntimeError, ValueError) as error:
            raise PreflightError(f"the {self.ranks} ranks of this launch cannot meet: {error}") from error
        self._store = torch.distributed.distributed_c10d._get_default_store()


def meeting_place(environ: Mapping[str, str]) -> dict[str, str]:
    """Where rank 0 listens: what torchrun says, or the first host of a Slurm step, or this one.

    >>> meeting_place({"SLURM_JOB_NODELIST": "gpu[07-12,20],cpu1", "SLURM_JOB_ID": "41"})
    {'MASTER_ADDR': 'gpu07', 'MASTER_PORT': '20041'}
    """
    if "MASTER_ADDR" in environ and "MASTER_PORT" in environ:
        return {}
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST") or "127.0.0.1"
    job = environ.get("SLURM_JOB_ID", "")
    port = str(_FIRST_PORT + int(job) % _PORTS) if job.isascii() and job.isdigit() else _PORT
    return {"MASTER_ADDR": environ.get("MASTER_ADDR") or _first_host(hosts), "MASTER_PORT": port}


def _first_host(hosts: str) -> str:
    """The first of a list as Slurm writes it."""
    found = re.match(r"([^,\[]+)(?:\[(\w+))?", hosts)
    return "127.0.0.1" if found is None else found[1] + (found[2] or "")


def chosen_device(local_rank: int) -> torch.device:
    """The accelerator of this process; a launcher may show it but one."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", local_rank % torch.cuda.device_count())


def device_model(device: torch.device) -> str:
    """What must be the same for two ranks to give the same bits."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.backends.cpu.get_cpu_capability()} {platform.machine()}"


def device_id(device: torch.device) -> str:
    """The unit itself, by the name that operators have for it; empty where it has none."""
    if device.type != "cuda":
        return ""
    torch.cuda.init()  # type: ignore[no-untyped-call]  # untyped in torch; of a device that sleeps nothing is told
    return device_facts(device).get("id", "")


def software() -> str:
    """The versions that decide about bits."""
    cuda = torch.version.cuda or ""
    library: Any = torch.backends.cudnn  # untyped in torch
    cudnn = library.version() if library.is_available() else ""
    return " ".join(str(part) for part in ("torch", torch.__version__, cuda, cudnn) if part)
