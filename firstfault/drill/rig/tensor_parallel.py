"""The collectives inside a tensor-parallel group, for all ranks of a pipeline stage at once.

The forward of one is the backward of the other, as each rank of a real group runs them. Sums are taken in
rank order, so that all members get the same bits. Copies are made for each member: what strikes one
member's copy later leaves the others as they are.

Axes: H ranks of a stage, grouped as (groups, T) with the T members of a group beside each other.
"""

from __future__ import annotations

from typing import Any

import torch

Tensor = torch.Tensor


class _SumForward(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, part_H: Tensor, members: int) -> Tensor:
        return _summed(part_H, members)

    @staticmethod
    def backward(_: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0], None


class _SumBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value_H: Tensor, members: int) -> Tensor:
        ctx.members = members
        return value_H.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _summed(grads[0], ctx.members), None


class _GatherLast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part_H: Tensor, members: int) -> Tensor:
        ctx.members = members
        grouped = part_H.view(-1, members, *part_H.shape[1:])
        whole = torch.cat(list(grouped.unbind(1)), -1)
        return _to_each(whole, members)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Every member computed the same loss from the whole: each takes its own part of its own gradient."""
        grouped = grads[0].view(-1, ctx.members, *grads[0].shape[1:])
        size = grads[0].shape[-1] // ctx.members
        own = [grouped[:, at, ..., at * size : (at + 1) * size] for at in range(ctx.members)]
        return torch.stack(own, 1).flatten(0, 1), None


def sum_forward(part_H: Tensor, members: int) -> Tensor:
    """The sum over each group, a copy for each member; gradients pass as they are."""
    return _apply(_SumForward, part_H, members)


def sum_backward(value_H: Tensor, members: int) -> Tensor:
    """The value as it is; its gradients are summed over each group."""
    return _apply(_SumBackward, value_H, members)


def gather_last(part_H: Tensor, members: int) -> Tensor:
    """The parts of a group joined along the last axis, a copy for each member."""
    return _apply(_GatherLast, part_H, members)


def _summed(part_H: Tensor, members: int) -> Tensor:
    grouped = part_H.view(-1, members, *part_H.shape[1:])
    total = grouped[:, 0].clone()
    for at in range(1, members):
        total += grouped[:, at]
    return _to_each(total, members)


def _to_each(value: Tensor, members: int) -> Tensor:
    return value.unsqueeze(1).expand(-1, members, *value.shape[1:]).flatten(0, 1)


def _apply(function: type[torch.autograd.Function], value_H: Tensor, members: int) -> Tensor:
    result = function.apply(value_H.contiguous(), members)
    assert isinstance(result, Tensor)
    return result
