"""A training for torchrun that crashes on rank 1 in its first attempt and goes on from its checkpoint.

torchrun --nproc-per-node 2 --max-restarts 1 -m tests.elastic_program FOLDER
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

import firstfault
from firstfault.torch_metrics import WatchConfig

CRASH, SAVED, ITERATIONS = 7, 4, 12
ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


class Training:
    """Two ranks with data of their own, which reduce by hand: the wrapper of torch takes seconds to load."""

    def __init__(self) -> None:
        self.rank = distributed.get_rank()
        torch.manual_seed(3)
        self.model = nn.Linear(4, 2)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(self, iteration: int, watch: Any) -> torch.Tensor:
        """One iteration: its loss."""
        seed = torch.Generator().manual_seed(2 * iteration + self.rank)
        loss: torch.Tensor = self.model(torch.randn(8, 4, generator=seed)).square().mean()
        if iteration == CRASH and self.rank == 1 and ATTEMPT == 0:
            raise RuntimeError("device lost")
        torch.autograd.backward([loss])
        grads = [one.grad for one in self.model.parameters() if one.grad is not None]
        watch.before_reduction(grads)
        for grad in grads:
            distributed.all_reduce(grad)
            grad /= distributed.get_world_size()
        watch.after_reduction(grads)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def main(folder: Path) -> None:
    """All iterations, from the checkpoint on where there is one."""
    torch.set_num_threads(1)
    # gloo may else read in torchrun's own store the addresses of the attempt before
    meeting = f"file://{folder}/meeting-{ATTEMPT}"
    rank, ranks = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=ranks)
    training, kept, begin = Training(), folder / "kept.pt", 0
    probe = firstfault.Probe(run="elastic", sink=folder / "run.jsonl")
    probe.watch(training.model, training.optimizer, mesh=[["dp", 2]], config=WatchConfig(parameters=1))
    if kept.exists():
        saved = torch.load(kept)
        training.model.load_state_dict(saved["model"])
        training.optimizer.load_state_dict(saved["optimizer"])
        begin = SAVED + 1
        probe.event("resume", iteration=begin, path=str(kept))
    for iteration in range(begin, ITERATIONS):
        probe.step(training.step(iteration, probe.watching))
        if iteration == SAVED:
            if training.rank == 0:
                state = {"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}
                torch.save(state, kept)
                probe.event("checkpoint", iteration=SAVED, path=str(kept))
            distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
