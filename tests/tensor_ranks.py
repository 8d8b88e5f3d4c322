"""Four ranks, each half of the layers and half of the data: tensor parallel by data parallel.

    python -m tests.tensor_ranks FOLDER

Each way of training runs without a probe, with one, and with one and a fault on a rank. It writes what each
said, and of each rank whether its parameters were the same to the bit as ``equal-<rank>.json``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import firstfault
from firstfault.torch_metrics import WatchConfig

from .probe_job import free_port, launch, local

RANKS, STRUCK, STRIKE, ITERATIONS, CANARY = 4, 2, 9, 18, 4
WIDTH = 8


class Block(nn.Module):
    """Two products, of which each rank holds a half, and a norm that all hold."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x + f(x)"""
        result: torch.Tensor = x + self.down(torch.tanh(self.up(self.norm(x))))
        return result


class Training:
    """One way of training on one rank."""

    def __init__(self, mesh: DeviceMesh, *, is_sharded: bool, fault: str = "") -> None:
        torch.manual_seed(4)
        self.net = nn.Sequential(Block(), Block(), nn.Linear(WIDTH, 1))
        plan = {f"{at}.{part}": how for at in (0, 1) for part, how in _plan().items()}
        parallelize_module(self.net, mesh["tp"], plan)
        self.group = None if is_sharded else mesh["dp"].get_group()
        if is_sharded:
            fully_shard(self.net, mesh=mesh["dp"])
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=1e-2)
        self.place, self.iteration, self.fault = mesh.get_local_rank("dp"), 0, fault
        unit = self.net.get_submodule("0.up")
        if fault == "gradient":
            unit.get_parameter("weight").register_hook(self._struck)  # type: ignore[no-untyped-call]  # untyped in torch
        if fault == "unit":
            unit.register_forward_hook(self._wrong)

    def step(self, watch: Any) -> torch.Tensor:
        """One iteration: its loss."""
        seed = torch.Generator().manual_seed(100 * self.iteration + self.place)
        x = torch.randn(6, WIDTH, generator=seed)
        loss = nn.functional.mse_loss(self.net(x), x.sum(1, keepdim=True))
        torch.autograd.backward([loss])
        if self.group is not None:
            self._reduce(watch)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.fault == "parameter" and self._is_time():
            local(next(self.net.parameters()))[0] *= 4
        self.iteration += 1
        return loss.detach()

    def _reduce(self, watch: Any) -> None:
        """The mean over data parallel ranks, by a trainer that does it itself."""
        grads = [local(one.grad) for one in self.net.parameters() if one.grad is not None]
        if watch is not None:
            watch.before_reduction(grads)
        for grad in grads:
            distributed.all_reduce(grad, group=self.group)
            grad /= RANKS // 2
        if watch is not None:
            watch.after_reduction(grads)

    def _struck(self, grad: torch.Tensor) -> torch.Tensor:
        if self._is_time():
            grad = grad.clone()
            local(grad)[0, 0] = torch.nan
        return grad

    def _wrong(self, _module: nn.Module, _args: Any, output: torch.Tensor) -> torch.Tensor:
        """From there on for good, canaries included."""
        is_wrong = distributed.get_rank() == STRUCK and self.iteration >= STRIKE
        return output * 1.001 if is_wrong else output

    def _is_time(self) -> bool:
        return distributed.get_rank() == STRUCK and self.iteration == STRIKE


def _plan() -> dict[str, Any]:
    return {"up": ColwiseParallel(), "down": RowwiseParallel()}


def train(folder: Path, name: str, mesh: DeviceMesh, *, is_watched: bool, **how: Any) -> list[torch.Tensor]:
    """The parameters of this rank in the end."""
    training, probe = Training(mesh, **how), None
    if is_watched:
        probe = firstfault.Probe(run=name, sink=folder / f"{name}.jsonl")
        config = WatchConfig(parameters=1, optimizer_state=1, grad_sketch=1, canary_every=CANARY)
        probe.watch(training.net, training.optimizer, mesh=mesh, config=config)
    for _ in range(ITERATIONS):
        loss = training.step(None if probe is None else probe.watching)
        if probe is not None:
            probe.step(loss)
    if probe is not None:
        probe.close(timeout_s=10.0)
    return [local(one) for one in training.net.parameters()]


FAULTS = {"replicated": ("gradient", "parameter", "unit"), "sharded": ("parameter",)}
WAYS: Mapping[str, dict[str, Any]] = {"replicated": {"is_sharded": False}, "sharded": {"is_sharded": True}}


def run_rank(folder: Path, port: int) -> Callable[[int], None]:
    """What one rank does."""

    def run(rank: int) -> None:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": str(RANKS)}
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), **place)
        torch.set_num_threads(1)
        distributed.init_process_group("gloo")
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        equal = {}
        for name, how in WAYS.items():
            with_probe, without = (train(folder, name, mesh, is_watched=on, **how) for on in (True, False))
            equal[name] = all(map(torch.equal, with_probe, without))
            for fault in FAULTS[name]:
                train(folder, f"{name}-{fault}", mesh, is_watched=True, fault=fault, **how)
        (folder / f"equal-{rank}.json").write_text(json.dumps(equal))
        distributed.barrier()
        distributed.destroy_process_group()

    return run


if __name__ == "__main__":
    sys.exit(launch(RANKS, run_rank(Path(sys.argv[1]), free_port())))
