"""What the ranks of a drilled job say of where they are, while it trains and once it hangs."""

from __future__ import annotations

from collections.abc import Iterator

from ..telemetry import Event, EventKind
from .plans import Plan

HANGS_S = 430.0
"""How long the ranks wait before the log ends: past the five minutes that confirm a hang."""
_BEAT_S = 10.0
_APART_S = 0.01
"""Between the heartbeats of one rank and the next."""


def beats(plan: Plan, attempt: int, iteration: int, time_s: float) -> Iterator[Event]:
    """Every rank has come to the end of ``iteration``."""
    for rank in range(plan.ranks):
        yield _beat(plan, rank, (attempt, iteration, "state"), time_s)


def waiting(plan: Plan, attempt: int, iteration: int, time_s: float) -> Iterator[Event]:
    """The faulty rank never leaves its backward pass; the others wait for it in the reduction."""
    for turn in range(1 + int(HANGS_S // _BEAT_S)):
        for rank in range(plan.ranks):
            phase = "backward" if rank == plan.fault_rank else "reduce_in"
            yield _beat(plan, rank, (attempt, iteration, phase), time_s + turn * _BEAT_S)


def _beat(plan: Plan, rank: int, place: tuple[int, int, str], time_s: float) -> Event:
    """``rank`` is at ``place``: attempt, iteration, phase."""
    attempt, iteration, phase = place
    return Event(
        kind=EventKind.HEARTBEAT,
        run=plan.run,
        rank=rank,
        iteration=iteration,
        attempt=attempt,
        time=round(time_s + rank * _APART_S, 3),
        fields={"phase": phase},
    )
