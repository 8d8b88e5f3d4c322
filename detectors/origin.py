"""Who was first: suspects, ties and victims of the first bad observations.

*First* is a bad observation with no bad predecessor. *Suspects* are the ranks that can have caused
every first observation, less those with a clean observation at a point the value had to pass.

Axes: R ranks of the universe, ascending.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from firstfault.mesh import Layout
from firstfault.telemetry import WHOLE_ITERATION, Phase
from ingest.blocks import Flags

from .cause_graph import CauseGraph, Stage
from .evidence import Sight
from .incident import MAX_LISTED_RANKS
from .rank_groups import Groups, any_in_group, groups_of
from .roles import Role
from .sightings import Sightings

MAX_CLOSURES = 256
"""First observations inside one replica whose causes are intersected one by one. Beyond it the
suspects stay a superset of the true ones, which is honest and keeps a large replica cheap."""

_COUPLED = (Stage.MEAN_LOSS, Stage.REDUCE_OUT, Stage.OPTIMIZER, Stage.STATE)
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
    """Whether every rank was *seen* clean before the reduction."""
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
    is_prior_clean: bool = False,
    chunks: int = 1,
) -> Origin | None:
    """The origin of non-finite values, which pass through every sum; None when no sight is bad.

    ``ranks`` are all that reported (more may come from the layout and the sights), ``is_prior_clean``
    says that a reduced value of the iteration just before was seen finite, ``chunks`` is the number
    of model chunks per pipeline stage.
    """
    scene = Sightings.of(sights, ranks, layout, roles or {})
    if scene is None:
        return None
    groups = groups_of(layout, scene.ranks_R)
    graph = CauseGraph(groups, sharding=layout.sharding if layout else "none", chunks=chunks)
    clean = graph.clear(scene.clean, scene.bad)
    first = _first(scene.bad, graph.spread(scene.bad, clean))
    shared_R = ~clean[Stage.GATHER] & ~np.bool_(is_prior_clean)
    if clean[Stage.GATHER].any():
        # What is shared (the update before, gathered shards) is the same on every holder of a part.
        shared_R &= ~np.isin(groups.shard_R, groups.shard_R[clean[Stage.GATHER]])
    suspect_R = _suspects(graph, first, clean, shared_R, chunks)
    return _conclude(scene, groups, first, suspect_R, layout)


def _first(bad: list[Flags], explained: list[Flags]) -> list[Flags]:
    """The bad nodes that no bad node explains."""
    first = [bad_R & ~explained_R for bad_R, explained_R in zip(bad, explained, strict=True)]
    if any(flags.any() for flags in first):
        return first
    # Interleaved stages explain each other in a ring: then the earliest stage seen bad is first.
    stage = next(stage for stage in Stage if bad[stage].any())
    return [flags if at == stage else np.zeros_like(flags) for at, flags in enumerate(bad)]


def _suspects(
    graph: CauseGraph, first: list[Flags], clean: list[Flags], shared_R: Flags, chunks: int
) -> Flags:
    """The ranks that can have caused every first observation; none when no rank can.

    Whatever a shared input (the update before, gathered shards) reaches can have come from any rank,
    and so restricts nothing. All other causes of a first observation inside a replica lie in that
    replica: two of them in two replicas have none in common.
    """
    suspect_R = np.ones_like(shared_R)
    from_shared = graph.blank()
    from_shared[Stage.GATHER] |= shared_R
    reached = graph.spread(from_shared, clean)
    local = [
        flags & ~reached_R if stage not in _COUPLED else np.zeros_like(flags)
        for stage, flags, reached_R in zip(Stage, first, reached, strict=True)
    ]
    replicas = np.unique(graph.groups.replica_R[np.logical_or.reduce(local)])
    if len(replicas) > 1:
        return np.zeros_like(suspect_R)
    if len(replicas) == 1:
        inside_R = graph.groups.replica_R == replicas[0]
        suspect_R &= _common_causes(graph, local, clean, inside_R, chunks)
    local_R = suspect_R
    for stage in _COUPLED:
        if first[stage].any():
            suspect_R = suspect_R & _coupled_causes(graph, stage, first[stage], clean, shared_R)
    # A norm over what was finite on every rank cannot have come from the loss that was not: then a
    # clean value missed something, and the earlier observation is the better witness.
    return suspect_R if suspect_R.any() or not len(replicas) else local_R


def _common_causes(
    graph: CauseGraph, local: list[Flags], clean: list[Flags], inside_R: Flags, chunks: int
) -> Flags:
    """The intersection of the causes of each first observation inside one replica."""
    part = CauseGraph(graph.groups.only(inside_R), chunks=chunks)
    part_clean = [flags[inside_R] for flags in clean]
    common_R = np.ones(int(inside_R.sum()), dtype=np.bool_)
    nodes = [(stage, int(at)) for stage in Stage for at in np.flatnonzero(local[stage][inside_R])]
    for stage, at in nodes[:MAX_CLOSURES]:
        target = part.blank()
        target[stage][at] = True
        common_R &= np.logical_or.reduce(part.causes_of(target, part_clean))
        if not common_R.any():
            break
    suspect_R = np.zeros_like(inside_R)
    suspect_R[inside_R] = common_R
    return suspect_R


def _coupled_causes(
    graph: CauseGraph, stage: Stage, first_R: Flags, clean: list[Flags], shared_R: Flags
) -> Flags:
    """The common causes of first observations at a stage that all replicas feed."""
    target = graph.blank()
    target[stage] |= first_R
    if stage >= Stage.OPTIMIZER and (any_in_group(clean[stage], graph.groups.shard_R) & first_R).any():
        # All holders of a part apply the same update: one of them clean means that the update was clean.
        return first_R if first_R.sum() == 1 else np.zeros_like(first_R)
    nodes = graph.causes_of(target, clean)
    if (nodes[Stage.GATHER] & shared_R).any():
        return np.ones_like(first_R)
    # Behind the reduction each rank has its own copy, which two ranks do not share.
    own = () if first_R.sum() == 1 else tuple(at for at in _COUPLED if at <= stage)
    sharded = nodes[Stage.OPTIMIZER].sum() > nodes[Stage.STATE].sum() > 0
    return np.asarray(
        np.logical_or.reduce(
            [nodes[at] for at in Stage if at not in own or (sharded and at is Stage.OPTIMIZER)]
        )
    )


def _conclude(
    scene: Sightings, groups: Groups, first: list[Flags], suspect_R: Flags, layout: Layout | None
) -> Origin:
    stage = next(stage for stage in Stage if first[stage].any())
    is_common = not suspect_R.any()
    if is_common:
        suspect_R = np.logical_or.reduce(first)
    seen_R = scene.bad[stage] | scene.clean[stage]
    is_all = bool(suspect_R.all()) or (is_common and not (seen_R & ~suspect_R).any())
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
        is_reduce_in_clean=bool(scene.clean[Stage.REDUCE_IN].all()),
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
