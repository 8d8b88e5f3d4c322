"""Who may be at fault for a lost vote: more ranks than the odd ones, where they compute together."""

from __future__ import annotations

from firstfault.mesh import Layout
from firstfault.telemetry import MetricContract, Phase, Relation

from .groups import model_parallel_group, needs_device
from .vote import Split

WIDENED = "suspects"
"""Key of the detail that tells that not only the odd ranks are named, but all that compute with them."""
MODEL_GROUP = "all ranks of the model-parallel group of the odd ones"
BEFORE_REDUCTION = "all ranks: the dp twins of the odd ones are equal, so it came before the reduction"


def suspects(layout: Layout | None, contract: MetricContract, split: Split) -> tuple[tuple[int, ...], bool]:
    """Who may be at fault: a canary runs through all ranks that hold the model together.

    So does what makes a replicated layer differ along tp alone: all that hold it along dp got the same
    reduced gradient, so that the difference came before the reduction, from any rank of any stage.
    """
    ranks = set(split.ranks)
    if layout is not None and needs_device(contract):
        ranks = {
            member for rank in split.ranks for member in model_parallel_group(layout, rank, contract.name)
        }
    elif (
        layout is not None
        and split.is_tie
        and layout.size("pp") > 1
        and _is_along_tp(layout, contract, split)
    ):
        ranks = set(layout.coordinates)
    return tuple(sorted(ranks)), split.is_tie or len(ranks) > len(split.ranks)


def _is_along_tp(layout: Layout, contract: MetricContract, split: Split) -> bool:
    """Whether only tp tells apart who is equal and who is not, in a pipeline, where others feed its stage."""
    if (
        layout.size("pp") == 1
        or "tp" not in contract.axes(Relation.EQUAL)
        or contract.phase is not Phase.STATE
    ):
        return False
    twins = frozenset(layout.axes) - {"tp", "pp"}
    odd = set(split.odd_ranks)
    groups: dict[tuple[int, ...] | None, set[bool]] = {}
    for rank in split.ranks:
        groups.setdefault(layout.group_key(rank, twins), set()).add(rank in odd)
    return len(groups) > 1 and all(len(kinds) == 1 for kinds in groups.values())
