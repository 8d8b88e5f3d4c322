"""The layout of a job as its model shows it: which ranks hold the same parameters, and which hold shards.

Read from device meshes, process groups and wrappers, without any communication. What a rank cannot know for
all ranks is left out: groups are then learned from the telemetry. Imports torch: load it where it is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import distributed

log = logging.getLogger("firstfault.probe")

_AXES: Mapping[str, str] = {
    **dict.fromkeys(("dp", "data", "data_parallel", "ddp", "batch", "world"), "dp"),
    **dict.fromkeys(("dp_replicate", "replicate", "replica", "ddp_replicate"), "dp_replicate"),
    **dict.fromkeys(("dp_shard", "shard", "fsdp", "zero"), "dp_shard"),
    **dict.fromkeys(("tp", "tensor", "tensor_parallel", "model", "mp"), "tp"),
    **dict.fromkeys(("pp", "pipe", "pipeline", "pipeline_parallel", "stage"), "pp"),
    **dict.fromkeys(("cp", "context", "context_parallel", "sp", "sequence"), "cp"),
    **dict.fromkeys(("ep", "expert", "expert_parallel"), "ep"),
}
"""What dimensions of a device mesh are called, and the axis that it is."""
_ZERO_STAGES = {1: "zero1", 2: "zero2", 3: "zero3"}
# parameters are whole only while they are used: between two iterations each rank holds a shard
_FSDP1_SHARDINGS = {
    "FULL_SHARD": "zero3",
    "SHARD_GRAD_OP": "zero3",
    "HYBRID_SHARD": "hsdp",
    "_HYBRID_SHARD_ZERO2": "hsdp",
    "NO_SHARD": "none",
}
Mesh = list[list[object]] | dict[str, dict[str, int]]


def declared_layout(model: Any, optimizer: Any = None, mesh: Any = None) -> dict[str, object]:
    """The fields ``mesh`` and ``sharding`` of a ``run_start``; empty where the layout cannot be told.

    ``model`` is a module or a sequence of them (pipeline chunks). ``mesh`` wins where it is given: a
    `DeviceMesh`, or what the wire takes.
    """
    modules = list(model) if isinstance(model, list | tuple) else [model]
    if not (distributed.is_available() and distributed.is_initialized()):
        return {} if mesh is None or not _is_plain(mesh) else {"mesh": mesh}
    sharding = _sharding(modules, optimizer)
    if mesh is None:
        found = _found_mesh(modules, sharding)
    else:
        found = mesh if _is_plain(mesh) else _of_device_mesh(mesh, sharding)
    if found is None:
        return {}
    if sharding == "hsdp" and isinstance(found, list) and _size(found, "dp_replicate") <= 1:
        sharding = "zero3"  # one replica: all that is sharded is held once
    return {"mesh": found, "sharding": sharding}


def checksum_scopes(modules: Iterable[torch.nn.Module]) -> dict[int, str]:
    """By ``id`` of a parameter, the scope under which its checksum is reported.

    ``tp_replicated`` for what each rank of a tensor-parallel group holds whole, ``expert`` for what is spread
    over expert parallelism (``allreduce = False``, as Megatron marks it), nothing for all others.
    """
    parameters = [one for module in modules for one in module.parameters()]
    has_tp = any(_is_spread_over_tp(one) for one in parameters)
    scopes = {}
    for one in parameters:
        if getattr(one, "allreduce", True) is False:
            scopes[id(one)] = "expert"
        elif has_tp and not _is_spread_over_tp(one):
            scopes[id(one)] = "tp_replicated"
    return scopes


def mesh_of_groups(groups: Mapping[str, Sequence[int]], world_size: int) -> list[list[object]] | None:
    """The mesh in which a rank's groups along the axes are these; None where no regular one has them.

    >>> mesh_of_groups({"tp": [4, 5], "dp": [5, 7], "pp": [1, 5]}, 8)
    [['pp', 2], ['dp', 2], ['tp', 2]]
    """
    strides = {axis: stride_of(ranks) for axis, ranks in groups.items() if len(ranks) > 1}
    mesh: list[list[object]] = []
    inner = 1
    for axis, stride in sorted(strides.items(), key=lambda one: one[1] or 0):
        if stride != inner:
            return None
        mesh.insert(0, [axis, len(groups[axis])])
        inner *= len(groups[axis])
    return (mesh or [["dp", 1]]) if inner == world_size else None


def stride_of(ranks: Sequence[int]) -> int | None:
    """The distance from each rank to the next one; None where they are not at equal distances.

    >>> stride_of([1, 3, 5]), stride_of([0, 1, 3])
    (2, None)
    """
    stride = ranks[1] - ranks[0] if len(ranks) > 1 else 1
    is_even = stride > 0 and all(rank == ranks[0] + at * stride for at, rank in enumerate(ranks))
    return stride if is_even else None


def _is_plain(mesh: Any) -> bool:
    return isinstance(mesh, Mapping | Sequence)


def _size(mesh: list[list[object]], axis: str) -> int:
    return next((int(str(size)) for name, size in mesh if name == axis), 1)


def _found_mesh(modules: Sequence[torch.nn.Module], sharding: str) -> Mesh | None:
    """The mesh that the parameters lie on, else that of the wrapper's process group."""
    for module in modules:
        device_mesh = getattr(module, "_device_mesh", None) or _parameters_mesh(module)
        if device_mesh is not None:
            return _of_device_mesh(device_mesh, sharding)
    groups = [one for one in map(_data_group, modules) if one is not None]
    if not groups:
        return None
    if sharding == "hsdp":
        return _of_ranks(distributed.get_process_group_ranks(groups[0]), "dp_shard", "dp_replicate")
    return _of_ranks(distributed.get_process_group_ranks(groups[0]), "dp", "group")


