"""Equality groups: which ranks must hold the same value of a metric.

From the layout where one is known, else learned from the first two checks of an attempt.
Axes: R ranks, L ranks of a layout, T positions.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstfault.mesh import Layout
from firstfault.telemetry import MetricContract, Relation
from ingest.blocks import Flags, Ints, Ranks, Words

NO_CLASS = -1
"""Class of a rank that is compared with nobody."""

SHARD_AXES = frozenset({"fsdp", "dp_shard", "shard"})
"""Names under which hybrid sharding gives the axis that it shards along; dp then replicates."""
REPLICA_AXES = frozenset({"dp_replicate", "replica"})
"""Other names of the axis along which hybrid sharding replicates."""

# What each kind of sharding spreads over dp, so that no two dp ranks hold the same part of it.
_SHARDED_STATE = {
    "none": frozenset[str](),
    "zero1": frozenset({"optim_checksum"}),
    "zero2": frozenset({"optim_checksum", "grad_checksum"}),
    "zero3": frozenset({"optim_checksum", "grad_checksum", "param_checksum"}),
    "hsdp": frozenset({"optim_checksum", "grad_checksum", "param_checksum"}),
}
# Sharding over dp spreads over the axes that the gradient reduction spans with it.
_SHARDED_ALONG = frozenset({"dp", "cp", "ep"})


def equality_axes(contract: MetricContract, layout: Layout) -> frozenset[str]:
    """The mesh axes along which the metric must be equal, less those along which it is sharded.

    >>> from firstfault.telemetry import contract_of
    >>> layout = Layout(axes=("dp",), coordinates={0: (0,), 1: (1,)}, sharding="zero1")
    >>> equality_axes(contract_of("optim_checksum"), layout)
    frozenset()
    >>> equality_axes(contract_of("param_checksum"), layout)
    frozenset({'dp'})
    """
    axes = contract.axes(Relation.EQUAL) & frozenset(layout.axes)
    replicas = REPLICA_AXES & frozenset(layout.axes) if "dp" in contract.axes(Relation.EQUAL) else frozenset()
    if contract.name.partition("/")[0] not in _SHARDED_STATE[layout.sharding]:
        return axes | replicas
    if layout.sharding != "hsdp":
        return axes - _SHARDED_ALONG
    if replicas:
        return (axes - _SHARDED_ALONG) | replicas
    # "dp" alone does not say which part of it is replicated: then nothing may be compared.
    return (axes - _SHARDED_ALONG) | (axes & {"dp"} if SHARD_AXES & frozenset(layout.axes) else frozenset())


def equality_classes(contract: MetricContract, ranks_R: Ranks, layout: Layout | None) -> Ints | None:
    """Class of each rank: the least rank of its equality group, `NO_CLASS` for a rank outside the mesh.

    None without a layout, and for a canary of unknown device models: classes are then learned.
    Canaries are compared on the same device model only.
    """
    if layout is None or (needs_device(contract) and not _knows_devices(layout)):
        return None
    return layout_classes(contract, ranks_R, layout)


def layout_classes(contract: MetricContract, ranks_R: Ranks, layout: Layout) -> Ints:
    """As `equality_classes`, but where device models are unknown all are taken for the same."""
    by_device = needs_device(contract) and _knows_devices(layout)
    place = _PLACES.of(layout, equality_axes(contract, layout), by_device)
    return _looked_up(place, ranks_R)


def summing_groups(contract: MetricContract, layout: Layout) -> list[Ranks]:
    """The ranks whose values are summed up by one reduction, ascending, group by group.

    >>> from firstfault.telemetry import contract_of
    >>> places = {rank: divmod(rank, 2) for rank in range(4)}
    >>> layout = Layout(axes=("dp", "tp"), coordinates=places)
    >>> [group.tolist() for group in summing_groups(contract_of("grad_sketch_in"), layout)]
    [[0, 2], [1, 3]]
    """
    summed = contract.axes(Relation.SUM)
    if "dp" in summed:
        summed |= SHARD_AXES | REPLICA_AXES
    ranks_L, class_L = _PLACES.of(layout, summed & frozenset(layout.axes), False)
    order = np.argsort(class_L, kind="stable")
    starts = np.flatnonzero(np.diff(class_L[order])) + 1
    return [part.astype(np.int32) for part in np.split(ranks_L[order], starts) if len(part)]


def peer_classes(contract: MetricContract, ranks_R: Ranks, layout: Layout | None) -> Ints:
    """Class of each rank: the least rank of its peer group, inside which the metric is noise.

    Without a layout all ranks are taken for peers; a rank outside the mesh is `NO_CLASS`.

    >>> from firstfault.telemetry import contract_of
    >>> layout = Layout(axes=("dp", "tp"), coordinates={r: divmod(r, 2) for r in range(4)})
    >>> peer_classes(contract_of("local_grad_norm"), np.arange(4, dtype=np.int32), layout)
    array([0, 1, 0, 1])
    """
    if layout is None:
        return np.zeros(len(ranks_R), np.int64)
    axes = contract.axes(Relation.NOISE)
    if "dp" in axes:
        axes |= SHARD_AXES | REPLICA_AXES
    return _looked_up(_PLACES.of(layout, axes & frozenset(layout.axes), False), ranks_R)


def needs_device(contract: MetricContract) -> bool:
    """Whether values are equal only on the same device model: a computation, not replicated state."""
    return contract.name.startswith("canary_")


def model_parallel_group(layout: Layout, rank: int, metric: str = "") -> tuple[int, ...]:
    """The ranks that hold one replica of the model together with ``rank``, ascending.

    Where ``metric`` is of a stage alone (``canary_checksum/stage``), those of its stage.
    """
    axes = frozenset(layout.axes) - {"dp"} - SHARD_AXES - REPLICA_AXES
    if metric.endswith("/stage"):
        axes -= {"pp"}
    key = layout.group_key(rank, axes)
    if key is None:
        return (rank,)
    ranks_L, class_L = _PLACES.of(layout, axes, False)
    at = int(np.searchsorted(ranks_L, rank))
    return tuple(ranks_L[class_L == class_L[at]].tolist())


def fingerprint(layout: Layout | None) -> str:
    """A short text that differs when the layout does; empty without one."""
    return "" if layout is None else _PLACES.fingerprint(layout)


@dataclass(frozen=True, slots=True)
class FirstCheck:
    """The first check of a metric: who reported what, before classes are known."""

    iteration: int
    ranks_R: Ranks
    group_R: Ints
    high_R: Words
    low_R: Words


def learned_classes(first: FirstCheck, second: FirstCheck) -> tuple[Ints, int | None]:
    """Classes of ``first.ranks_R`` from two checks, and the one odd rank beside equal classes, if any.

    Ranks that were equal in both checks form a class. Where most of a class of the first check
    stayed equal and single ranks left it, those are members still: they agreed once, and to find
    them is the vote's business. State that is equal only because it is not in use yet (zero moments)
    falls apart altogether at the second check. A class of one is `NO_CLASS`.
    """
    one_R = _codes(first)
    seen_R = np.isin(first.ranks_R, second.ranks_R)
    at_R = np.minimum(np.searchsorted(second.ranks_R, first.ranks_R), len(second.ranks_R) - 1)
    two_R = np.where(seen_R, _codes(second)[at_R], NO_CLASS)
    class_R = np.full(len(one_R), NO_CLASS, np.int64)
    for code in np.unique(one_R).tolist():
        members = np.flatnonzero((one_R == code) & seen_R)
        for part in _parts(members, two_R):
            if len(part) >= 2:
                class_R[part] = first.ranks_R[part].min()
    alone = np.flatnonzero((class_R == NO_CLASS) & seen_R)
    is_odd = len(alone) == 1 and (class_R != NO_CLASS).sum() >= 2
    return class_R, int(first.ranks_R[alone[0]]) if is_odd else None


def _parts(members: Ints, two_R: Ints) -> list[Ints]:
    """How a class of the first check goes on after the second: whole, or in equal parts."""
    if not len(members):  # none of them was there at the second check
        return []
    codes, counts = np.unique(two_R[members], return_counts=True)
    others = counts[counts < counts.max()]
    if len(codes) == 1 or (2 * counts.max() > len(members) and (others == 1).all() and len(members) >= 3):
        return [members]
    return [members[two_R[members] == code] for code in codes.tolist()]


def _codes(check: FirstCheck) -> Ints:
    return codes_of(check.low_R, check.high_R, check.group_R)[0]


def codes_of(*words: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
    """(code of each element, first element of each code, count of each code) of tuples of integers.

    >>> codes_of(np.array([7, 5, 7]), np.array([1, 1, 1]))
    (array([1, 0, 1]), array([1, 0]), array([1, 2]))
    """
    order = np.lexsort(words)  # stable: of equal tuples the first element comes first
    is_new = np.ones(len(order), bool)
    is_new[1:] = np.logical_or.reduce([word[order[1:]] != word[order[:-1]] for word in words])
    codes = np.empty(len(order), np.int64)
    codes[order] = np.cumsum(is_new) - 1
    starts = np.flatnonzero(is_new)
    return codes, order[starts], np.diff(np.append(starts, len(order)))


def segments(class_R: Ints) -> tuple[Ints, Ints, Ints]:
    """Columns sorted by class (ascending inside), where each class starts, and each column's class ordinal.

    Columns without a class are left out.
    """
    columns = np.flatnonzero(class_R != NO_CLASS)
    columns = columns[np.argsort(class_R[columns], kind="stable")]
    sorted_classes = class_R[columns]
    is_start = np.ones(len(columns), bool)
    is_start[1:] = sorted_classes[1:] != sorted_classes[:-1]
    return columns, np.flatnonzero(is_start), np.cumsum(is_start) - 1


def counts_of(present_TC: Flags, starts_S: Ints) -> Ints:
    """How many members of each class are present, T × S, columns sorted by class."""
    return np.add.reduceat(present_TC, starts_S, axis=1, dtype=np.int64)


def _looked_up(place: tuple[Ints, Ints], ranks_R: Ranks) -> Ints:
    ranks_L, class_L = place
    if not len(ranks_L):
        return np.full(len(ranks_R), NO_CLASS, np.int64)
    at_R = np.minimum(np.searchsorted(ranks_L, ranks_R), len(ranks_L) - 1)
    return np.where(ranks_L[at_R] == ranks_R, class_L[at_R], NO_CLASS)


def _knows_devices(layout: Layout) -> bool:
    return bool(layout.devices) and layout.coordinates.keys() <= layout.devices.keys()


class _Places:
    """Remembers the classes of the last few layouts: a pure function of them, but slow for 100 000 ranks."""

    def __init__(self) -> None:
        self._layouts: list[tuple[Layout, dict[object, tuple[Ints, Ints]], list[str]]] = []

    def of(self, layout: Layout, axes: frozenset[str], by_device: bool) -> tuple[Ints, Ints]:
        """(ranks, class of each), for groups along ``axes``, apart by device model if asked."""
        known = self._known(layout)[1]
        key = (axes, by_device)
        if key not in known:
            known[key] = _classes(layout, axes, by_device)
        return known[key]

    def fingerprint(self, layout: Layout) -> str:
        """A digest of mesh, sharding and devices."""
        texts = self._known(layout)[2]
        if not texts:
            parts = (
                layout.axes,
                sorted(layout.coordinates.items()),
                layout.sharding,
                sorted(layout.devices.items()),
            )
            texts.append(hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest())
        return texts[0]

    def _known(self, layout: Layout) -> tuple[Layout, dict[object, tuple[Ints, Ints]], list[str]]:
        for entry in self._layouts:
            if entry[0] is layout:  # kept alive here, so that its identity cannot be taken over
                return entry
        entry = (layout, {}, [])
        self._layouts = [entry, *self._layouts[:7]]  # 8: the runs of a worker that report at the same time
        return entry


def _classes(layout: Layout, axes: frozenset[str], by_device: bool) -> tuple[Ints, Ints]:
    ranks = sorted(layout.coordinates)
    least: dict[object, int] = {}
    classes = []
    for rank in ranks:
        device = layout.devices.get(rank, "") if by_device else ""
        classes.append(least.setdefault((layout.group_key(rank, axes), device), rank))
    return np.array(ranks, np.int64), np.array(classes, np.int64)


_PLACES = _Places()
