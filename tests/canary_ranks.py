"""Jobs of several ranks with a canary, for the tests: one interpreter that forks its ranks.

``python -m tests.canary_ranks FOLDER RANKS CASE…`` runs the cases one after the other in the same processes
and writes ``FOLDER/CASE.jsonl``, the telemetry of all ranks, and ``FOLDER/CASE.RANK.json``, what a rank
found.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from torch import nn

from firstfault.torch_metrics.canary import Canary, CanaryConfig
from firstfault.torch_metrics.collective_canary import CollectiveCanary, CollectiveConfig

from .canary_builders import Board, SmallModel, batch_of, canary_every, small_model, train

EVERY, ITERATIONS, FAULTY, SINCE = 4, 24, 1, 14
FIRST_WRONG = SINCE + 2 * (SINCE // EVERY)
"""Call of a product that is the first wrong one: one in each iteration, and two in every canary before it."""


class Wrong(nn.Linear):
    """A product that comes out wrong on one rank, from some call on, each ``rate``-th time."""

    def __init__(self, inner: nn.Linear, since: int, rate: int) -> None:
        super().__init__(inner.in_features, inner.out_features)
        self.load_state_dict(inner.state_dict())
        self.since, self.rate = since, rate

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = super().forward(x)
        CALLS[0] += 1
        if CALLS[0] >= self.since and CALLS[0] % self.rate == 0:
            with torch.no_grad():
                out.view(-1)[0] += 0.125
        return out


CALLS = [0]
"""Calls of `Wrong`: outside of the model, since a canary restores what is inside."""


def events(run: str, ranks: int, **fields: Any) -> list[dict[str, Any]]:
    start = {"event": "run_start", "run": run, "rank": 0, "iteration": 0, "world_size": ranks}
    devices = ["cpu"] * ranks
    return [start | {"mesh": [["dp", ranks]], "device_models": devices} | fields]


def write(folder: Path, case: str, board: Board, **fields: Any) -> None:
    """All ranks' telemetry in one file, written by rank 0."""
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    records: dict[int, dict[str, Any]] = {}
    for iteration, metric, value in board.said:
        shown = f"{int(value) % (1 << 64):016x}" if "_checksum" in metric else value
        records.setdefault(iteration, {"run": case, "rank": rank, "iteration": iteration})[metric] = shown
    gathered: list[Any] = [None] * ranks
    torch.distributed.all_gather_object(gathered, list(records.values()))
    if rank == 0:
        lines = events(case, ranks, **fields) + [one for held in gathered for one in held]
        (folder / f"{case}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def say(folder: Path, case: str, found: dict[str, Any]) -> None:
    (folder / f"{case}.{torch.distributed.get_rank()}.json").write_text(json.dumps(found))


def replicated(model: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(model)


def ddp(folder: Path, case: str) -> None:
    """The same training with a canary and without."""
    rank = torch.distributed.get_rank()
    plain, watched = replicated(small_model()), replicated(small_model())
    train(plain, None, ITERATIONS, rank=rank)
    board = train(watched, canary_every(EVERY), ITERATIONS, rank=rank)
    say(folder, case, {"is_equal": is_equal(plain, watched)})
    write(folder, case, board)


def uneven(folder: Path, case: str) -> None:
    """Each rank has batches of its own size, and device models of its own are unknown."""
    rank = torch.distributed.get_rank()
    board = train(
        replicated(small_model()),
        canary_every(EVERY),
        ITERATIONS,
        rank=rank,
        microbatches=1,
        samples=4 + rank,
    )
    write(folder, case, board, device_models=None)


def faulty(folder: Path, case: str) -> None:
    """One rank computes wrong from an iteration on, always."""
    break_model(folder, case, rate=1)


def flaky(folder: Path, case: str) -> None:
    """One rank computes wrong at times."""
    break_model(folder, case, rate=3)


def break_model(folder: Path, case: str, rate: int) -> None:
    rank = torch.distributed.get_rank()
    CALLS[0] = 0
    model = small_model()
    if rank == FAULTY:
        model.first = Wrong(model.first, FIRST_WRONG, rate)
    write(folder, case, train(replicated(model), canary_every(EVERY), ITERATIONS, rank=rank))


def sharded(folder: Path, case: str) -> None:
    """FSDP2 with a canary and without, and with a rank that computes wrong."""
    from torch.distributed.fsdp import fully_shard

    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (torch.distributed.get_world_size(),))

    def shard(model: SmallModel) -> nn.Module:
        fully_shard(model.first, mesh=mesh)
        fully_shard(model, mesh=mesh)
        return model

    compare_shards(folder, case, shard)


def sharded_flat(folder: Path, case: str) -> None:
    """The same for FSDP1, which keeps flat parameters."""
    shard_flat(folder, case, use_orig_params=False)


def sharded_original(folder: Path, case: str) -> None:
    """The same for FSDP1 that shows the original parameters."""
    shard_flat(folder, case, use_orig_params=True)


def shard_flat(folder: Path, case: str, *, use_orig_params: bool) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    options: dict[str, Any] = {"device_id": torch.device("cpu"), "use_orig_params": use_orig_params}

    def shard(model: SmallModel) -> nn.Module:
        whole: Any = model
        whole.first = FullyShardedDataParallel(model.first, **options)
        return FullyShardedDataParallel(whole, **options)

    compare_shards(folder, case, shard)


def compare_shards(folder: Path, case: str, shard: Callable[[SmallModel], nn.Module]) -> None:
    rank = torch.distributed.get_rank()
    results = []
    for has_canary, is_wrong in ((False, False), (True, False), (True, True)):
        CALLS[0] = 0
        model: SmallModel = small_model()
        if is_wrong and rank == FAULTY:
            model.first = Wrong(model.first, FIRST_WRONG, 1)
        whole = shard(model)
        board = train(whole, canary_every(EVERY) if has_canary else None, ITERATIONS, rank=rank)
        results.append(whole)
        if has_canary:
            write(folder, f"{case}_faulty" if is_wrong else case, board, sharding="zero3")
    kept = [[_local(one) for one in whole.parameters()] for whole in results[:2]]
    say(folder, case, {"is_equal": all(torch.equal(a, b) for a, b in zip(*kept, strict=True))})


def tensor_parallel(folder: Path, case: str) -> None:
    """Layers that each rank holds a part of, with a canary and without."""
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (3,), mesh_dim_names=("tp",))
    kept = []
    for has_canary in (False, True):
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 6), nn.LayerNorm(6))
        parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
        board = Board(model, mesh=mesh)
        train_stage(board, canary_every(EVERY) if has_canary else None, place=0)
        kept.append([_local(one).detach() for one in model.parameters()])
    is_equal = all(torch.equal(a, b) for a, b in zip(*kept, strict=True))
    say(folder, case, {"is_equal": is_equal, "ran": list(board.of("canary_checksum")), "off": board.coverage})


