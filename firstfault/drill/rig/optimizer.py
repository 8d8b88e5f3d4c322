"""AdamW and SGD for all replicas at once, on flat tensors.

Written out, so that each rank's bits depend on its own row alone and its state is two tensors that faults
and snapshots can reach. AdamW: Loshchilov and Hutter, Decoupled weight decay regularization, ICLR 2019,
algorithm 2. SGD: heavy-ball momentum with coupled decay.

Axes: H ranks held by this process, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .training import RigTraining

_EPSILON = 1e-8
Tensors = dict[str, torch.Tensor]


def fresh_moments(training: RigTraining, parameters_HP: torch.Tensor) -> Tensors:
    """The optimizer's tensors before the first step; SGD has no second moment."""
    names = ("first", "second") if training.optimizer == "adamw" else ("first",)
    return {name: torch.zeros_like(parameters_HP) for name in names}


def step(
    training: RigTraining,
    tensors: Tensors,
    grads_HP: torch.Tensor,
    lrs: Sequence[float],
    steps: Sequence[int],
) -> None:
    """One step of every rank in place; ``steps`` counts each rank's steps, this one included."""
    # one column a rank: a plain number and a tensor would round differently
    lr_H1 = torch.tensor(lrs).view(-1, 1)
    parameters_HP, first_HP = tensors["parameters"], tensors["first"]
    if training.optimizer == "sgd":
        first_HP.mul_(training.beta1).add_(grads_HP)
        if training.weight_decay:
            first_HP.add_(parameters_HP * training.weight_decay)
        parameters_HP.sub_(first_HP * lr_H1)
        return
    second_HP = tensors["second"]
    first_HP.mul_(training.beta1).add_(grads_HP * (1 - training.beta1))
    second_HP.mul_(training.beta2).add_((grads_HP * grads_HP).mul_(1 - training.beta2))
    bias1_H1 = torch.tensor([1 - training.beta1**count for count in steps]).view(-1, 1)
    bias2_H1 = torch.tensor([1 - training.beta2**count for count in steps]).view(-1, 1)
    scale_HP = (second_HP / bias2_H1).sqrt_().add_(_EPSILON)
    parameters_HP.mul_(1 - lr_H1 * training.weight_decay)
    parameters_HP.sub_((first_HP / bias1_H1).div_(scale_HP).mul_(lr_H1))
