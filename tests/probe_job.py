"""A small data-parallel training in processes of its own, with a probe, and with faults on purpose.

    python -m tests.probe_job SPEC.json

Starts the ranks as torchrun does, by environment variables, but from one process that has torch loaded
already, and runs several trainings one after another in the same process group. SPEC holds `JobSpec`.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import firstfault
from firstfault.torch_metrics import WatchConfig

from .probe_faults import FaultyLinear, FaultyReduceScatter, Injector, ProcessFault
from .probe_layouts import found_layouts

WIDTH, DEPTH, SAMPLES = 16, 3, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One training: its run's name, and what goes wrong."""

    run: str
    fault: dict[str, Any] | None = None
    iterations: int = 48
    wrap: str = "ddp"
    """ddp, fsdp, hsdp, single, or compiled (DDP within torch.compile)."""
    precision: str = "fp32"
    """fp32, bf16 (autocast) or fp16 (autocast to bf16, with a loss scale: the CPU trains in no fp16)."""
    microbatches: int = 1
    state_every: int = 1
    """Iterations between checksums; all else comes in each, so that what a fault changes shows at once."""
    canary_every: int = 0
    """Iterations between canaries; 0: as often as their cost allows."""
    comm_hook: bool = False
    """Whether the trainer brings a reduction of its own (DDP: a hook): it is where a reduction is struck."""
    recompute: bool = False
    """Whether the activations of the layers are computed again in the backward pass."""
    probe: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """What one launch does."""

    folder: str
    ranks: int
    port: int
    cases: list[Case] = field(default_factory=list)
    sink: str = ""
    """Where all trainings send; empty: a file each in ``folder``."""
    layouts: bool = False
    """Whether each rank also writes what layouts it finds of wrapped models, as ``layouts-rank<r>.json``."""

    def write(self) -> Path:
        """As the file that the program reads."""
        path = Path(self.folder) / "spec.json"
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: Path) -> JobSpec:
        """What `write` wrote."""
        plain = json.loads(path.read_text())
        return cls(**{**plain, "cases": [Case(**case) for case in plain["cases"]]})


class Layer(nn.Module):
    """A residual layer."""

    def __init__(self, injector: Injector | None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = FaultyLinear(WIDTH, 2 * WIDTH)
        if injector is None:
            self.up = nn.Linear(WIDTH, 2 * WIDTH)  # type: ignore[assignment]  # the sound unit
        else:
            self.up.injector = injector
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x + f(x)"""
        result: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm(x))))
        return result


class Net(nn.Module):
    """A few residual layers; the middle one is struck by faults of a computation."""

    def __init__(self, injector: Injector, recompute: bool = False) -> None:
        super().__init__()
        self.recompute = recompute
        self.layers = nn.ModuleList(Layer(injector if at == DEPTH // 2 else None) for at in range(DEPTH))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """One number a sample."""
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        result: torch.Tensor = self.head(x)
        return result


def batch(seed: int, rank: int, iteration: int, microbatch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The data of a rank: the same in each launch."""
    key = ((seed * 1000 + iteration) * 16 + microbatch) * 64 + rank
    x = torch.randn(SAMPLES, WIDTH, generator=torch.Generator().manual_seed(key))
    return x, x.square().mean(1, keepdim=True)


class Training:
    """One case on one rank."""

    def __init__(self, case: Case, rank: int, ranks: int) -> None:
        self.case, self.rank = case, rank
        fault = None if case.fault is None else ProcessFault(**case.fault)
        self.injector = Injector(rank, fault)
        torch.manual_seed(11)
        self.net = Net(self.injector, case.recompute)
        self.model = wrapped(self.net, case.wrap, ranks)
        if case.comm_hook:
            self._bring_a_reduction()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.scaler = (
            torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=50)
            if case.precision == "fp16"
            else None
        )

    def _bring_a_reduction(self) -> None:
        """The trainer's own, which can be struck."""
        if isinstance(self.model, FSDPModule):
            self.model.set_custom_reduce_scatter(FaultyReduceScatter(self.injector))
        else:
            assert isinstance(self.model, DistributedDataParallel), "only these two take one"
            # a lambda, since torch refuses annotations that are text
            self.model.register_comm_hook(None, lambda _, bucket: self.injector.all_reduce(bucket))

    def run(self, probe: firstfault.Probe | None) -> None:
        """All iterations."""
        for iteration in range(self.case.iterations):
            self.injector.iteration = iteration
            loss = self.iterate(iteration)
            if probe is not None:
                probe.step(loss)

    def iterate(self, iteration: int) -> torch.Tensor:
        """One iteration: its loss, the mean over microbatches."""
        if self.scaler is not None and self.scaler._scale is not None:
            self.injector.in_place("loss_scale", self.scaler._scale)
        losses = [self.backward(iteration, at) for at in range(self.case.microbatches)]
        self.update()
        return torch.stack(losses).mean()

    def backward(self, iteration: int, microbatch: int) -> torch.Tensor:
        """Forward and backward of one microbatch; only the last one reduces."""
        x, y = batch(3, self.rank, iteration, microbatch)
        x = self.injector.through("data", x)
        is_last = microbatch == self.case.microbatches - 1
        if isinstance(self.model, DistributedDataParallel):
            self.model.require_backward_grad_sync = is_last  # what its no_sync() sets
        with torch.autocast("cpu", torch.bfloat16, enabled=self.case.precision != "fp32"):
            loss = nn.functional.mse_loss(self.model(x).float(), y)
        if (fault := self.injector.at("loss_function")) is not None:
            loss = loss * fault.value  # and so its gradient
        scaled = loss / self.case.microbatches
        torch.autograd.backward([scaled if self.scaler is None else self.scaler.scale(scaled)])
        return loss.detach()

    def update(self) -> None:
        """Unscale, clip and step, with what strikes the state before and behind it."""
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for held in self.optimizer.state.values():
            self.injector.in_place("moment", local(held["exp_avg"]))
            self.injector.in_place("second_moment", local(held["exp_avg_sq"]))
            break
        if self.scaler is None:
            self.optimizer.step()
        else:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.optimizer.zero_grad()
        self.injector.in_place("parameter", local(next(self.model.parameters())))


