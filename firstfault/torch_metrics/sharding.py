"""What part of a tensor is held here, which ranks hold the same, and along which axes there are several."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from ..integrations.layouts import checksum_scopes


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The values held by this rank: of a distributed tensor its own shard, without communication."""
    held = getattr(tensor, "_local_tensor", None)
    return (held if isinstance(held, torch.Tensor) else tensor).detach()


def values_of(gradient: torch.Tensor) -> torch.Tensor:
    """The values of a gradient held by this rank; of a sparse one those that are there, added up by place."""
    return parts_of(local(gradient))[-1]


def parts_of(gradient: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that a gradient is made of: itself, or where its values are, and these."""
    if gradient.layout == torch.strided:
        return [gradient]
    whole = gradient.coalesce()
    return [whole.indices(), whole.values()]


def scopes_of(module: nn.Module) -> dict[int, str]:
    """By ``id`` of a parameter, the ending of its checksum's name; none where the layout says all.

    Experts are replicated along other axes than the rest, and what tensor parallelism leaves whole along one
    more: what is equal on different ranks must not go into one checksum.
    """
    scopes = {of: f"/{scope}" for of, scope in checksum_scopes([module]).items()}
    for name, one in module.named_parameters():
        axes = getattr(getattr(one, "device_mesh", None), "mesh_dim_names", None) or ()
        if "experts" in name.split(".") and "ep" in axes:
            scopes[id(one)] = "/expert"
    return scopes


def holds_whole_model(module: nn.Module, mesh: Any) -> bool:
    """Whether each rank holds all parameters, so that the norm over those here is that of the model."""
    axes = axes_of(mesh)
    if any(axes.get(axis, 1) > 1 for axis in ("tp", "pp", "ep")):
        return False
    placements = (getattr(one, "placements", ()) for one in module.parameters())
    return not any(one.is_shard() for placed in placements for one in placed)


def axes_of(mesh: Any) -> dict[str, int]:
    """Sizes by axis of a device mesh, of a list of [axis, size], or of the coordinates of each rank.

    >>> axes_of([["pp", 2], ["dp", 4]]), axes_of({"0": {"pp": 0}, "1": {"pp": 1}})
    ({'pp': 2, 'dp': 4}, {'pp': 2})
    """
    names = getattr(mesh, "mesh_dim_names", None)
    if names is not None:
        return dict(zip(names, tuple(mesh.shape), strict=True))
    if isinstance(mesh, Mapping):
        sizes: dict[str, int] = {}
        for coordinates in mesh.values():
            for axis, at in coordinates.items():
                sizes[axis] = max(sizes.get(axis, 1), at + 1)
        return sizes
    return {str(axis): int(size) for axis, size in mesh} if isinstance(mesh, list | tuple) else {}


def stage_of(mesh: Any, rank: int) -> list[int]:
    """The ranks of the pipeline stage that ``rank`` belongs to; empty where there is no pipeline.

    >>> stage_of([["pp", 2], ["dp", 2]], 3), stage_of([["dp", 4]], 3)
    ([2, 3], [])
    """
    if axes_of(mesh).get("pp", 1) < 2:
        return []
    places = _places_along("pp", mesh)
    return sorted(one for one, place in places.items() if place == places.get(rank))


def _places_along(axis: str, mesh: Any) -> dict[int, int]:
    """The coordinate of each rank along an axis that the mesh has."""
    names = getattr(mesh, "mesh_dim_names", None)
    if names is not None:
        at = names.index(axis)
        return {int(mesh.mesh[place]): int(place[at]) for place in _all_places(tuple(mesh.shape))}
    if isinstance(mesh, Mapping):
        return {int(rank): int(coordinates.get(axis, 0)) for rank, coordinates in mesh.items()}
    at = [str(name) for name, _ in mesh].index(axis)
    return {rank: place[at] for rank, place in enumerate(_all_places([int(size) for _, size in mesh]))}


def _all_places(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """All coordinates, the last axis the fastest."""
    return list(itertools.product(*(range(size) for size in sizes)))
