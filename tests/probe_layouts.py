"""What `declared_layout` finds of models that are wrapped in four real processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from firstfault.integrations.layouts import checksum_scopes, declared_layout


def net() -> nn.Sequential:
    """Two products and a norm."""
    return nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))


def _ddp() -> dict[str, object]:
    return declared_layout(DistributedDataParallel(net()))


def _compiled_ddp() -> dict[str, object]:
    wrapper = nn.Module()
    wrapper._orig_mod = DistributedDataParallel(net())  # how torch.compile holds it
    return declared_layout(wrapper)


def _ddp_over_neighbours() -> dict[str, object]:
    groups = [distributed.new_group([0, 1]), distributed.new_group([2, 3])]
    return declared_layout(DistributedDataParallel(net(), process_group=groups[distributed.get_rank() // 2]))


def _zero1() -> dict[str, object]:
    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1)
    return declared_layout(model, optimizer)


def _fsdp() -> dict[str, object]:
    return declared_layout(fully_shard(net()))


def _hsdp() -> dict[str, object]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    return declared_layout(fully_shard(net(), mesh=mesh))


def _fsdp1() -> dict[str, object]:
    return declared_layout(FullyShardedDataParallel(net(), device_id=torch.device("cpu")))


def _hsdp1() -> dict[str, object]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    strategy = ShardingStrategy.HYBRID_SHARD
    device = torch.device("cpu")
    return declared_layout(
        FullyShardedDataParallel(net(), device_mesh=mesh, sharding_strategy=strategy, device_id=device)
    )


def _tp_and_fsdp() -> dict[str, object]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(net(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    return declared_layout(model)


def _tp() -> dict[str, object]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallelize_module(net(), mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    scopes = checksum_scopes([model])
    named = {name: scopes.get(id(one), "") for name, one in model.named_parameters()}
    return {**declared_layout(model), "scopes": named}


def _given() -> dict[str, object]:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))
    return declared_layout(net(), mesh=mesh)


LAYOUTS: Mapping[str, Callable[[], dict[str, object]]] = {
    "ddp": _ddp,
    "compiled_ddp": _compiled_ddp,
    "ddp_over_neighbours": _ddp_over_neighbours,
    "zero1": _zero1,
    "fsdp": _fsdp,
    "hsdp": _hsdp,
    "fsdp1": _fsdp1,
    "hsdp1": _hsdp1,
    "tp_and_fsdp": _tp_and_fsdp,
    "tp": _tp,
    "given": _given,
}


def found_layouts() -> dict[str, Any]:
    """Each layout as this rank finds it."""
    return {name: find() for name, find in LAYOUTS.items()}