def local(tensor: torch.Tensor) -> torch.Tensor:
    """What this rank holds of a tensor."""
    held = getattr(tensor, "_local_tensor", tensor)
    result: torch.Tensor = held.detach()
    return result


def wrapped(net: nn.Module, wrap: str, ranks: int) -> nn.Module:
    """The model as it is trained in parallel."""
    if wrap == "single":
        return net
    if wrap == "ddp":
        return DistributedDataParallel(net)
    if wrap == "compiled":  # without generated code, which takes a compiler and a minute
        return torch.compile(DistributedDataParallel(net), backend="eager")  # type: ignore[return-value]
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = (
        init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp_shard",))
        if wrap == "fsdp"
        else init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("dp_replicate", "dp_shard"))
    )
    fully_shard(net, mesh=mesh)
    return net


def run_rank(spec: JobSpec, rank: int) -> None:
    """All cases on one rank, one after another."""
    os.environ.update(
        RANK=str(rank),
        LOCAL_RANK=str(rank),
        WORLD_SIZE=str(spec.ranks),
        LOCAL_WORLD_SIZE=str(spec.ranks),
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(spec.port),
    )
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")
    distributed.init_process_group("gloo")
    try:
        if spec.layouts:
            found = json.dumps(found_layouts())
            (Path(spec.folder) / f"layouts-rank{rank}.json").write_text(found)
        for case in spec.cases:
            run_case(spec, case, rank)
    finally:
        distributed.destroy_process_group()


def run_case(spec: JobSpec, case: Case, rank: int) -> None:
    """One training, and what its parameters are in the end."""
    training = Training(case, rank, spec.ranks)
    probe = None
    if case.probe:
        sink = spec.sink or str(Path(spec.folder) / f"{case.run}.jsonl")
        probe = firstfault.Probe(run=case.run, sink=sink)
        every = case.state_every
        config = WatchConfig(
            parameters=every,
            optimizer_state=every,
            grad_sketch=1,
            sketch_groups=1,
            canary_every=case.canary_every,
            recompute=1,
        )
        probe.watch(training.model, training.optimizer, scaler=training.scaler, config=config)
    training.run(probe)
    if probe is not None:
        probe.close(timeout_s=10.0)
    parameters = {name: local(one) for name, one in training.model.named_parameters()}
    torch.save(parameters, Path(spec.folder) / f"{case.run}-rank{rank}.pt")
    distributed.barrier()


def launch(ranks: int, body: Callable[[int], None]) -> int:
    """Run ``body`` in a process a rank; how many failed."""
    importlib.import_module("torch._dynamo")  # DDP does, in seconds: once, before the ranks part
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            try:
                body(rank)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            sys.stdout.flush()
            os._exit(0)
        children.append(child)
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


def free_port() -> int:
    """A port of the loopback address that nobody uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(path: Path) -> int:
    """Launch what a file of `JobSpec` asks for."""
    spec = JobSpec.read(path)
    return launch(spec.ranks, lambda rank: run_rank(spec, rank))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