def _parameters_mesh(module: torch.nn.Module) -> Any:
    """The device mesh with most dimensions that any parameter lies on."""
    meshes = [one.device_mesh for one in module.parameters() if hasattr(one, "device_mesh")]
    return max((_root(one) for one in meshes), key=lambda one: one.ndim, default=None)


def _root(device_mesh: Any) -> Any:
    """The mesh of the whole job, of which ``device_mesh`` may be a slice; itself where torch does not say."""
    find = getattr(device_mesh, "_get_root_mesh", None)
    root = find() if callable(find) else None
    return device_mesh if root is None else root


def _of_device_mesh(device_mesh: Any, sharding: str) -> Mesh | None:
    """A device mesh as the wire takes it; None where it does not hold all ranks of the job."""
    device_mesh = _root(device_mesh)
    if device_mesh.mesh.numel() != distributed.get_world_size():
        return None
    axes = _axis_names(device_mesh.mesh_dim_names, device_mesh.ndim, sharding)
    ranks = device_mesh.mesh.flatten().tolist()
    shape = list(device_mesh.mesh.shape)
    if ranks == list(range(len(ranks))):
        return [[axis, size] for axis, size in zip(axes, shape, strict=True)]
    if distributed.get_rank() != 0:
        return None  # a place for each rank is long, and one rank may say it for all
    return {
        str(rank): {
            axis: int(at) for axis, at in zip(axes, torch.unravel_index(torch.tensor(i), shape), strict=True)
        }
        for i, rank in enumerate(ranks)
    }


def _axis_names(names: Sequence[str] | None, dimensions: int, sharding: str) -> list[str]:
    """Axes of the wire for the dimensions of a mesh; an unknown one keeps its name and is never compared."""
    if not names:
        if sharding == "hsdp" and dimensions == 2:
            return ["dp_replicate", "dp_shard"]
        if dimensions == 1:
            return ["tp" if sharding == "none" else "dp"]
        return [f"axis{i}" for i in range(dimensions)]
    axes = [_AXES.get(name.lower(), name) for name in names]
    if sharding == "zero3" and "dp" not in axes and "dp_replicate" not in axes:
        # one axis shards: the wire calls it dp, as it calls every axis along which data differs
        axes = ["dp" if axis == "dp_shard" else axis for axis in axes]
    elif sharding == "hsdp" and "dp_replicate" not in axes:
        axes = ["dp_replicate" if axis == "dp" else axis for axis in axes]
    return axes if len(set(axes)) == len(axes) else list(names)


