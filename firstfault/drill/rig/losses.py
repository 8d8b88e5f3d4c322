"""The loss function, and the ways in which it is written wrong.

Axes: H ranks held by this process, N = B·L predicted tokens, V vocabulary.
"""

from __future__ import annotations

import torch

from .faults import Faults
from .model import cross_entropy
from .spec import Fault, Kind, Site

_OVERFLOWING = 120.0
"""Largest logit that a careless exponential then meets; float32 overflows from 88.7 on."""

_SMALLEST = 1e-3
"""A largest logit below this is taken for it: there is always something to scale."""


def losses(faults: Faults, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Each rank's mean loss (H), in nats."""
    loss_H = cross_entropy(logits, targets)
    fault = faults.fault
    if fault is None or not faults.is_at(Site.LOSS_FUNCTION):
        return loss_H
    wrong_H = _wrong(fault, loss_H, logits, targets)
    is_struck_H = torch.zeros(len(loss_H), dtype=torch.bool)
    is_struck_H[faults.rows()] = True
    return torch.where(is_struck_H, wrong_H, loss_H)


def _wrong(fault: Fault, loss_H: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    match fault.kind:
        case Kind.WRONG_NORMALIZATION:
            return loss_H * fault.magnitude
        case Kind.LOG_OF_ZERO:
            return _log_of_zero(fault, logits, targets)
        case _:
            return _careless(logits, targets)


def _log_of_zero(fault: Fault, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The logarithm of a probability that was masked to zero at some positions."""
    chosen_HN = logits.softmax(-1).gather(-1, targets[..., None]).squeeze(-1)
    mask_HN = torch.ones_like(chosen_HN)
    mask_HN[:, : fault.count] = 0.0
    return -(chosen_HN * mask_HN).log().mean(1)


def _careless(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Exponentials of scaled logits without the maximum taken off first."""
    largest_H11 = logits.detach().amax(dim=(1, 2), keepdim=True).clamp(min=_SMALLEST)
    scaled = logits * (_OVERFLOWING / largest_H11)
    chosen_HN = scaled.gather(-1, targets[..., None]).squeeze(-1)
    return (scaled.exp().sum(-1).log() - chosen_HN).mean(1)
