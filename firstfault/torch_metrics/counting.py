"""Norms and counts of values that are not finite, over many tensors in few kernels and without a wait."""

from __future__ import annotations

from collections.abc import Sequence

import torch

_PART = 32768
"""Elements counted at a time on the CPU: beyond, torch starts threads, which costs more than the work."""


def squared_norm(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The sum of squares as a double on the device of the first tensor; not finite where a value is not.

    Each tensor's own norm is taken in single precision at least, their squares are added in double.

    >>> float(squared_norm([torch.tensor([3.0]), torch.tensor([4.0])]))
    25.0
    """
    held = [tensor.detach() for tensor in tensors if tensor.numel()]
    if not held:
        return torch.zeros((), dtype=torch.float64)
    return norms(held).square().sum()


def norms(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """The L2 norm of each tensor as doubles, on the device of the first."""
    with torch.no_grad():
        by_device: dict[torch.device, list[int]] = {}
        for at, tensor in enumerate(tensors):
            by_device.setdefault(tensor.device, []).append(at)
        found: list[torch.Tensor] = [torch.empty(0)] * len(tensors)
        for places in by_device.values():
            parts = tuple(tensors[at].detach() for at in places)
            for at, norm in zip(places, _norms(parts), strict=True):
                found[at] = norm.double()
        first = tensors[0].device
        return torch.stack([norm.to(first) for norm in found])


def _norms(tensors: tuple[torch.Tensor, ...]) -> Sequence[torch.Tensor]:
    """In the type of the tensors, but single precision where that is smaller: half would overflow."""
    if all(one.element_size() >= 4 for one in tensors):
        return torch._foreach_norm(tensors)
    return torch._foreach_norm(tensors, 2, dtype=torch.float32)


def nonfinite_of(tensors: Sequence[torch.Tensor], norms_P: torch.Tensor) -> torch.Tensor:
    """How many values are not finite, of tensors whose norms are known already.

    On an accelerator, where counting them would be a pass of its own and nobody may wait for the norms,
    how many tensors hold one: those whose greatest magnitude is not finite.
    """
    if norms_P.device.type != "cpu":
        with torch.no_grad():
            greatest_P = torch._foreach_norm([one.detach() for one in tensors], float("inf"))
            return (~torch.isfinite(torch.stack(greatest_P))).sum()
    if bool(torch.isfinite(norms_P).all()):  # a finite norm has only finite terms
        return torch.zeros((), dtype=torch.int64)
    return nonfinite(tensors)


def nonfinite(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """How many values are not finite, as an integer on the device of the first tensor.

    >>> int(nonfinite([torch.tensor([1.0, float("nan")]), torch.tensor([float("inf")])]))
    2
    """
    held = [one.detach() for one in tensors if one.is_floating_point() or one.is_complex()]
    if not held:
        return torch.zeros((), dtype=torch.int64)
    with torch.no_grad():
        return torch.stack([_count(one).to(held[0].device) for one in held]).sum()


def _count(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != "cpu":
        return tensor.numel() - torch.isfinite(tensor).sum()
    # a finite norm has only finite terms: the counting is for the rare case
    if tensor.numel() == 0 or bool(torch.isfinite(torch.linalg.vector_norm(tensor))):
        return torch.zeros((), dtype=torch.int64)
    parts = torch.split(tensor.contiguous().view(-1), _PART)
    return torch.stack([part.numel() - torch.isfinite(part).sum() for part in parts]).sum()
