"""Small models, trained with a canary and without one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed
from torch import nn

from firstfault.torch_metrics.canary import Canary, CanaryConfig
from firstfault.torch_metrics.hashing import checksum
from firstfault.torch_metrics.sharding import local
from firstfault.torch_metrics.watch import bare


class SmallModel(nn.Module):
    """All that has a state beside its parameters: dropout, statistics, a counter, a router's load."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(8, 3)
        self.last.bias = nn.Parameter(torch.zeros(3))
        self.register_buffer("load", torch.zeros(8))
        self.load: torch.Tensor
        self.calls = 0
        self.amax = {"history": [torch.zeros(1)]}

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        hidden = torch.relu(self.norm(self.first(x)))
        self.load += hidden.detach().mean(0).float()
        self.amax["history"][0].copy_(hidden.detach().abs().amax().reshape(1))
        hidden = self.drop(hidden * (1 + 0.01 * self.load))
        return nn.functional.cross_entropy(self.last(hidden) * (1 + self.amax["history"][0]), y)


@dataclass
class Board:
    """What stands in the place of a watch: takes what signals put."""

    model: nn.Module
    example_batch: Any = None
    mesh: Any = None
    muted: bool = False
    coverage: dict[str, str] = field(default_factory=dict)
    iteration: int = 0
    said: list[tuple[int, str, int | float]] = field(default_factory=list)

    @property
    def module(self) -> nn.Module:
        return bare(self.model)

    @property
    def rank(self) -> int:
        return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0

    @contextmanager
    def mute(self) -> Iterator[None]:
        self.muted = True
        yield
        self.muted = False

    def guarded(self, signal: object, hook: Any) -> Any:
        return lambda *args: None if self.muted else hook(*args)

    def leave_out(self, what: str, why: str) -> None:
        self.coverage[what] = why

    def put_param_checksums(self, out: Any) -> None:
        out.put("param_checksum", checksum([local(one) for one in self.module.parameters()]))

    def attach(self, signal: Any) -> None:
        signal.attach(self)

    def step(self, signal: Any, iteration: int) -> None:
        """The boundary after ``iteration``."""
        self.iteration = iteration
        signal.at_step(iteration, self)

    def put(self, metric: str, value: Any) -> None:
        self.said.append((self.iteration, metric, value.item() if isinstance(value, torch.Tensor) else value))

    def of(self, metric: str) -> dict[int, int | float]:
        return {iteration: value for iteration, name, value in self.said if name == metric}


def batch_of(iteration: int, rank: int = 0, samples: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * rank + iteration)
    x = torch.randn(samples, 6, generator=generator)
    return x, torch.randint(3, (samples,), generator=generator)


def train(
    model: nn.Module,
    canary: Canary | None,
    iterations: int = 200,
    *,
    rank: int = 0,
    microbatches: int = 1,
    samples: int = 5,
    is_mixed: bool = True,
) -> Board:
    """Train with momentum, accumulation and bf16; the canary sees each step boundary."""
    torch.manual_seed(7)
    momentum = [torch.zeros_like(one) for one in model.parameters()]
    board = Board(model)
    if canary is not None:
        board.attach(canary)
    for iteration in range(iterations):
        for at in range(microbatches):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_mixed):
                loss = model(*batch_of(microbatches * iteration + at, rank, samples))
            loss.backward()
        _step(model, momentum)
        if canary is not None:
            board.step(canary, iteration)
        if iteration % 3:  # else the next gradients are added to these
            model.zero_grad()
    return board


@torch.no_grad()
def _step(model: nn.Module, momentum: list[torch.Tensor]) -> None:
    """Gradient descent with momentum; the optimizers of torch import its compiler, which takes seconds."""
    for parameter, moved in zip(model.parameters(), momentum, strict=True):
        moved.mul_(0.9).add_(parameter.grad if parameter.grad is not None else 0.0)
        parameter.sub_(moved, alpha=1e-3)


def small_model() -> SmallModel:
    torch.manual_seed(3)
    return SmallModel()


def canary_every(iterations: int = 4, **settings: Any) -> Canary:
    return Canary(CanaryConfig(every_iterations=iterations, **settings))
