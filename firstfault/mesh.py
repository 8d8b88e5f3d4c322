"""How ranks are arranged: mesh axes, coordinates, and the groups that follow from them.

Axes: R ranks, A mesh axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .telemetry import MAX_RANK, Event, EventKind


class LayoutError(ValueError):
    """A ``run_start`` describes a mesh that cannot be: names the axis or rank, the rule, the value."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The device mesh of one attempt.

    ``coordinates[rank]`` is one integer per axis of ``axes``. ``sharding`` is one of ``none``,
    ``zero1``, ``zero2``, ``zero3``, ``hsdp``; what it shards is not replicated along dp. ``devices[rank]``
    tells apart ranks whose bits may differ: the device model, and the software where it is given per rank.
    ``local_iterations`` is how many iterations ranks train alone before their parameters are averaged.
    """

    axes: tuple[str, ...]
    coordinates: Mapping[int, tuple[int, ...]]
    sharding: str = "none"
    devices: Mapping[int, str] = field(default_factory=dict)
    hosts: Mapping[int, str] = field(default_factory=dict)
    local_iterations: int = 1

    def group_key(self, rank: int, along: Iterable[str]) -> tuple[int, ...] | None:
        """What all ranks share that differ from ``rank`` only along the axes ``along``.

        None when the rank has no place in the mesh. Two ranks with the same key are in one group.
        """
        place = self.coordinates.get(rank)
        if place is None:
            return None
        free = frozenset(along)
        return tuple(-1 if axis in free else at for axis, at in zip(self.axes, place, strict=True))

    def size(self, axis: str) -> int:
        """Number of distinct coordinates along ``axis``; 1 for an axis the mesh does not have."""
        if axis not in self.axes:
            return 1
        at = self.axes.index(axis)
        return len({place[at] for place in self.coordinates.values()})

    def to_plain(self) -> dict[str, Any]:
        """All of it as plain data, for a snapshot."""
        return {
            "axes": list(self.axes),
            "coordinates": [[rank, *place] for rank, place in self.coordinates.items()],
            "sharding": self.sharding,
            "devices": [[rank, text] for rank, text in self.devices.items()],
            "hosts": [[rank, text] for rank, text in self.hosts.items()],
            "local_iterations": self.local_iterations,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Layout:
        """The layout that `to_plain` gave."""
        return cls(
            axes=tuple(plain["axes"]),
            coordinates={rank: tuple(place) for rank, *place in plain["coordinates"]},
            sharding=plain["sharding"],
            devices=dict(plain["devices"]),
            hosts=dict(plain["hosts"]),
            local_iterations=plain.get("local_iterations", 1),
        )


def layout_from_event(event: Event) -> Layout | None:
    """The layout that a ``run_start`` or ``membership`` event describes, None if it names no mesh.

    ``mesh`` is an ordered list of [axis, size], slowest first, or a mapping of rank to coordinates
    (``{"0": {"dp": 0, "tp": 0}, …}``). Only ``world_size`` given: plain data parallel is *not*
    assumed, since groups would then be guessed.

    Raises:
        LayoutError: sizes that do not multiply to world_size, repeated axes, a bad coordinate.
    """
    if event.kind not in (EventKind.RUN_START, EventKind.MEMBERSHIP):
        return None
    mesh = event.fields.get("mesh")
    if mesh is None:
        return None
    if isinstance(mesh, Mapping):
        axes, coordinates = _explicit(mesh)
    elif isinstance(mesh, Sequence) and not isinstance(mesh, str):
        axes, coordinates = _ordered(mesh, event.fields.get("world_size"))
    else:
        raise LayoutError(
            f"mesh must be a list of [axis, size] or a mapping of rank to place, got {_short(mesh)}"
        )
    sharding = event.fields.get("sharding", "none")
    if sharding not in ("none", "zero1", "zero2", "zero3", "hsdp"):
        raise LayoutError(f"sharding must be none, zero1, zero2, zero3 or hsdp, got {_short(sharding)}")
    alone = event.fields.get("local_iterations", 1)
    if not isinstance(alone, int) or isinstance(alone, bool) or alone < 1:
        raise LayoutError(f"local_iterations must be an integer >= 1, got {_short(alone)}")
    return Layout(
        axes=axes,
        coordinates=coordinates,
        sharding=str(sharding),
        devices=_device_kinds(event),
        hosts=_per_rank(event.fields.get("hosts")),
        local_iterations=alone,
    )


def _ordered(
    mesh: Sequence[object], world_size: object
) -> tuple[tuple[str, ...], dict[int, tuple[int, ...]]]:
    axes: list[str] = []
    sizes: list[int] = []
    for entry in mesh:
        if not (isinstance(entry, Sequence) and not isinstance(entry, str) and len(entry) == 2):
            raise LayoutError(f"mesh entries must be [axis, size], got {_short(entry)}")
        axis, size = entry
        if not isinstance(axis, str) or axis in axes:
            raise LayoutError(f"mesh axes must be distinct names, got {_short(axis)}")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise LayoutError(f"mesh axis {axis} must have an integer size >= 1, got {_short(size)}")
        axes.append(axis)
        sizes.append(size)
    total = math.prod(sizes)
    if total > MAX_RANK + 1:
        raise LayoutError(f"mesh must have at most {MAX_RANK + 1} ranks, got {total}")
    if isinstance(world_size, int) and not isinstance(world_size, bool) and world_size != total:
        raise LayoutError(f"mesh sizes multiply to {total} but world_size is {world_size}")
    coordinates: dict[int, tuple[int, ...]] = {}
    for rank in range(total):
        place, rest = [], rank
        for size in reversed(sizes):
            rest, at = divmod(rest, size)
            place.append(at)
        coordinates[rank] = tuple(reversed(place))
    return tuple(axes), coordinates


def _explicit(mesh: Mapping[object, object]) -> tuple[tuple[str, ...], dict[int, tuple[int, ...]]]:
    axes: tuple[str, ...] | None = None
    coordinates: dict[int, tuple[int, ...]] = {}
    for key, place in mesh.items():
        rank = _rank_key(key)
        if not isinstance(place, Mapping):
            raise LayoutError(f"mesh place of rank {rank} must map axis to coordinate, got {_short(place)}")
        if axes is None:
            axes = tuple(str(axis) for axis in place)
        if set(place) != set(axes):
            raise LayoutError(
                f"mesh place of rank {rank} must have the axes {', '.join(axes)}, got {_short(place)}"
            )
        at = [place[axis] for axis in axes]
        if any(not isinstance(c, int) or isinstance(c, bool) or c < 0 for c in at):
            raise LayoutError(f"mesh coordinates of rank {rank} must be integers >= 0, got {_short(place)}")
        coordinates[rank] = tuple(at)
    return axes or (), coordinates


def _rank_key(key: object) -> int:
    text = str(key)
    if not text.isascii() or not text.isdigit() or int(text[:8]) > MAX_RANK or len(text) > 8:
        raise LayoutError(f"mesh ranks must be integers from 0 to {MAX_RANK}, got {text[:40]!r}")
    return int(text)


def _short(value: object) -> str:
    return repr(value) if len(repr(value)) <= 200 else f"{repr(value)[:200]}…"


def _device_kinds(event: Event) -> dict[int, str]:
    """What computes on each rank: the device model, and the software where ranks tell it apart."""
    software = _per_rank(event.fields.get("software"))
    models = _per_rank(event.fields.get("device_models"))
    return {
        rank: f"{model}, {software[rank]}" if rank in software else model for rank, model in models.items()
    }


def _per_rank(given: object) -> dict[int, str]:
    """Text per rank, given as a list in rank order or a mapping of rank to text; else nothing."""
    if isinstance(given, Mapping):
        pairs = [(str(rank), text) for rank, text in given.items()]
        return {
            int(rank): str(text)
            for rank, text in pairs
            if rank.isascii() and rank.isdigit() and len(rank) < 8
        }
    if isinstance(given, Sequence) and not isinstance(given, str):
        return {rank: str(text) for rank, text in enumerate(given)}
    return {}
