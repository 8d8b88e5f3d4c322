"""The position that the ranks wait at, and who has not come to it: judged from heartbeats.

Durations are taken on each rank's own clock (newest less first time at its position), so that clocks of
hosts that disagree play no part. Axes: R ranks that sent heartbeats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from firstfault.mesh import Layout
from firstfault.telemetry import Phase
from ingest.blocks import Flags, Heartbeats, Ints, Ranks

from .rank_groups import groups_of

_PLACES = len(Phase) + 1
"""Phases and, below them, a heartbeat that names none."""
COLLECTIVE_PHASES = frozenset({Phase.GATHER, Phase.REDUCE_IN, Phase.REDUCE_OUT})
"""Where ranks wait for each other. Elsewhere all may be busy together: checkpoints, evaluation, compiling."""
_NONSENSE_ITERATIONS = 10**9
"""A heartbeat further beyond the last report is a corrupt counter; counters of tokens advance by millions."""
_LIVE_ITERATIONS = 64
"""A rank further behind fell silent before: the others went on without it, so they do not wait for it."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """Where the ranks stand, for how long, and who is behind; all ranks ascending."""

    iteration: int
    phase: Phase | None
    """Where those wait that came furthest; None if they name no phase."""
    stood_s: float
    suspects_R: Ranks
    """Ranks that did not come as far as the others, and that no other rank behind them explains."""
    waiting_R: Ranks
    suspect_phase: Phase | None
    """Where the suspects are, if all of them name it."""
    is_dead: bool
    """Whether the heartbeats of every suspect ended while those of the others went on."""


def standstill(
    beats: Heartbeats, known_R: Flags, layout: Layout | None, *, reported: Ints, newest_record_s: float
) -> Standstill | None:
    """Where the ranks of ``known_R`` stand; None where nothing says that they do.

    ``reported`` is the last iteration that each of them reported (-1: none), ``newest_record_s`` the
    newest time of any record.
    """
    furthest_report = int(reported[known_R].max(initial=-1))
    if furthest_report >= 0:
        known_R = known_R & (beats.iteration_R - furthest_report <= _NONSENSE_ITERATIONS)
    place_R = beats.iteration_R * _PLACES + beats.phase_R + 1
    place_R = np.maximum(place_R, reported * _PLACES)  # a rank has come at least as far as it has reported
    timed_R = known_R & np.isfinite(beats.since_R) & np.isfinite(beats.newest_R)
    if not timed_R.any():
        return None
    reach = _reach(place_R[timed_R])
    iteration, phase = reach // _PLACES, reach % _PLACES - 1
    there_R = timed_R & (place_R >= reach)
    newest_s = float(np.median(beats.newest_R[there_R]))
    if furthest_report > iteration or (furthest_report == iteration and newest_record_s >= newest_s):
        return None
    stood_R = beats.newest_R[there_R] - beats.since_R[there_R]
    stood_s = float(np.sort(stood_R)[(len(stood_R) - 1) // 2])
    behind_R = known_R & _is_behind(place_R, reach)
    behind_R &= place_R // _PLACES >= iteration - _LIVE_ITERATIONS
    suspect_R = _unexplained(beats.ranks_R, place_R, behind_R, layout)
    ended_R = ~(newest_s - beats.newest_R <= stood_s / 2)
    phases = set((place_R[suspect_R] % _PLACES - 1).tolist())
    only = phases.pop() if len(phases) == 1 else -1
    return Standstill(
        iteration=int(iteration),
        phase=Phase(phase) if phase >= 0 else None,
        stood_s=stood_s,
        suspects_R=beats.ranks_R[suspect_R],
        waiting_R=beats.ranks_R[(there_R | behind_R) & ~suspect_R],
        suspect_phase=Phase(only) if only >= 0 else None,
        is_dead=bool(suspect_R.any() and ended_R[suspect_R].all()),
    )


def _reach(place_R: Ints) -> int:
    """The furthest position that two ranks have come to: one alone may have sent nonsense."""
    ordered = np.sort(place_R)
    return int(ordered[-2] if len(ordered) > 2 else ordered[-1])


def _is_behind(place_R: Ints, reach: int) -> Flags:
    """Who is surely not as far as ``reach``; of a rank that names no phase the iteration tells."""
    is_earlier_R = place_R // _PLACES < reach // _PLACES
    is_named_R = place_R % _PLACES > 0
    return is_earlier_R | (is_named_R & (place_R < reach))


def _unexplained(ranks_R: Ranks, place_R: Ints, behind_R: Flags, layout: Layout | None) -> Flags:
    """Of those behind, who waits for nobody further behind that it computes together with.

    Data parallel replicas meet in the reduction alone: two of them behind are two suspects. Inside a
    replica (tensor, context, expert and pipeline parallel) all wait for the one that is furthest
    behind, and so do all ranks where each gathers the others' shards.
    """
    if not behind_R.any():
        return behind_R
    groups = groups_of(layout, ranks_R)
    is_gathered = layout is not None and layout.sharding in ("zero3", "hsdp")
    group_R = np.zeros(len(ranks_R), np.int64) if is_gathered else groups.replica_R
    least_G = np.full(int(group_R.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(least_G, group_R[behind_R], place_R[behind_R])
    suspect_R: Flags = behind_R & (place_R == least_G[group_R])
    return suspect_R