def _of_ranks(ranks: Sequence[int], axis: str, other: str) -> Mesh | None:
    """The mesh whose groups along ``axis`` all lie as this one does; None where it is not regular."""
    size, stride = len(ranks), stride_of(ranks)
    if stride is None:
        return None
    world = distributed.get_world_size()
    if world % (size * stride) or ranks[0] // stride % size:
        return None
    mesh: list[list[object]] = [[other, world // (size * stride)], [axis, size], [f"{other}_inner", stride]]
    return [entry for entry in mesh if entry[1] != 1 or entry[0] == axis]


def _data_group(module: torch.nn.Module) -> Any:
    """The process group over which the wrapper reduces gradients; None for a module without a wrapper."""
    wrapper = _wrapper(module)
    return None if wrapper is None else getattr(wrapper, "process_group", None)


def _wrapper(module: torch.nn.Module) -> torch.nn.Module | None:
    """The outermost DDP or FSDP of torch, also inside a compiled or other wrapper."""
    for one in _layers(module):
        if hasattr(one, "process_group"):
            return one
    return None


def _layers(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """``module`` and what it wraps, from the outside."""
    seen = 0
    one: Any = module
    while isinstance(one, torch.nn.Module) and seen < 8:  # 8: nobody wraps deeper, and cycles end
        yield one
        one, seen = getattr(one, "_orig_mod", None) or getattr(one, "module", None), seen + 1


def _sharding(modules: Sequence[torch.nn.Module], optimizer: Any) -> str:
    """What is sharded over the data-parallel ranks, in the words of the wire."""
    for module in modules:
        stage = getattr(module, "zero_optimization_stage", None)
        if callable(stage):
            return _ZERO_STAGES.get(int(stage()), "none")
        strategy = getattr(_wrapper(module), "sharding_strategy", None)
        if strategy is not None:
            return _FSDP1_SHARDINGS.get(getattr(strategy, "name", ""), "zero3")
        if any(type(one).__name__.startswith("FSDP") for one in _fully_sharded(module)):
            return "hsdp" if _has_replicas(module) else "zero3"
    optimizers = optimizer if isinstance(optimizer, list | tuple) else [optimizer]
    return "zero1" if any(map(_shards_its_state, optimizers)) else "none"


def _shards_its_state(optimizer: Any) -> bool:
    while optimizer is not None:
        names = {one.__name__ for one in type(optimizer).__mro__}
        if names & {"ZeroRedundancyOptimizer", "DistributedOptimizer"}:
            return True
        optimizer = getattr(optimizer, "optimizer", None)
    return False


def _fully_sharded(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The parts on which ``fully_shard`` was called: it makes them instances of its own class."""
    for one in module.modules():
        if any(base.__name__ == "FSDPModule" for base in type(one).__mro__):
            yield one


def _has_replicas(module: torch.nn.Module) -> bool:
    """Whether a sharded parameter is held alike by several data-parallel ranks."""
    for one in module.parameters():
        placements = getattr(one, "placements", ())
        names = getattr(getattr(one, "device_mesh", None), "mesh_dim_names", None) or ()
        data = [
            placement
            for at, placement in enumerate(placements)
            if at >= len(names) or _AXES.get(names[at].lower(), "dp").startswith("dp")
        ]
        if len(data) > 1 and any(placement.is_replicate() for placement in data):
            return True
    return False


def _is_spread_over_tp(parameter: torch.Tensor) -> bool:
    """Whether the ranks of a tensor-parallel group hold different parts of it."""
    if getattr(parameter, "tensor_model_parallel", False):  # Megatron's mark
        return True
    names = getattr(getattr(parameter, "device_mesh", None), "mesh_dim_names", None) or ()
    placements: Sequence[Any] = getattr(parameter, "placements", ())
    return any(
        _AXES.get(name.lower()) == "tp" and not placement.is_replicate()
        for name, placement in zip(names, placements, strict=False)
    )
