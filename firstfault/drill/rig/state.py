"""Everything of a job that an iteration changes, so that it can be kept and gone back to.

Axes: H ranks held by this process, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from .training import RigTraining


@dataclass(slots=True)
class State:
    """The replicas of this process after some update.

    ``tensors`` has ``parameters``, ``first``, ``second`` (moments) and ``sent`` (the last contribution to
    the reduction), each (H, P); a layout adds its own under further names.
    """

    tensors: dict[str, torch.Tensor]
    steps: list[int]
    """Optimizer steps of each rank: a skipped iteration is none."""
    scales: list[float] = field(default_factory=list)
    """Loss scale of each rank; empty without one."""
    finite_iterations: list[int] = field(default_factory=list)
    """Since the loss scale last changed."""

    def clone(self) -> State:
        """A copy that shares nothing."""
        tensors = {name: tensor.clone() for name, tensor in self.tensors.items()}
        return State(tensors, list(self.steps), list(self.scales), list(self.finite_iterations))

    def become(self, other: State) -> None:
        """Take the values of ``other``; the tensors stay the same objects, since leaves are views of them."""
        for name, tensor in self.tensors.items():
            tensor.copy_(other.tensors[name])
        self.steps = list(other.steps)
        self.scales = list(other.scales)
        self.finite_iterations = list(other.finite_iterations)

    def is_lost(self) -> bool:
        """Whether some parameter of every row is not finite."""
        held = [tensor for name, tensor in self.tensors.items() if name.endswith("parameters")]
        return all(not bool(torch.isfinite(tensor.sum(dim=1)).any()) for tensor in held)

    def rows(self, rows: Sequence[int]) -> State:
        """A copy with these rows, repeated or not: another world size."""
        at = list(rows)
        return State(
            {name: tensor[at].clone() for name, tensor in self.tensors.items()},
            [self.steps[row] for row in at],
            [self.scales[row] for row in at] if self.scales else [],
            [self.finite_iterations[row] for row in at] if self.scales else [],
        )


def adapt_scale(training: RigTraining, state: State, row: int, *, is_finite: bool) -> None:
    """Halve the loss scale of one rank after an overflow, double it after a finite stretch."""
    state.finite_iterations[row] = state.finite_iterations[row] + 1 if is_finite else 0
    if not is_finite:
        state.scales[row] /= 2
    elif state.finite_iterations[row] % training.scale_growth_iterations == 0:
        state.scales[row] *= 2
