"""A probe that keeps what it is told, and a small model in training under a watch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from firstfault.launch import Launch

if TYPE_CHECKING:
    import torch
    from torch import nn

    from firstfault.torch_metrics import Signal, Watch, WatchConfig

Said = dict[int, dict[str, float | str]]


class ListProbe:
    """An outlet that keeps every record."""

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.launch = Launch(run="watched", rank=rank, world_size=world_size)
        self.records: list[tuple[int, int | None, dict[str, float | str]]] = []
        self.places: list[tuple[str, int]] = []
        self.errors: list[tuple[str, BaseException]] = []

    def log(self, *, iteration: int, microbatch: int | None = None, **metrics: float | str) -> None:
        self.records.append((iteration, microbatch, metrics))

    def at(self, phase: str, iteration: int) -> None:
        self.places.append((phase, iteration))

    def note_error(self, where: str, error: BaseException) -> None:
        self.errors.append((where, error))

    def said(self) -> Said:
        """Metrics of whole iterations."""
        found: Said = {}
        for iteration, microbatch, metrics in self.records:
            if microbatch is None:
                found.setdefault(iteration, {}).update(metrics)
        return found


@contextmanager
def watching(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    *,
    signals: list[Signal] | None = None,
    config: WatchConfig | None = None,
    probe: ListProbe | None = None,
    **more: Any,
) -> Iterator[tuple[Watch, ListProbe]]:
    """A model under watch, with the default signals unless others are given."""
    from firstfault.torch_metrics import Watch

    probe = probe or ListProbe()
    watch = Watch(probe, model, optimizer, config=config, signals=signals, **more)
    try:
        yield watch, probe
    finally:
        watch.close()


def small_model(seed: int = 0) -> nn.Module:
    """Three layers, 8 → 16 → 16 → 4."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    layers = nn.ModuleList([nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)])

    class Stack(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x

    return Stack()


def batch(iteration: int, rank: int = 0, rows: int = 6) -> torch.Tensor:
    """Inputs of one iteration, different on each rank."""
    import torch

    return torch.randn(rows, 8, generator=torch.Generator().manual_seed(1000 * rank + iteration))


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    watch: Watch | None,
    *,
    iterations: int = 3,
    rank: int = 0,
    microbatches: int = 1,
    between: Callable[[int], None] = lambda iteration: None,
) -> None:
    """A plain loop; ``between`` runs after backward and before the update."""
    for iteration in range(iterations):
        optimizer.zero_grad()
        for part in range(microbatches):
            loss = model(batch(iteration * microbatches + part, rank)).square().mean()
            loss.backward()
        between(iteration)
        optimizer.step()
        if watch is not None:
            watch.at_step(iteration, loss)
