"""Skips that one rank alone causes, or makes: loss scaling overflows everywhere, a defect in one place.

Axes: R ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from firstfault.telemetry import UNNAMED_RANK, Kind, MetricContract, Phase, Relation, contract_of
from ingest.blocks import Flags

from .base import State
from .cause_graph import phase_of
from .evidence import Certainty, Direction, Evidence, Finding, Pattern, Sight
from .groups import layout_classes
from .nonfinite_onset import Onset
from .nonfinite_sites import Level, Scene
from .rank_table import UNKNOWN, RankTable
from .roles import Roles

ALIKE_ODDS = 1e5
"""How unlikely it must be that the same one of R alike ranks overflows alone k times in a row, which is
R**(1 - k): one in 100 000, with at most some hundred overflows in a run."""

_WHY_GRADIENT = "the gradient of this rank alone overflowed, time after time"
_WHY_SKIPPED = "this rank alone skipped its step, time after time"

_PEERS = MetricContract(
    name="peers", kind=Kind.CURVE, phase=Phase.REDUCE_IN, relations={"dp": Relation.EQUAL}
)


class SoleSkipper:
    """Counts overflows in a row whose only bad gradient before the reduction is one and the same rank's.

    Where no gradient before the reduction is bad, the ranks' own ``skipped`` flags are asked: a step that
    one rank skips alone makes its replica another one. A flag that all of them raise was agreed upon.
    Its data parallel peers must have been seen clean: they compute the same on other data. Without a
    layout all ranks are taken for peers and the rank stays suspected, since a last pipeline stage or
    an expert may well overflow alone.
    """

    def __init__(self) -> None:
        self._rank = UNNAMED_RANK
        self._times = 0
        self._onset: Onset | None = None
        self._is_told = False
        self._stepped = RankTable()
        """Per rank the last iteration that it said it did not skip."""

    def update(
        self, scene: Scene, i: int, roles: Roles, detector: str, take: Callable[[], Onset]
    ) -> list[Finding]:
        """Take an iteration with bad gradients; the evidence is told in the name of ``detector``."""
        if self._is_told:
            return []
        found = _sole_rank(scene, i, roles)
        if found is None:
            return []
        rank, peers, is_flag = found
        if rank != self._rank:
            self._rank, self._times, self._onset = rank, 0, None
            if rank != UNNAMED_RANK:
                self._onset = self._own_skip(scene, i, rank) if is_flag else take()
        self._times += 1
        needed = 1 + math.ceil(math.log(ALIKE_ODDS) / math.log(max(peers, 2)))
        if self._onset is None or self._times < needed:
            return []
        self._is_told = True
        return [self._evidence(scene, i, needed, detector)]

    def pass_block(self, scene: Scene) -> None:
        """Remember who stepped: called once the iterations of ``scene`` were taken."""
        flags = scene.block.numbers.get("skipped")
        if flags is None or self._is_told:
            return
        rows = self._stepped.rows(scene.block.ranks_R)
        stepped_TR = flags.present_TR & (flags.values_TR <= 0)
        some_R = stepped_TR.any(axis=0)
        last_R = len(stepped_TR) - 1 - stepped_TR[::-1].argmax(axis=0)
        self._stepped.column("last")[rows[some_R]] = scene.block.iteration_T[last_R[some_R]]

    def snapshot(self) -> State:
        """The whole state as plain data."""
        onset = None if self._onset is None else self._onset.snapshot()
        return {
            "rank": self._rank,
            "times": self._times,
            "onset": onset,
            "is_told": self._is_told,
            "stepped": self._stepped.snapshot(),
        }

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._rank, self._times, self._is_told = state["rank"], state["times"], state["is_told"]
        self._onset = None if state["onset"] is None else Onset.restored(state["onset"])
        self._stepped = RankTable.restored(state["stepped"])

    def _own_skip(self, scene: Scene, i: int, rank: int) -> Onset:
        """The onset of skips that ``rank`` alone makes: who skipped, who did not, when it last stepped."""
        block, flags = scene.block, scene.block.numbers["skipped"]
        start, stop = scene.rows(i)
        column = int(np.searchsorted(block.ranks_R, rank))
        before_T = np.flatnonzero(flags.present_TR[:start, column] & (flags.values_TR[:start, column] <= 0))
        row = self._stepped.rows(block.ranks_R)[column]  # before the column, which grows with new ranks
        last = int(self._stepped.column("last")[row])
        if len(before_T):
            last = int(block.iteration_T[before_T[-1]])
        bad_R, clean_R = _skips(scene, start, stop)
        microbatch = int(block.microbatch_T[stop - 1])
        sight = Sight(
            metric="skipped",
            iteration=scene.iteration(i),
            microbatch=microbatch,
            ranks_R=block.ranks_R.copy(),
            bad_R=bad_R,
            clean_R=clean_R & ~bad_R,
        )
        return Onset(
            iteration=scene.iteration(i),
            metric="skipped",
            phase=int(contract_of("skipped").phase),
            microbatch=microbatch,
            ranks=[rank],
            others=[],
            last_clean=None if last == UNKNOWN else last,
            detail={},
            sights=[sight],
        )

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
            detail={"why": _WHY_SKIPPED if onset.metric == "skipped" else _WHY_GRADIENT},
            sights=tuple(onset.sights),
        )


def _sole_rank(scene: Scene, i: int, roles: Roles) -> tuple[int, int, bool] | None:
    """(the only bad rank, how many peers it has with itself, whether its flag alone tells).

    `UNNAMED_RANK` where it is not one alone, None where nothing was seen on two peers: that says nothing.
    """
    start, stop = scene.rows(i)
    bad_R, clean_R = _gradients(scene, start, stop, roles)
    is_flag = not bad_R.any()
    if is_flag:
        bad_R, clean_R = _skips(scene, start, stop)
        if bad_R.any() and not (clean_R & ~bad_R).any():
            return None  # all skip: what is seen behind the reduction is agreed upon
    if bad_R.sum() != 1:
        return (UNNAMED_RANK, 1, is_flag) if bad_R.any() else None
    peer_R = _peers(scene, int(np.argmax(bad_R)))
    clean = int((clean_R & ~bad_R & peer_R).sum())
    if clean == 0:
        return None
    return int(scene.block.ranks_R[np.argmax(bad_R)]), clean + 1, is_flag


def _gradients(scene: Scene, start: int, stop: int, roles: Roles) -> tuple[Flags, Flags]:
    """Ranks with a bad gradient before the reduction, and with a clean one."""
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
    return bad_R, clean_R


def _skips(scene: Scene, start: int, stop: int) -> tuple[Flags, Flags]:
    """Ranks that say they skipped, and that say they did not."""
    flags = scene.block.numbers.get("skipped")
    if flags is None:
        nobody_R = np.zeros(len(scene.block.ranks_R), bool)
        return nobody_R, nobody_R
    present_TR, is_skip_TR = flags.present_TR[start:stop], flags.values_TR[start:stop] > 0
    skips_R: Flags = np.logical_or.reduce(present_TR & is_skip_TR, axis=0)
    steps_R: Flags = np.logical_or.reduce(present_TR & ~is_skip_TR, axis=0)
    return skips_R, steps_R


def _peers(scene: Scene, column: int) -> Flags:
    """Ranks that differ from the one of ``column`` along dp only; all of them without a layout."""
    block = scene.block
    if block.layout is None:
        return np.ones(len(block.ranks_R), bool)
    class_R = layout_classes(_PEERS, block.ranks_R, block.layout)
    peer_R: Flags = class_R == class_R[column]
    return peer_R
