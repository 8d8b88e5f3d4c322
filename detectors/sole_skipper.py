"""Skips that one rank alone causes: loss scaling overflows everywhere, a defect in one place.

Axes: R ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from firstfault.telemetry import UNNAMED_RANK, Kind, MetricContract, Phase, Relation
from ingest.blocks import Flags

from .base import State
from .cause_graph import phase_of
from .evidence import Certainty, Direction, Evidence, Finding, Pattern
from .groups import layout_classes
from .nonfinite_onset import Onset
from .nonfinite_sites import Level, Scene
from .roles import Roles

ALIKE_ODDS = 1e5
"""How unlikely it must be that the same one of R alike ranks overflows alone k times in a row, which is
R**(1 - k): one in 100 000, with at most some hundred overflows in a run."""

_PEERS = MetricContract(
    name="peers", kind=Kind.CURVE, phase=Phase.REDUCE_IN, relations={"dp": Relation.EQUAL}
)


class SoleSkipper:
    """Counts overflows in a row whose only bad gradient before the reduction is one and the same rank's.

    Its data parallel peers must have been seen clean: they compute the same on other data. Without a
    layout all ranks are taken for peers and the rank stays suspected, since a last pipeline stage or
    an expert may well overflow alone.
    """

    def __init__(self) -> None:
        self._rank = UNNAMED_RANK
        self._times = 0
        self._onset: Onset | None = None
        self._is_told = False

    def update(
        self, scene: Scene, i: int, roles: Roles, detector: str, take: Callable[[], Onset]
    ) -> list[Finding]:
        """Take an iteration with bad gradients; the evidence is told in the name of ``detector``."""
        if self._is_told:
            return []
        found = _sole_rank(scene, i, roles)
        if found is None:
            return []
        rank, peers = found
        if rank != self._rank:
            self._rank, self._times, self._onset = rank, 0, take() if rank != UNNAMED_RANK else None
        self._times += 1
        needed = 1 + math.ceil(math.log(ALIKE_ODDS) / math.log(max(peers, 2)))
        if self._onset is None or self._times < needed:
            return []
        self._is_told = True
        return [self._evidence(scene, i, needed, detector)]

    def snapshot(self) -> State:
        """The whole state as plain data."""
        onset = None if self._onset is None else self._onset.snapshot()
        return {"rank": self._rank, "times": self._times, "onset": onset, "is_told": self._is_told}

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._rank, self._times, self._is_told = state["rank"], state["times"], state["is_told"]
        self._onset = None if state["onset"] is None else Onset.restored(state["onset"])

    def _evidence(self, scene: Scene, i: int, needed: int, detector: str) -> Evidence:
        assert self._onset is not None
        onset = self._onset
        return Evidence(
            detector=detector,
            key="sole_skipper",
            pattern=Pattern.SHORT_NONFINITE,
            certainty=Certainty.SUSPECTED if scene.block.layout is None else Certainty.CONFIRMED,
            metric=onset.metric,
            attempt=scene.block.attempt,
            iteration=onset.iteration,
            first_bad=onset.iteration,
            last_clean=onset.last_clean,
            alarm_iteration=scene.iteration(i),
            microbatch=onset.microbatch,
            ranks=(self._rank,),
            statistic=float(self._times),
            threshold=float(needed - 1),
            direction=Direction.UP,
            detail={"why": "the gradient of this rank alone overflowed, time after time"},
            sights=tuple(onset.sights),
        )


def _sole_rank(scene: Scene, i: int, roles: Roles) -> tuple[int, int] | None:
    """(the only bad rank, how many peers it has with itself); `UNNAMED_RANK` where it is not one alone.

    None where gradients before the reduction were not seen on two peers: that says nothing.
    """
    start, stop = scene.rows(i)
    width = len(scene.block.ranks_R)
    bad_R, clean_R = np.zeros(width, bool), np.zeros(width, bool)
    for site in scene.sites:
        is_local = (
            phase_of(site.metric, roles.role_of(site.metric), site.contract.declared_phase) <= Phase.REDUCE_IN
        )
        if site.level is Level.GRADIENT and is_local:
            clean_R |= site.clean(start, stop).any(axis=0)
            if site.bad_TR is not None:
                bad_R |= site.bad_TR[start:stop].any(axis=0)
    if bad_R.sum() != 1:
        return (UNNAMED_RANK, 1) if bad_R.any() else None
    peer_R = _peers(scene, int(np.argmax(bad_R)))
    clean = int((clean_R & ~bad_R & peer_R).sum())
    if clean == 0:
        return None
    return int(scene.block.ranks_R[np.argmax(bad_R)]), clean + 1


def _peers(scene: Scene, column: int) -> Flags:
    """Ranks that differ from the one of ``column`` along dp only; all of them without a layout."""
    block = scene.block
    if block.layout is None:
        return np.ones(len(block.ranks_R), bool)
    class_R = layout_classes(_PEERS, block.ranks_R, block.layout)
    peer_R: Flags = class_R == class_R[column]
    return peer_R
