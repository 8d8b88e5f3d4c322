"""Faults in a real training process: where they act, and what they do."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed import distributed_c10d


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFault:
    """One fault of one rank.

    ``site`` is data, forward, act_grad, weight_grad, reduce_in, reduce_out, parameter, moment or loss_scale.
    ``value`` replaces the element where it is not finite, and is a factor where it is.
    """

    site: str
    value: float
    rank: int = 2
    iteration: int = 40
    lasts: bool = False
    """Whether it stays until the end, in every pass; else it strikes once."""

    def strikes(self, rank: int, iteration: int) -> bool:
        """Whether it acts on this rank in this iteration."""
        is_time = iteration >= self.iteration if self.lasts else iteration == self.iteration
        return rank == self.rank and is_time

    def changed(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy with the largest element wrong, as a flipped bit of its exponent leaves it."""
        wrong = tensor.detach().clone()
        self.change(wrong)
        return wrong

    def change(self, tensor: torch.Tensor) -> None:
        """The same in place."""
        flat = tensor.detach().view(-1)
        at = int(flat.abs().argmax())
        flat[at] = flat[at] * self.value if math.isfinite(self.value) else self.value


class Injector:
    """Lets a fault act at its site in the iteration that is computed now; without one nothing happens."""

    def __init__(self, rank: int, fault: ProcessFault | None) -> None:
        self._rank, self._fault = rank, fault
        self.iteration = -1
        self.is_training = True
        """False in a pass that is repeated or a canary: what strikes once strikes the training alone."""

    def at(self, site: str) -> ProcessFault | None:
        """The fault, if it acts at ``site`` now."""
        fault = self._fault
        if fault is None or fault.site != site or not fault.strikes(self._rank, self.iteration):
            return None
        return fault

    def through(self, site: str, tensor: torch.Tensor) -> torch.Tensor:
        """``tensor`` as it leaves the site."""
        fault = self.at(site)
        return tensor if fault is None else fault.changed(tensor)

    def in_place(self, site: str, tensor: torch.Tensor) -> None:
        """Change ``tensor`` itself."""
        fault = self.at(site)
        if fault is not None:
            fault.change(tensor)

    @contextmanager
    def around_all_reduce(self) -> Iterator[None]:
        """While it lasts what goes into an all-reduce of gradients and what comes out is struck."""
        real = distributed_c10d.all_reduce
        torch.distributed.all_reduce = self._struck(real)
        try:
            yield
        finally:
            torch.distributed.all_reduce = real

    def _struck(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def all_reduce(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            self.in_place("reduce_in", tensor)
            work = real(tensor, *args, **kwargs)
            if work is not None and self.at("reduce_out") is not None:
                work.wait()
            self.in_place("reduce_out", tensor)
            return work

        return all_reduce


class FaultyLinear(nn.Linear):
    """A product whose output, or the gradient of its input or weight, comes out wrong."""

    injector: Injector

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The product, by a unit that may be defective."""
        result: torch.Tensor = _Product.apply(input, self.weight, self.bias, self.injector)
        return result


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, injector: Injector
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.injector = injector
        return injector.through("forward", nn.functional.linear(x, weight, bias))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        x, weight = ctx.saved_tensors
        injector: Injector = ctx.injector
        rows, columns = grad.flatten(0, -2), x.flatten(0, -2)
        to_input = injector.through("act_grad", grad @ weight)
        to_weight = injector.through("weight_grad", rows.t() @ columns)
        return to_input, to_weight, rows.sum(0), None
