"""What part of a tensor is held here, and which ranks hold the same."""

from __future__ import annotations

import torch


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The values held by this rank: of a distributed tensor its own shard, without communication."""
    held = getattr(tensor, "_local_tensor", None)
    return (held if isinstance(held, torch.Tensor) else tensor).detach()


def scope_of(name: str, parameter: torch.Tensor) -> str:
    """The ending of a checksum's name, by how the parameter is spread over the mesh.

    Plain tensors and shards have none: the layout of the run says who holds the same. Parameters that are
    whole on each tensor-parallel rank must be equal there too; those of experts only among replicas of
    the same experts.
    """
    if is_expert(name, parameter):
        return "/expert"
    placements, mesh = getattr(parameter, "placements", None), getattr(parameter, "device_mesh", None)
    names = getattr(mesh, "mesh_dim_names", None)
    if placements is None or not names:
        return ""
    where = dict(zip(names, placements, strict=True))
    if "tp" in where and where["tp"].is_replicate():
        return "/tp_replicated"
    return ""


def is_expert(name: str, parameter: torch.Tensor) -> bool:
    """Whether it belongs to an expert: by Megatron's mark, or by its name and an ep axis."""
    if getattr(parameter, "allreduce", True) is False:
        return True
    mesh = getattr(parameter, "device_mesh", None)
    return "experts" in name.split(".") and "ep" in (getattr(mesh, "mesh_dim_names", None) or ())
