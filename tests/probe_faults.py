"""Faults in a real training process: where they act, and what they do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter

from firstfault.torch_metrics.passes import is_backward_running


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessFault:
    """One fault of one rank.

    ``site`` is data, forward, recompute (the same output, when it is computed again for the backward pass),
    act_grad, weight_grad, reduce_in, dropped (the rank's whole contribution to the reduction), reduce_out,
    reduce_all (the result that all ranks get), parameter, moment, second_moment, loss_function or loss_scale.
    ``value`` replaces the element where it is not finite, and is a factor where it is.
    """

    site: str
    value: float
    rank: int = 2
    iteration: int = 40
    lasts: bool = False
    """Whether it stays until the end, in every pass; else it strikes once."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", float(self.value))  # JSON has no NaN: it comes as text

    def strikes(self, rank: int, iteration: int) -> bool:
        """Whether it acts on this rank in this iteration."""
        is_time = iteration >= self.iteration if self.lasts else iteration == self.iteration
        return is_time and (rank == self.rank or self.site == "reduce_all")

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

    def all_reduce(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        """The mean over ranks, as a communication hook: what goes in and what comes out is struck."""
        self.strike_input(bucket.buffer())
        everybody = distributed.group.WORLD
        assert everybody is not None, "the group is there before the first bucket"
        mean = allreduce_hook(everybody, bucket)
        return mean.then(self._result)

    def _result(self, done: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
        result = done.value()
        self.strike_result(result)
        return result

    def strike_input(self, buffer: torch.Tensor) -> None:
        """What this rank hands to the reduction goes wrong, or is lost as a whole."""
        self.in_place("reduce_in", buffer)
        if self.at("dropped") is not None:
            buffer.zero_()

    def strike_result(self, result: torch.Tensor) -> None:
        """What this rank, or every one, gets back is wrong."""
        self.in_place("reduce_out", result)
        self.in_place("reduce_all", result)


class FaultyReduceScatter(DefaultReduceScatter):
    """The reduction of ``fully_shard``, as a trainer may bring one: struck on its way in and out."""

    def __init__(self, injector: Injector) -> None:
        super().__init__()
        self._injector = injector

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: distributed.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> distributed.Work | None:
        """Reduce, and wait for it."""
        self._injector.strike_input(input_tensor)
        work = super().__call__(output_tensor, input_tensor, group, op, async_op)
        assert work is None, "asked for at once"
        self._injector.strike_result(output_tensor)
        return work


class FaultyLinear(nn.Linear):
    """A product whose output, or the gradient of its input or weight, comes out wrong."""

    injector: Injector

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The product, by a unit that may be defective."""
        result: torch.Tensor = _Product.apply(input, self.weight, self.bias, self.injector)
        return result


class _Product(torch.autograd.Function):
    """Under autocast in its precision, as torch's own product is."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.bfloat16)  # type: ignore[untyped-decorator]  # torch's
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, injector: Injector
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        ctx.injector = injector
        # inside of a backward pass only what was not kept is computed again
        site = "recompute" if is_backward_running() else "forward"
        return injector.through(site, nn.functional.linear(x, weight, bias))

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")  # type: ignore[untyped-decorator]  # torch's
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        x, weight = ctx.saved_tensors
        injector: Injector = ctx.injector
        rows, columns = grad.flatten(0, -2), x.flatten(0, -2)
        to_input = injector.through("act_grad", grad @ weight)
        to_weight = injector.through("weight_grad", rows.t() @ columns)
        return to_input, to_weight, rows.sum(0), None
