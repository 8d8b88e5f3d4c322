"""The same job with one process a rank, joined by ``torch.distributed`` (gloo).

The first rank's process sends what the job says to the caller; the bytes are those of the virtual
engine, since both add gradients in rank order.
"""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING

import torch
import torch.distributed
import torch.multiprocessing

from ..telemetry import Event, Record
from .cluster import ProcessCluster
from .job import run_job
from .plans import DrillError, Plan

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from multiprocessing.queues import Queue

_COLLECTIVE_TIMEOUT_S = 300.0
"""A rank that is missing for this long is dead; a loaded machine may pause one for a minute."""
_LOOK_S = 1.0
"""How often the caller looks whether a silent process has died."""
_QUEUE_MESSAGES = 256
"""Iterations the job may be ahead of a slow reader."""


@dataclass(frozen=True, slots=True)
class _Seat:
    """Who one process is, and the file at which all meet."""

    rank: int
    ranks: int
    meeting: str


Said = list[Record | Event] | str | None
"""What one process tells the caller: what the job said, the trace of what failed, or the end."""


def run_in_processes(plan: Plan) -> Iterator[Record | Event]:
    """Run the job of ``plan`` in ``plan.ranks`` processes, and yield what it says.

    Raises:
        DrillError: a process failed or was killed; the message holds what it said.
    """
    return launch(plan.ranks, _run_plan, plan)


def launch(
    ranks: int, body: Callable[..., Iterator[Record | Event]], *args: object
) -> Iterator[Record | Event]:
    """Run ``body(seat.rank, *args)`` in one process a rank, joined in a group, and yield what they say.

    Raises:
        DrillError: a process failed or was killed; the message holds what it said.
    """
    context = torch.multiprocessing.get_context("spawn")
    said: Queue[Said] = context.Queue(_QUEUE_MESSAGES)
    with tempfile.TemporaryDirectory(prefix="firstfault-drill-") as folder:
        meeting = str(Path(folder) / "meeting")
        processes = [
            context.Process(
                target=_run_rank, args=(_Seat(rank, ranks, meeting), said, body, args), daemon=True
            )
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        try:
            yield from _listen(said, processes)
        finally:
            for process in processes:
                process.join(timeout=_LOOK_S)
                if process.is_alive():
                    process.kill()
                    process.join()


def _listen(said: Queue[Said], processes: Sequence[BaseProcess]) -> Iterator[Record | Event]:
    while True:
        try:
            message = said.get(timeout=_LOOK_S)
        except Empty:
            dead = [rank for rank, process in enumerate(processes) if process.exitcode not in (None, 0)]
            if dead:
                raise DrillError(f"the process of rank {dead[0]} died during the drill") from None
            continue
        if message is None:
            return
        if isinstance(message, str):
            raise DrillError(f"a rank failed during the drill:\n{message}")
        yield from message


def _run_plan(rank: int, plan: Plan) -> Iterator[Record | Event]:
    return run_job(plan, ProcessCluster(rank, plan.ranks))


def _run_rank(
    seat: _Seat,
    said: Queue[Said],
    body: Callable[..., Iterator[Record | Event]],
    args: Sequence[object],
) -> None:
    """The life of one process."""
    try:
        torch.distributed.init_process_group(
            "gloo",
            init_method=f"file://{seat.meeting}",
            rank=seat.rank,
            world_size=seat.ranks,
            timeout=timedelta(seconds=_COLLECTIVE_TIMEOUT_S),
        )
        for thing in body(seat.rank, *args):
            said.put([thing])
        torch.distributed.destroy_process_group()
    except Exception:  # the edge of the process: the caller is told what happened
        said.put(traceback.format_exc())
        raise
    if seat.rank == 0:
        said.put(None)
