"""One rank of a preflight, from its first round to its last."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..launch import Launch
from ..torch_metrics.collective_canary import check_collectives
from ..torch_metrics.hashing import hex_of
from .config import PreflightConfig, PreflightError
from .meeting import Meeting, chosen_device, device_id, device_model, software
from .workload import Workload, size_for

_CHUNKS = 100
"""Times that ranks tell what they found: a differing host is named within a hundredth of the whole."""
_WARM_UP = 2
"""Rounds by which the pace of rank 0 is measured; the first loads kernels."""

Line = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Crew:
    """Who takes part, and what is computed."""

    run: str
    workload: str
    rounds: int
    hosts: list[str]
    device_models: list[str]
    device_ids: list[str]
    software: list[str]

    def start(self) -> Line:
        """The event with which the telemetry begins."""
        ranks = len(self.hosts)
        return {
            "event": "run_start",
            "run": self.run,
            "rank": 0,
            "iteration": 0,
            "world_size": ranks,
            "mesh": [["dp", ranks]],
            "hosts": self.hosts,
            "device_models": self.device_models,
            "software": self.software,
            "workload": self.workload,
            "rounds": self.rounds,
            "deterministic": True,
        } | ({"device_ids": self.device_ids} if all(self.device_ids) else {})


def run_rank(
    launch: Launch,
    config: PreflightConfig,
    take: Callable[[Crew, list[Line]], None],
    *,
    most_rounds: int | None = None,
    send: Callable[[Line], None],
) -> Meeting:
    """Compute all rounds; on rank 0 ``take`` gets the records of all ranks, a part at a time.

    ``send`` gets each record of this rank as it is. The meeting is returned open: results of the whole may be
    told before it is left.

    Raises:
        PreflightError: ranks cannot meet, or one has stopped.
    """
    device = chosen_device(launch.local_rank)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    meeting = Meeting(launch, device, config.timeout_s)
    with _deterministic():
        workload = Workload(device, size_for(device, config.size))
        crew = _crew(launch, config, meeting, workload, most_rounds)
        every, lines = max(1, crew.rounds // _CHUNKS), list[Line]()
        told = taken = 0
        for number in range(crew.rounds):
            line = _line(crew, workload, meeting, number)
            send(line)
            lines.append(line)
            if len(lines) == every or number + 1 == crew.rounds:
                meeting.tell(f"lines/{told}", lines)
                lines, told = [], told + 1
            if meeting.rank == 0 and taken < told and meeting.is_there(f"lines/{taken}"):
                take(crew, _collected(meeting, taken))
                taken += 1
        while meeting.rank == 0 and taken < told:
            take(crew, _collected(meeting, taken))
            taken += 1
    return meeting


def _collected(meeting: Meeting, part: int) -> list[Line]:
    ranks = range(meeting.ranks)
    return [line for rank in ranks for line in meeting.heard(f"lines/{part}", rank, is_last=True)]


def _line(crew: Crew, workload: Workload, meeting: Meeting, number: int) -> Line:
    """The record of one round."""
    start_s = time.perf_counter()
    found = workload.round(number)
    took_s = time.perf_counter() - start_s  # without the collectives, in which all wait for the slowest
    if meeting.ranks > 1:
        try:
            sums = check_collectives(meeting.group, number, meeting.device)
        except RuntimeError as error:
            raise PreflightError(f"a collective of round {number} failed: {error}") from error
        found |= {f"collective_checksum/{name}": hex_of(value) for name, value in sums.items()}
    return {
        "run": crew.run,
        "rank": meeting.rank,
        "iteration": number,
        "time": round(time.time(), 3),
        "step_time_s": round(took_s, 6),
        **found,
    }


def _crew(
    launch: Launch, config: PreflightConfig, meeting: Meeting, workload: Workload, most_rounds: int | None
) -> Crew:
    """Agree on who is there and on how many rounds there are: those of rank 0."""
    rounds = config.rounds if config.seconds is None else _rounds_in(config.seconds, workload)
    mine = {
        "host": launch.host,
        "model": device_model(meeting.device),
        "id": device_id(meeting.device),
        "software": software(),
        "workload": workload.name,
        "rounds": rounds if most_rounds is None else min(rounds, most_rounds),
    }
    all_of = meeting.told_by_all("crew", mine)
    return Crew(
        run=launch.run,
        workload=workload.name,
        rounds=int(all_of[0]["rounds"]),
        hosts=[str(one["host"]) for one in all_of],
        device_models=[f"{one['model']} {one['workload']}" for one in all_of],
        device_ids=[str(one["id"]) for one in all_of],
        software=[str(one["software"]) for one in all_of],
    )


def _rounds_in(seconds: float, workload: Workload) -> int:
    for number in range(_WARM_UP):
        start_s = time.perf_counter()
        workload.round(number)
        took_s = time.perf_counter() - start_s
    return max(1, round(seconds / took_s))


@contextmanager
def _deterministic() -> Iterator[None]:
    """Deterministic kernels; where one does not exist the ranks will say that the job is not."""
    before = torch.get_deterministic_debug_mode()
    # Read when the library is first used: without it products may split their sums differently each time.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_deterministic_debug_mode("warn")  # and does not load the compiler, as its other name does
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)
