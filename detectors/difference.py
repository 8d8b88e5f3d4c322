"""Who was first where values that must agree do not, and where only a curve speaks.

A difference does not spread through the reduction as a NaN does: every replica gets the same update,
so the rank that differs is itself the suspect. Only a canary runs through the ranks of a whole
replica, and accuses all of them.

Axes: R ranks of the universe, ascending.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from firstfault.mesh import Layout

from .cause_graph import phase_of
from .evidence import JOINT, Evidence, Pattern
from .incident import MAX_LISTED_RANKS
from .linear_evidence import FAULT
from .linear_stream import Fault
from .origin import Origin
from .precedence import are_concurrent
from .rank_groups import any_in_group, groups_of
from .roles import Role
from .trail import ATTEMPT
from .vote_suspects import WIDENED

REPLICATED = ("param_checksum", "optim_checksum", "grad_checksum")
"""State of which there may be more replicas than two."""

_REDUCTION_WHY: Mapping[str, str] = {
    Fault.RESULT_DIFFERS: "it got another result of the reduction than the others",
    Fault.CONTRIBUTION_MISSING: "exactly what it contributed is missing in the result",
    Fault.CONTRIBUTION_DOUBLED: "exactly what it contributed is in the result twice",
    Fault.SUM_DIFFERS: "it takes part in a reduction whose result is not the sum of what went in",
}


def join_twins(root: Evidence, members: Sequence[Evidence]) -> Evidence:
    """``root`` with the ranks of all that the same detector saw in other groups at the same position.

    Ranks of several groups that go wrong at one check are first together: none is a victim of another.
    Neither are ranks that part from their peers inside one interval, within which nothing says who was first.
    """
    twins = [
        one
        for one in members
        if (one.detector, one.metric, one.microbatch) == (root.detector, root.metric, root.microbatch)
        and (one.first_bad == root.first_bad or _parted_together(one, root))
    ]
    if len(twins) < 2:
        return root
    return replace(
        root,
        ranks=tuple(sorted({rank for one in twins for rank in one.ranks})),
        is_tie=any(one.is_tie for one in twins),
        sights=tuple(sight for one in twins for sight in one.sights),
    )


def by_repetition(root: Evidence, members: Sequence[Evidence]) -> Evidence:
    """``root``, a vote among ranks never seen equal in this attempt, as an earlier attempt decides it.

    A majority that loaded a corrupted state is a majority all the same. Whoever repeats what the earlier
    attempt computed at the same iteration is right, and the others are not, however many they are.
    """
    if root.last_clean is not None or root.pattern is not Pattern.REPLICA_DIVERGENCE:
        return root
    for one in members:
        is_same = (one.metric, one.first_bad, one.microbatch) == (
            root.metric,
            root.first_bad,
            root.microbatch,
        )
        if ATTEMPT in one.detail and one.ranks and is_same and root.iteration == one.iteration:
            return replace(root, ranks=one.ranks, is_tie=False, sights=one.sights, detail=one.detail)
    return root


def _parted_together(one: Evidence, other: Evidence) -> bool:
    is_drift = one.pattern is other.pattern is Pattern.PEER_DRIFT
    return is_drift and one.certainty is other.certainty and are_concurrent(one, other)


def trace_ranks(
    evidence: Evidence,
    *,
    ranks: Collection[int] = (),
    layout: Layout | None = None,
    roles: Mapping[str, Role] | None = None,
) -> Origin:
    """The origin of evidence that names its ranks itself: each of them, or one of them if it is a tie."""
    known = set(ranks) | set(evidence.ranks) | set(layout.coordinates if layout else ())
    suspects = set(evidence.ranks)
    is_tie = evidence.is_tie
    clean = _clean_ranks(evidence)
    if _is_canary(evidence.metric) and suspects and layout is not None:
        # What a rank computes wrong is in its own result too: an equal one clears it, but for the peers of
        # an odd one inside a layer, who send it what they compute.
        odd = _bad_ranks(evidence)
        clean = _seen_clean(evidence) - _layer_group(odd, layout, known)
        is_stage = evidence.metric.endswith("/stage")  # a canary that stays inside of a pipeline stage
        joined = _layer_group(odd, layout, known) if is_stage else _model_group(odd, layout, known)
        suspects = (joined - clean) | odd
        is_tie = (is_tie and len(suspects) > 1) or _shares_a_replica(suspects, layout, known)
    chosen = tuple(sorted(suspects))
    origin = Origin(
        iteration=evidence.iteration,
        microbatch=evidence.microbatch,
        phase=phase_of(evidence.metric, (roles or {}).get(evidence.metric, Role.AS_NAMED), evidence.phase),
        metric=evidence.metric,
        ranks=chosen,
        universe=len(known),
        is_all=len(chosen) == len(known) > 1,
        is_tie=is_tie and len(chosen) > 1,
        is_common=len(chosen) > 1 and not is_tie,
        are_peers_clean=bool(clean - suspects) or 0 < len(chosen) < len(known),
        bad_ranks=tuple(sorted(evidence.ranks)),
    )
    return _explain(origin, evidence)


def narrow(origin: Origin, others: Sequence[Evidence]) -> Origin:
    """``origin`` of a tie, cut down by concurrent evidence that names fewer of the same ranks.

    Two ties of one cause are intersected: the one that did it is in both. So is a norm over the shards of
    several ranks with the checksums of the gradient that it is taken of.
    """
    if (odd := _behind_norm(origin, others)) and not origin.is_tie:
        return _narrowed(origin, odd, "the one of them whose own reduced gradient or state differs too")
    for other in others:
        common = set(origin.ranks) & set(other.ranks)
        if origin.is_tie and 0 < len(common) < len(origin.ranks):
            reason = f"the one of the suspects that {other.metric} names too"
            origin = _narrowed(origin, common, reason, is_tie=len(common) > 1)
    return origin


def _behind_norm(origin: Origin, others: Sequence[Evidence]) -> set[int]:
    """Of ranks whose norms differ, those whose checksums do so too; empty where these say no less.

    Checksums of the gradient decide before those of state: a norm that differs scales the update of all who
    share it, so that their state parts with it although one of them alone got another gradient.
    """
    if origin.metric != "grad_norm":
        return set()
    for metrics in (("grad_checksum",), REPLICATED):
        odd = {
            rank
            for other in others
            if other.metric.startswith(metrics) and not other.is_tie and other.first_bad == origin.iteration
            for rank in other.ranks
        }
        if odd and odd < set(origin.ranks):
            return odd
    return set()


def _narrowed(origin: Origin, ranks: Collection[int], reason: str, *, is_tie: bool = False) -> Origin:
    chosen = tuple(sorted(ranks))
    return replace(
        origin,
        ranks=chosen,
        is_all=False,
        is_tie=is_tie,
        is_common=len(chosen) > 1 and not is_tie,
        are_peers_clean=True,
        why=dict.fromkeys(chosen[:MAX_LISTED_RANKS], reason),
        note="",
    )


def _is_canary(metric: str) -> bool:
    """Whether it is a canary, or its repetition: it runs through all ranks of a replica."""
    return metric.startswith(("canary_", "repeat_checksum/canary"))


def _clean_ranks(evidence: Evidence) -> set[int]:
    return _seen_clean(evidence) - set(evidence.ranks)


def _seen_clean(evidence: Evidence) -> set[int]:
    clean: set[int] = set()
    for sight in evidence.sights:
        if sight.iteration == evidence.first_bad and sight.metric == evidence.metric:
            clean.update(sight.ranks_R[sight.clean_R].tolist())
    return clean


def _model_group(suspects: set[int], layout: Layout, known: set[int]) -> set[int]:
    """All ranks that take part in a computation of the suspects: their replica, or its shard group."""
    ranks_R = np.array(sorted(known), dtype=np.int32)
    groups = groups_of(layout, ranks_R)
    bad_R = np.isin(ranks_R, np.fromiter(suspects, dtype=np.int32))
    member_R = any_in_group(bad_R, groups.replica_R)
    if layout.sharding == "zero3":
        # Fully sharded along dp: every rank gathers parameters from the owners of all shards.
        member_R |= any_in_group(member_R, groups.shard_R)
    return set(ranks_R[member_R].tolist())


def _layer_group(odd: set[int], layout: Layout, known: set[int]) -> set[int]:
    """The ranks that compute layers together with the odd ones: along tp, cp and ep."""
    ranks_R = np.array(sorted(known), dtype=np.int32)
    odd_R = np.isin(ranks_R, np.fromiter(odd, dtype=np.int32))
    member_R = any_in_group(odd_R, groups_of(layout, ranks_R).collective_R)
    return set(ranks_R[member_R].tolist())


def _shares_a_replica(suspects: set[int], layout: Layout, known: set[int]) -> bool:
    """Whether two of the suspects belong to one model-parallel group."""
    ranks_R = np.array(sorted(known), dtype=np.int32)
    chosen_R = np.isin(ranks_R, np.fromiter(suspects, dtype=np.int32))
    group_R = groups_of(layout, ranks_R).replica_R[chosen_R]
    return len(np.unique(group_R)) < len(group_R) or (layout.sharding == "zero3" and len(suspects) > 1)


def _explain(origin: Origin, evidence: Evidence) -> Origin:
    """``origin`` with the reasons in words."""
    count, accused = len(origin.ranks), _bad_ranks(evidence)
    is_shared_data = "distinct" in str(evidence.detail.get("relation", ""))
    is_vote_tie = evidence.is_tie and WIDENED not in evidence.detail
    if (reduction := evidence.detail.get(FAULT)) in _REDUCTION_WHY:
        reason = f"{evidence.metric}: {_REDUCTION_WHY[str(reduction)]}"
    elif (other := evidence.detail.get(ATTEMPT)) is not None:
        reason = f"{evidence.metric}: attempt {other} got another result on this rank at the same iteration"
    elif evidence.metric.startswith("repeat_"):
        reason = f"{evidence.metric}: the same computation gave two results on this rank"
    elif is_shared_data:
        reason = f"{evidence.metric} is the same on {count} ranks that must read different data"
    elif is_vote_tie:
        reason = f"{evidence.metric}: one of {count} ranks that disagree, without a majority"
    elif evidence.metric == JOINT:
        together = evidence.detail.get("metrics")
        names = ", ".join(map(str, together)) if isinstance(together, list) else "its metrics"
        reason = f"{names} no longer go together here as they do on its peers"
    elif isinstance(shift := evidence.detail.get("relative_shift"), float):
        reason = f"{evidence.metric} is {shift:+.1%} off what its peers lead to expect"
    else:
        reason = f"{evidence.metric} differs from that of the other ranks of its group"
    other = f"computes together with a rank whose {evidence.metric} differs"
    listed = origin.listed[:MAX_LISTED_RANKS]
    why = {rank: reason if rank in accused else other for rank in listed}
    note = ""
    if origin.is_tie and is_shared_data:
        note = (
            "one of them reads what belongs to another: the sampler's rank and seed on each would tell which"
        )
    elif origin.is_tie and reduction == Fault.SUM_DIFFERS:
        note = (
            "every rank got the same wrong result: testing the collective pair by pair would tell whose link"
        )
    elif origin.is_tie and is_vote_tie:
        note = f"one of {count} ranks: {_what_decides(evidence, count)} would tell which"
    elif origin.is_tie:
        note = f"one of {count} ranks of a model-parallel group: repeat_checksum on each would tell which"
    return replace(origin, why=why, note=note)


def _what_decides(evidence: Evidence, count: int) -> str:
    """What would have broken a tied vote."""
    if count == 2 and evidence.metric.partition("/")[0] in REPLICATED:
        return "a third replica or repeat_checksum on each"
    return "repeat_checksum on each"


def _bad_ranks(evidence: Evidence) -> set[int]:
    """The ranks whose own value was odd; all that are named where no sight tells."""
    bad: set[int] = set()
    for sight in evidence.sights:
        if sight.iteration == evidence.first_bad and sight.metric == evidence.metric:
            bad.update(sight.ranks_R[sight.bad_R].tolist())
    return bad & set(evidence.ranks) or set(evidence.ranks)
