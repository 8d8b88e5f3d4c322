"""Small jobs of several ranks over gloo, each trained with and without a watch."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from firstfault.torch_metrics import Watch, WatchConfig, checksum, hex_of

from .probe_job import launch
from .watch_builders import ListProbe, batch, small_model

ITERATIONS = 3
DDP = nn.parallel.DistributedDataParallel


@dataclass(frozen=True, kw_only=True)
class Job:
    """How one job trains."""

    wrap: Callable[[nn.Module], nn.Module] = DDP
    prepare: Callable[[Any], None] = lambda model: None
    """What the user does to the wrapped model before it is watched."""
    later: Callable[[Any], None] = lambda model: None
    """What the user does after it is watched."""
    microbatches: int = 1
    autocast: torch.dtype | None = None
    scaler: bool = False
    clip: float | None = None
    set_to_none: bool = True
    optimizer: dict[str, Any] = field(default_factory=dict)


def compress(state: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    """A user's own hook: sums in bfloat16."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    found: torch.futures.Future[torch.Tensor] = bf16_compress_hook(state, bucket)
    return found


compress.__annotations__ = {}


def shard(model: nn.Module) -> nn.Module:
    """Every layer a group of its own, the rest one more."""
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:  # type: ignore[union-attr]  # a module list
        fully_shard(layer)
    fully_shard(model)
    return model


JOBS = {
    "plain": Job(),
    "bucket_view": Job(wrap=lambda model: DDP(model, gradient_as_bucket_view=True), set_to_none=False),
    "static_graph": Job(wrap=lambda model: DDP(model, static_graph=True)),
    "small_buckets": Job(wrap=lambda model: DDP(model, bucket_cap_mb=0.0005)),
    "accumulated": Job(microbatches=3, clip=0.05),
    "bf16": Job(autocast=torch.bfloat16, clip=0.05),
    "fp16": Job(scaler=True, clip=0.05),
    "hook_before": Job(prepare=lambda model: model.register_comm_hook(None, compress)),
    "hook_after": Job(later=lambda model: model.register_comm_hook(None, compress)),
    "sharded": Job(wrap=shard, clip=0.05),
    "sharded_accumulated": Job(wrap=shard, microbatches=2),
}


def main() -> None:
    """``WORLD_SIZE FOLDER JOB…``: what every job said and ended with on each rank, as JSON in the folder."""
    world_size, folder = int(sys.argv[1]), Path(sys.argv[2])
    sys.exit(launch(world_size, lambda rank: _rank(rank, world_size, folder)))


def _rank(rank: int, world_size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world_size)
    found = {name: _both(JOBS[name], rank, world_size) for name in sys.argv[3:]}
    (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.barrier()
    dist.destroy_process_group()


def _both(job: Job, rank: int, world_size: int) -> dict[str, Any]:
    probe = ListProbe(rank, world_size)
    watched = _run(job, rank, probe)
    alone = _run(job, rank, None)
    return {
        "same": watched == alone,
        "said": [[iteration, metrics] for iteration, metrics in probe.said().items()],
        "errors": [f"{where}: {error!r}" for where, error in probe.errors],
    }


def _run(job: Job, rank: int, probe: ListProbe | None) -> tuple[list[str], list[float]]:
    """The checksum of the parameters after each update, and the losses."""
    model = job.wrap(small_model())
    job.prepare(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, **job.optimizer)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, enabled=job.scaler)
    watch = None
    if probe is not None:
        config = WatchConfig(grad_sketch=1, sketch_groups=2, parameters=1, optimizer_state=1)
        watch = Watch(probe, model, optimizer, scaler=scaler, config=config)
    job.later(model)
    sums, losses = [], []
    for iteration in range(ITERATIONS):
        loss = _backward(job, model, scaler, iteration, rank)
        scaler.unscale_(optimizer)
        if job.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), job.clip)
        scaler.step(optimizer)
        scaler.update()
        if watch is not None:
            watch.at_step(iteration, loss)
        optimizer.zero_grad(set_to_none=job.set_to_none)
        sums.append(hex_of(checksum([getattr(one, "_local_tensor", one) for one in model.parameters()])))
        losses.append(float(loss))
    if watch is not None:
        watch.close()
    return sums, losses


def _backward(job: Job, model: Any, scaler: Any, iteration: int, rank: int) -> torch.Tensor:
    for part in range(job.microbatches):
        is_last = part == job.microbatches - 1
        quiet = contextlib.nullcontext() if is_last or not hasattr(model, "no_sync") else model.no_sync()
        if hasattr(model, "set_requires_gradient_sync"):
            model.set_requires_gradient_sync(is_last)
        with quiet, torch.autocast("cpu", job.autocast, enabled=job.autocast is not None):
            loss: torch.Tensor = model(batch(iteration * job.microbatches + part, rank)).square().mean()
            scaler.scale(loss).backward()
    return loss


if __name__ == "__main__":
    main()
