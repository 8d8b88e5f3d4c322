"""Run a job, with a fault or without, and yield what it says: records of all ranks by iteration, and events.

`run` is one run. `fork` runs a healthy job once and every fault from the iteration at which it strikes: the
run without a fault is the golden twin of all of them.

    for branch in fork(job, faults):       # the first has no fault
        branch.said[: branch.shared]       # the very objects of the golden twin
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...telemetry import Event, Record
from ..job import settle_torch
from .catalogue import check
from .links import Link, OneProcess
from .session import Session
from .spec import Fault, Job

Said = Record | Event
LOST_RECORDS = 40
"""What a run says once all its parameters are NaN is nothing new: twice the skips that no scale outlasts."""
_LOOK_EVERY = 10
"""Iterations from one look at whether a run is lost to the next: each reads all parameters."""


@dataclass(frozen=True, slots=True)
class Branch:
    """What a job said with one fault, or without."""

    fault: Fault | None
    said: Sequence[Said]
    shared: int
    """How many things at the start are those of the golden twin; all of them in the twin itself."""


def run(job: Job, fault: Fault | None = None, *, link: Link | None = None) -> Iterator[Said]:
    """Run a job and yield what it says; in the process engine only the first process says anything.

    Raises:
        DrillError: the fault does not fit the job, or no strategy runs its layout.
    """
    check(job, fault)
    settle_torch()
    session = Session(job, link or OneProcess(job.layout.ranks), fault)
    yield from session.start()
    yield from _rest(session, job.iterations)


def fork(job: Job, faults: Sequence[Fault], tail_iterations: int | None = None) -> Iterator[Branch]:
    """The golden twin, then every fault in turn, each with all that its job said.

    The healthy prefix is computed once. ``tail_iterations`` ends a faulty run so long after its fault
    began (the schedule stays that of the whole job), and one that is lost `LOST_RECORDS` records after that
    was seen; None runs it to its end.

    Raises:
        DrillError: a fault does not fit the job, or no strategy runs its layout.
    """
    for fault in faults:
        check(job, fault)
    settle_torch()
    strikes = {fault.iteration for fault in faults}
    session = Session(job, OneProcess(job.layout.ranks), None)
    golden: list[Said] = list(session.start())
    moments: dict[int, tuple[int, Session]] = {}
    while session.iteration < job.iterations:
        if session.iteration in strikes and session.iteration not in moments:
            moments[session.iteration] = (len(golden), session.fork())
        golden += session.advance()
    golden += session.end("completed")
    yield Branch(None, golden, len(golden))
    for fault in faults:
        shared, moment = moments[fault.iteration]
        branch = moment.fork()
        branch.arm(fault)
        stop = job.iterations
        if tail_iterations is not None:
            stop = min(stop, fault.iteration + tail_iterations)
        is_cut = tail_iterations is not None
        yield Branch(fault, [*golden[:shared], *_rest(branch, stop, is_cut=is_cut)], shared)


def _rest(session: Session, stop: int, *, is_cut: bool = False) -> Iterator[Said]:
    every = session.job.training.log_every
    while session.iteration < stop:
        yield from session.advance()
        if is_cut and session.iteration % _LOOK_EVERY == 0 and session.is_lost():
            stop, is_cut = min(stop, session.iteration + LOST_RECORDS * every), False
    yield from session.end("completed" if stop == session.job.iterations else "stopped")


__all__ = ["Branch", "Said", "fork", "run", "settle_torch"]