class Stage(nn.Module):
    """A stage of a pipeline: numbers in, numbers out, and a loss nowhere."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.first = nn.Linear(6, 8)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.drop(torch.tanh(self.first(x))))
        return out


STAGES = {"0": {"pp": 0, "dp": 0}, "1": {"pp": 1, "dp": 0}, "2": {"pp": 1, "dp": 1}}
"""Rank 0 is a stage alone, the others share one."""


def staged(folder: Path, case: str) -> None:
    """Stages of a pipeline with a canary and without, and with a rank that computes wrong."""
    rank, kept = torch.distributed.get_rank(), []
    groups = [torch.distributed.new_group([0]), torch.distributed.new_group([1, 2])]
    for has_canary, is_wrong in ((False, False), (True, False), (True, True)):
        CALLS[0] = 0
        model = Stage()
        if is_wrong and rank == FAULTY:
            model.first = Wrong(model.first, FIRST_WRONG, 1)
        group = groups[min(rank, 1)]
        board = Board(nn.parallel.DistributedDataParallel(model, process_group=group), mesh=STAGES)
        train_stage(board, canary_every(EVERY) if has_canary else None)
        kept.append([one.detach() for one in model.parameters()])
        if has_canary:
            write(folder, f"{case}_faulty" if is_wrong else case, board, mesh=STAGES)
    say(folder, case, {"is_equal": all(torch.equal(a, b) for a, b in zip(*kept[:2], strict=True))})


def train_stage(board: Board, canary: Canary | None, place: int | None = None) -> None:
    """Activations of each rank's own, or of a ``place``, and a gradient that comes from the next stage."""
    rank = torch.distributed.get_rank() if place is None else place
    torch.manual_seed(rank)
    if canary is not None:
        board.attach(canary)
    for iteration in range(ITERATIONS):
        handed = batch_of(iteration, rank)[0].requires_grad_()
        out = board.model(handed)
        torch.autograd.backward(out, torch.randn(out.shape))
        with torch.no_grad():
            for one in board.model.parameters():
                one.sub_(one.grad if one.grad is not None else 0.0, alpha=1e-3)
        if canary is not None:
            board.step(canary, iteration)
        board.model.zero_grad()


