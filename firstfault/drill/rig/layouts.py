"""The layouts of the virtual cluster: how ranks are placed, and which faults find a place in them.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .spec import Kind, Layout, LayoutName, Site, data_parallel

OUTER_EVERY = 5
"""Iterations of local SGD from one outer step to the next; jobs a thousand times as long take 500."""
LAYOUTS: Mapping[LayoutName, Layout] = {
    layout.name: layout
    for layout in (
        data_parallel(),
        Layout(name=LayoutName.PP4_TP2_DP2, ranks=16, mesh=(("pp", 4), ("dp", 2), ("tp", 2))),
        Layout(name=LayoutName.ZERO1, ranks=8, mesh=(("dp", 8),), sharding="zero1"),
        Layout(name=LayoutName.FULL_SHARD, ranks=8, mesh=(("dp", 8),), sharding="zero3"),
        Layout(name=LayoutName.EXPERT, ranks=8, mesh=(("dp", 2), ("ep", 4))),
        Layout(name=LayoutName.LOCAL_SGD, ranks=8, mesh=(("dp", 8),)),
    )
}
"""Each layout in the size in which the rig drills it."""
MESSAGES: Mapping[LayoutName, tuple[str, ...]] = {
    LayoutName.PP4_TP2_DP2: ("activation", "gradient"),
    LayoutName.EXPERT: ("dispatch", "combine", "dispatch_gradient", "combine_gradient"),
}
"""What ranks send each other beside gradients: the places of a fault of messages."""
_REDUCED = (Site.REDUCE_IN, Site.REDUCE_OUT, Site.REDUCE_ALL)
_OF_PARTS = (LayoutName.PP4_TP2_DP2, LayoutName.EXPERT)
_SHARDED = (LayoutName.ZERO1, LayoutName.FULL_SHARD)


def has_site(layout: Layout, site: Site) -> bool:
    """Whether ranks of this layout have what the site names.

    >>> has_site(LAYOUTS[LayoutName.ZERO1], Site.GATHER), has_site(data_parallel(), Site.MESSAGE)
    (True, False)
    """
    match site:
        case Site.MESSAGE:
            return layout.name in _OF_PARTS
        case Site.GATHER:
            return layout.name in _SHARDED
        case Site.RECOMPUTE:
            return layout.name not in _OF_PARTS
        case _:
            return True


def ranks_at(layout: Layout, site: Site, kind: Kind | None = None) -> Sequence[int]:
    """The ranks that a fault at the site can strike: of a pipeline only its ends read data, and only they
    have a copy of the tied embedding.

    >>> list(ranks_at(LAYOUTS[LayoutName.PP4_TP2_DP2], Site.DATA))
    [0, 1, 2, 3, 12, 13, 14, 15]
    """
    stages = layout.size("pp")
    if stages == 1:
        return range(layout.ranks)
    per_stage = layout.ranks // stages
    first, last = range(per_stage), range(layout.ranks - per_stage, layout.ranks)
    if kind is Kind.TIED_DESYNC:
        return [*first, *last]
    match site:
        case Site.DATA:
            return [*first, *last]
        case Site.LOSS_FUNCTION:
            return last
        case _:
            return range(layout.ranks)


def is_outer(iteration: int) -> bool:
    """Whether an iteration of local SGD ends with an outer step.

    >>> [at for at in range(12) if is_outer(at)]
    [4, 9]
    """
    return (iteration + 1) % OUTER_EVERY == 0


def next_at(layout: Layout, site: Site, iteration: int) -> int:
    """The first iteration from ``iteration`` on that has the site: local SGD reduces in outer steps alone."""
    if layout.name is not LayoutName.LOCAL_SGD or site not in _REDUCED:
        return iteration
    return iteration + (-(iteration + 1)) % OUTER_EVERY
