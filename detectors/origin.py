"""Who was first: suspects, ties and victims of the first bad observations.

*First* is a bad observation with no bad predecessor. *Suspects* are the ranks that can have caused
every first observation, less those with a clean observation at a point the value had to pass.

Axes: R ranks of the universe, ascending.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from firstfault.mesh import Layout
from firstfault.telemetry import WHOLE_ITERATION, Phase
from ingest.blocks import Flags

from .cause_flow import WORD, CauseFlow
from .cause_graph import Plan, Stage, edges_of
from .evidence import Sight
from .incident import MAX_LISTED_RANKS
from .rank_groups import Groups, groups_of
from .roles import Role
from .sightings import Sightings

MAX_TARGETS = 256
"""First observations whose causes are intersected. Beyond it the suspects stay a superset of the true ones,
which is honest and keeps a large job cheap."""

_COUPLED = (Stage.MEAN_LOSS, Stage.REDUCED, Stage.NORM, Stage.OPTIMIZER, Stage.STATE)
"""Stages with inputs from every replica; all others depend on one replica and the prior state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a fault began. ``ranks`` are all suspects, also when they are everybody (``is_all``)."""

    iteration: int
    microbatch: int = WHOLE_ITERATION
    phase: Phase
    metric: str
    ranks: tuple[int, ...] = ()
    universe: int = 0
    is_all: bool = False
    is_tie: bool = False
    is_common: bool = False
    """No one rank explains all first observations: they share a cause, or went wrong one by one."""
    are_peers_clean: bool = False
    """Whether ranks beside the suspects were seen clean at the stage of the first observation."""
    is_reduce_in_clean: bool = False
    """Whether every rank was *seen* clean before the reduction, or the result of it was on all."""
    bad_ranks: tuple[int, ...] = ()
    """Every rank seen bad, suspects and victims."""
    why: Mapping[int, str] = field(default_factory=dict)
    note: str = ""

    @property
    def listed(self) -> tuple[int, ...]:
        """The suspects as a verdict lists them: none when they are everybody."""
        return () if self.is_all else self.ranks


def trace_nonfinite(
    sights: Sequence[Sight],
    *,
    ranks: Collection[int] = (),
    layout: Layout | None = None,
    roles: Mapping[str, Role] | None = None,
    chunks: int = 1,
) -> Origin | None:
    """The origin of non-finite values, which pass through every sum; None when no sight is bad.

    ``ranks`` are all that reported (more may come from the layout and the sights), ``chunks`` is the
    number of model chunks per pipeline stage. Sights of the iteration just before tell which update was
    clean. Whether the job clips and skips is not known: a suspect is who can have done it either way.
    """
    scene = Sightings.of(sights, ranks, layout, roles or {})
    if scene is None:
        return None
    groups = groups_of(layout, scene.ranks_R)
    flows = [CauseFlow(groups, edges_of(plan), chunks=chunks) for plan in _plans(scene, groups, layout)]
    traced = [_trace(flow, scene) for flow in flows]
    suspect_R = np.logical_or.reduce([each.suspect_R for each in traced])
    if not suspect_R.any():
        # A norm over what was finite on every rank cannot have come from the loss that was not: then a
        # clean value missed something, and the earlier observation is the better witness.
        suspect_R = np.logical_or.reduce([each.local_R for each in traced])
    return _conclude(scene, groups, traced[0].first, suspect_R, layout)


@dataclass(frozen=True, slots=True, eq=False)
class _Traced:
    """What one plan leaves: the first observations, who can have caused all, who all inside a replica."""

    first: list[Flags]
    suspect_R: Flags
    local_R: Flags


def _plans(scene: Sightings, groups: Groups, layout: Layout | None) -> list[Plan]:
    """The ways in which the job may work, as far as they lead to other suspects."""
    shardings = ["none", "zero1"] if layout is None else [layout.sharding]
    has_parts = len(np.unique(groups.twin_R)) > 1 or shardings[-1] != "none"
    is_late = scene.bad[Stage.OPTIMIZER].any() or scene.bad[Stage.STATE].any()
    return [
        Plan(sharding, clips, skips, scene.routes)
        for skips in ((False, True) if is_late else (True,))
        for sharding in shardings
        for clips in ((True, False) if has_parts else (True,))
    ]


def _trace(flow: CauseFlow, scene: Sightings) -> _Traced:
    exists = flow.existing([bad_R | clean_R for bad_R, clean_R in zip(scene.bad, scene.clean, strict=True)])
    cleared = flow.clear(scene.clean, scene.bad, exists)
    open_nodes = [there_R & ~clean_R for there_R, clean_R in zip(exists, cleared, strict=True)]
    first = _first(flow, scene.bad, open_nodes)
    suspect_R = _common_causes(flow, first, open_nodes, Stage)
    if suspect_R.any():
        return _Traced(first, suspect_R, suspect_R)
    local = [stage for stage in Stage if stage not in _COUPLED]
    return _Traced(first, suspect_R, _common_causes(flow, first, open_nodes, local))


def _first(flow: CauseFlow, bad: Sequence[Flags], open_nodes: Sequence[Flags]) -> list[Flags]:
    """The bad nodes that no bad node explains; of those that explain each other in a ring the earliest."""
    explained = flow.spread(bad, open_nodes)
    first = [bad_R & ~explained_R for bad_R, explained_R in zip(bad, explained, strict=True)]
    for stage in Stage:
        if not bad[stage].any():
            continue
        reached = flow.spread(first, open_nodes)
        first[stage] = first[stage] | (bad[stage] & ~reached[stage])
    return first


def _common_causes(
    flow: CauseFlow, first: Sequence[Flags], open_nodes: Sequence[Flags], stages: Iterable[Stage]
) -> Flags:
    """The ranks that can have caused every first observation at some stages; none where there is none."""
    nodes = [(stage, int(at)) for stage in stages for at in np.flatnonzero(first[stage])]
    suspect_R = np.full(len(first[0]), bool(nodes))
    step = -(-len(nodes) // MAX_TARGETS) or 1  # spread over all of them, so that no replica is left out
    chosen = nodes[::step]
    for start in range(0, len(chosen), WORD):
        part = chosen[start : start + WORD]
        every = np.uint64((1 << len(part)) - 1)
        suspect_R &= flow.causes(part, open_nodes) == every
        if not suspect_R.any():
            break
    return suspect_R


def _conclude(
    scene: Sightings, groups: Groups, first: list[Flags], suspect_R: Flags, layout: Layout | None
) -> Origin:
    stage = next(stage for stage in Stage if first[stage].any())
    is_common = not suspect_R.any()
    if is_common:
        suspect_R = np.logical_or.reduce(first)
    seen_R = scene.bad[stage] | scene.clean[stage]
    # of a pipeline only some ranks have what the others lack: then they are named
    is_everyone_seen = groups.stages == 1 and not (seen_R & ~suspect_R).any()
    is_all = bool(suspect_R.all()) or (is_common and is_everyone_seen)
    is_many = int(suspect_R.sum()) > 1
    # Without a layout ranks that fail together may share one model, and then one of them did it.
    is_tie = is_many and (not is_common or (layout is None and not is_all))
    chosen = tuple(groups.ranks_R[suspect_R].tolist())
    are_peers_clean = bool((np.logical_or.reduce(scene.clean[: stage + 1]) & ~suspect_R).any())
    origin = Origin(
        iteration=scene.iteration,
        microbatch=scene.microbatch,
        phase=scene.phase[stage],
        metric=scene.metric[stage],
        ranks=chosen,
        universe=len(groups.ranks_R),
        is_all=is_all and len(groups.ranks_R) > 1,
        is_tie=is_tie,
        is_common=is_common and is_many,
        are_peers_clean=are_peers_clean,
        # a sum passes every NaN on: a clean one proves that all that went in was
        is_reduce_in_clean=bool(scene.clean[Stage.REDUCED].all())
        or bool(scene.clean[Stage.REDUCE_IN].all() and not scene.bad[Stage.EXPERT_IN].any()),
        bad_ranks=tuple(sorted(scene.bad_ranks)),
    )
    is_spread = bool((first[stage] & ~suspect_R).any())
    return _explain(origin, groups, suspect_R, () if is_spread else chosen, layout)


def _explain(
    origin: Origin, groups: Groups, suspect_R: Flags, seen_first: Collection[int], layout: Layout | None
) -> Origin:
    """``origin`` with the reasons in words; ``seen_first`` are the ranks whose own value was first."""
    if origin.is_common:
        reason = f"{origin.metric} turned non-finite here and on {len(origin.ranks) - 1} more at once"
    elif origin.is_tie:
        reason = "can have sent the first non-finite value: no finite value of this rank clears it"
    elif seen_first:
        verb = "counted non-finite values" if origin.metric.startswith("nonfinite_") else "was non-finite"
        reason = f"{origin.metric} {verb} here first ({origin.phase.label})"
        reason += " while its peers were finite" if origin.are_peers_clean else ""
    else:
        reason = f"the only rank that no finite value clears ({origin.metric})"
    notes = [_how(origin)]
    if origin.is_tie:
        notes.append(_what_splits(origin, groups, suspect_R))
    if layout is None and origin.universe > 1:
        notes.append("no layout was given: the ranks are taken as plain data parallel")
    why = dict.fromkeys(origin.listed[:MAX_LISTED_RANKS], reason)
    return replace(origin, why=why, note="; ".join(note for note in notes if note))


def _how(origin: Origin) -> str:
    if origin.is_common and origin.is_all:
        return "all ranks turned bad at once and no one rank explains it"
    if origin.is_common:
        return f"{len(origin.ranks)} ranks turned bad at once and no one of them explains all"
    if origin.is_all:
        return "each rank can have been the first"
    return f"one of {len(origin.ranks)} ranks was the first" if origin.is_tie else ""


def _what_splits(origin: Origin, groups: Groups, suspect_R: Flags) -> str:
    """Which telemetry would have told the suspects apart."""
    if origin.is_common:
        return "a mesh in run_start would tell whether they share one model"
    if len(np.unique(groups.replica_R[suspect_R])) > 1:
        return "local_grad_norm or nonfinite_grad (before the reduction) on every rank would split them"
    if len(np.unique(groups.stage_R[suspect_R])) > 1:
        return "nonfinite_send/pp or nonfinite_act on every pipeline stage would split them"
    if len(np.unique(groups.tensor_R[suspect_R])) > 1:
        return "nonfinite_act on each of them would split them"
    return "nonfinite_act or nonfinite_send/tp on each of them would split them"