class Joined(nn.Module):
    """A model whose forward exchanges data, as under tensor parallelism, without anybody saying so."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        most = self.first(x).detach().abs().amax()
        torch.distributed.all_reduce(most)
        loss: torch.Tensor = self.first(x).square().mean() + most + y.sum()
        return loss


def joined(folder: Path, case: str) -> None:
    """Ranks with budgets of their own and collectives in their canaries: one cadence for all."""
    rank = torch.distributed.get_rank()
    torch.manual_seed(1)
    canary = Canary(CanaryConfig(budget_share=(1.0, 0.01, 0.1)[rank]))
    board = train(Joined(), canary, 40, is_mixed=False)
    say(folder, case, {"every": canary.every, "ran": list(board.of("canary_checksum"))})


def collective(folder: Path, case: str) -> None:
    """Known sums through collectives: whole ones, and such that break in one way each."""
    group = torch.distributed.group.WORLD
    for name, break_it in BREAKS.items():
        board = Board(nn.Linear(2, 2))
        canary = CollectiveCanary({"dp": group}, CollectiveConfig(every_iterations=4, positions=24))
        board.attach(canary)
        real = {one: getattr(DISTRIBUTED, one) for one in REAL}
        for iteration in range(40):
            if iteration == 18:
                break_it()
            board.step(canary, iteration)
        for one, function in real.items():
            setattr(DISTRIBUTED, one, function)
        write(folder, f"{case}_{name}", board)


DISTRIBUTED: Any = torch.distributed
REAL = ("all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce")


def _none() -> None:
    """Nothing breaks."""


def _sender() -> None:
    """What rank 1 sends into the all-gather is not what it has."""
    real = DISTRIBUTED.all_gather_into_tensor

    def broken(output: Any, sent: Any, **options: Any) -> Any:
        if torch.distributed.get_rank() == FAULTY and sent.is_floating_point():
            sent = sent + 1
        return real(output, sent, **options)

    DISTRIBUTED.all_gather_into_tensor = broken


def _receiver() -> None:
    """What arrives at rank 1 has one wrong value."""
    real = DISTRIBUTED.reduce_scatter_tensor

    def broken(output: Any, sent: Any, **options: Any) -> Any:
        real(output, sent, **options)
        if torch.distributed.get_rank() == FAULTY:
            output[0] += 1

    DISTRIBUTED.reduce_scatter_tensor = broken


def _left_out() -> None:
    """The contribution of rank 1 never enters the sum."""
    real = DISTRIBUTED.all_reduce

    def broken(tensor: Any, **options: Any) -> Any:
        if torch.distributed.get_rank() == FAULTY:
            tensor.zero_()
        return real(tensor, **options)

    DISTRIBUTED.all_reduce = broken


BREAKS: dict[str, Callable[[], None]] = {
    "whole": _none,
    "sender": _sender,
    "receiver": _receiver,
    "left_out": _left_out,
}
CASES: dict[str, Callable[[Path, str], None]] = {
    one.__name__: one
    for one in (
        ddp,
        uneven,
        faulty,
        flaky,
        sharded,
        sharded_flat,
        sharded_original,
        tensor_parallel,
        staged,
        joined,
        collective,
    )
}


def is_equal(one: nn.Module, other: nn.Module) -> bool:
    """Whether two models are the same to the bit, where they are held here."""
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(torch.equal(_local(a), _local(b)) for a, b in pairs)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return getattr(tensor, "_local_tensor", tensor)


def main(folder: Path, ranks: int, cases: list[str]) -> int:
    torch.set_num_threads(1)
    importlib.import_module("torch._dynamo")  # DDP does: once, before the ranks part
    if "sharded" in cases:
        importlib.import_module("torch.distributed.fsdp")
    children = []
    for rank in range(ranks):
        child = os.fork()
        if child == 0:
            status = 1
            try:
                torch.distributed.init_process_group(
                    "gloo",
                    init_method=f"file://{folder / 'meeting'}",
                    rank=rank,
                    world_size=ranks,
                    timeout=timedelta(seconds=60),
                )
                for case in cases:
                    CASES[case](folder, case)
                torch.distributed.destroy_process_group()
                status = 0
            except BaseException:
                sys.excepthook(*sys.exc_info())
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
