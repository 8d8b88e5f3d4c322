"""What part of a tensor is held here, and which ranks hold the same."""

from __future__ import annotations

import torch
from torch import nn

from ..integrations.layouts import checksum_scopes


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The values held by this rank: of a distributed tensor its own shard, without communication."""
    held = getattr(tensor, "_local_tensor", None)
    return (held if isinstance(held, torch.Tensor) else tensor).detach()


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
