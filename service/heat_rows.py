"""The rows of a heat map: single ranks in the order of their groups, or groups where ranks are too many.

Axes: R ranks in the order of the rows, G rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from firstfault.mesh import Layout
from ingest.blocks import Ints, Ranks

RANK, HOST = "rank", "host"
_NOWHERE = "–"
"""The group of a rank that has no place in the mesh, or whose host nobody told."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: what it is of, and the ranks in it, ascending."""

    group: str
    """The host, or the place along an axis; empty for plain ranks. Several joined where they are too many."""
    ranks: Ranks


def ways(layout: Layout | None) -> list[str]:
    """What rows may be grouped by."""
    if layout is None:
        return [RANK]
    return [RANK, *([HOST] if layout.hosts else []), *layout.axes]


def rows_of(ranks_R: Ranks, layout: Layout | None, by: str, most: int) -> list[Row]:
    """The rows: one for each rank if there are at most ``most``, else for each group, else for several."""
    groups = _groups(ranks_R, layout, by)
    if len(ranks_R) <= most:
        return [Row(name, np.array([rank], np.int32)) for name, ranks in groups for rank in ranks.tolist()]
    if by == RANK:
        return [Row("", part) for part in _parts(ranks_R, most)]
    if len(groups) <= most:
        return [Row(name, ranks) for name, ranks in groups]
    return [
        _joined(groups[int(part[0]) : int(part[-1]) + 1]) for part in _parts(np.arange(len(groups)), most)
    ]


def _groups(ranks_R: Ranks, layout: Layout | None, by: str) -> list[tuple[str, Ranks]]:
    """The groups in the order of their least rank; along an axis in the order of the axis."""
    if by == RANK or layout is None:
        return [("", ranks_R)]
    names: Mapping[int, str] = layout.hosts
    if by != HOST:
        at = layout.axes.index(by)
        names = {rank: f"{by} {place[at]}" for rank, place in layout.coordinates.items()}
    found: dict[str, list[int]] = {}
    for rank in ranks_R.tolist():
        found.setdefault(names.get(rank, _NOWHERE), []).append(rank)
    groups = [(name, np.array(ranks, np.int32)) for name, ranks in found.items()]
    return groups if by == HOST else sorted(groups, key=_axis_order)


def _axis_order(group: tuple[str, Ranks]) -> tuple[bool, int]:
    place = group[0].rpartition(" ")[2]
    return not place.isdigit(), int(place) if place.isdigit() else 0


def _parts(items: Ints | Ranks, most: int) -> list[Ranks]:
    """As many of the items in a row as are needed for at most ``most`` rows, the last one shorter."""
    size = -(-len(items) // most)
    return [items[at : at + size].astype(np.int32) for at in range(0, len(items), size)]


def _joined(groups: Sequence[tuple[str, Ranks]]) -> Row:
    names = groups[0][0] if len(groups) == 1 else f"{groups[0][0]} … {groups[-1][0]}"
    return Row(names, np.sort(np.concatenate([ranks for _, ranks in groups])))
