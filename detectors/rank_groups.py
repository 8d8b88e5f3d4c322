"""Which ranks belong together, as group numbers over arrays: a hundred thousand ranks cost milliseconds.

The groups are those of `Layout.group_key`, numbered. Axes: R ranks of the universe, ascending; A mesh axes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firstfault.mesh import Layout
from ingest.blocks import Flags, Ranks

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Groups:
    """Group numbers of the ranks of a universe; equal numbers mean one group."""

    ranks_R: Ranks
    collective_R: Ids
    """Ranks joined by tp, cp, ep."""
    tensor_R: Ids
    """Ranks joined by tp alone."""
    replica_R: Ids
    """Ranks that together hold one replica of the model: joined by tp, cp, ep, pp."""
    shard_R: Ids
    """Ranks that hold the same part of the model: they differ along dp, cp, ep or an unknown axis."""
    twin_R: Ids
    """Ranks that hold the same part, experts included: those of `shard_R` that do not differ along ep."""
    place_R: Ids
    """Ranks joined by pp alone: who has the same place in another pipeline stage."""
    stage_R: Ids
    """Pipeline stage."""

    @property
    def stages(self) -> int:
        """Number of pipeline stages."""
        return int(self.stage_R.max(initial=0)) + 1

    def shifted(self, by: int, *, is_ring: bool = False) -> Ids:
        """For each rank the position of the one in its place ``by`` pipeline stages on; -1 where none is."""
        at = np.full((int(self.place_R.max(initial=0)) + 1, self.stages), -1, dtype=np.int64)
        at[self.place_R, self.stage_R] = np.arange(len(self.ranks_R))
        wanted_R = self.stage_R + by
        inside_R = (wanted_R >= 0) & (wanted_R < self.stages)
        found_R: Ids = at[self.place_R, wanted_R % self.stages]
        return found_R if is_ring else np.where(inside_R, found_R, -1)


def groups_of(layout: Layout | None, ranks_R: Ranks) -> Groups:
    """The groups of ``ranks_R`` (ascending); a rank without a place in the mesh stands alone."""
    count = len(ranks_R)
    alone_R = np.arange(count, dtype=np.int64)
    if layout is None or not layout.axes:
        one_R = np.zeros(count, dtype=np.int64)
        return Groups(ranks_R, alone_R, alone_R, alone_R, one_R, one_R, alone_R, one_R)
    none = (-1,) * len(layout.axes)
    place_RA = np.array([layout.coordinates.get(int(rank), none) for rank in ranks_R], dtype=np.int64)
    place_RA = place_RA.reshape(count, len(layout.axes))
    placed_R = place_RA[:, 0] >= 0

    def number(kept: Iterable[str]) -> Ids:
        key_R = np.zeros(count, dtype=np.int64)
        for axis in kept:
            at_R = _renumber(place_RA[:, layout.axes.index(axis)])
            # Renumbered after each axis, so that the product cannot overflow for sparse coordinates.
            key_R = _renumber(key_R * (count + 1) + at_R)
        return np.where(placed_R, key_R, count + alone_R)

    def without(*free: str) -> Ids:
        return number(axis for axis in layout.axes if axis not in free)

    model = [axis for axis in ("pp", "tp") if axis in layout.axes]
    stage_R = (
        place_RA[:, layout.axes.index("pp")].clip(min=0) if "pp" in layout.axes else np.zeros_like(alone_R)
    )
    return Groups(
        ranks_R,
        collective_R=without("tp", "cp", "ep"),
        tensor_R=without("tp"),
        replica_R=without("tp", "cp", "ep", "pp"),
        shard_R=number(model),
        twin_R=number([*model, *(axis for axis in ("ep",) if axis in layout.axes)]),
        place_R=without("pp"),
        stage_R=_renumber(stage_R),
    )


def any_in_group(flags_R: Flags, group_R: Ids) -> Flags:
    """For each rank whether any rank of its group is flagged."""
    if not flags_R.any():
        return np.zeros_like(flags_R)
    hit = np.zeros(int(group_R.max()) + 1, dtype=np.bool_)
    hit[group_R[flags_R]] = True
    return np.asarray(hit[group_R])


def _renumber(key_R: Ids) -> Ids:
    """The same grouping with numbers from 0 up."""
    return np.unique(key_R, return_inverse=True)[1].astype(np.int64)
