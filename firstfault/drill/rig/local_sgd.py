"""Ranks that train alone for some iterations and then agree: local SGD with an outer step.

Between outer steps every rank has parameters and moments of its own. An outer step takes the mean of what
all ranks moved since the last one as a gradient, and steps with Nesterov momentum from where all stood then;
behind it the parameters are equal, and nowhere else. What a rank gets wrong in between enters the mean by its
share, so that no checksum ever sees it.

Source: Douillard et al., DiLoCo: distributed low-communication training, 2023, algorithm 1.

Axes: H ranks, P parameters.
"""

from __future__ import annotations

import torch

from ..checksum import row_checksums
from ..sketch import row_sketches
from . import observing
from .contribution import contribute, received
from .data_parallel import DataParallel
from .layouts import OUTER_EVERY, is_outer
from .links import mean_in_rank_order
from .model import slices
from .observing import Columns, digits
from .spec import Site
from .state import State

Tensor = torch.Tensor
_OUTER_LR = 0.7
"""That of the source."""
_OUTER_MOMENTUM = 0.5
"""The source takes 0.9, behind hundreds of small steps that come to rest; behind five it would multiply the
learning rate by seven, and jobs that are healthy otherwise explode."""


class LocalSgd(DataParallel):
    """Reduces nothing but what the ranks moved between two outer steps."""

    def fresh_state(self) -> State:
        state = super().fresh_state()
        parameters_HP = state.tensors["parameters"]
        state.tensors |= {"anchor": parameters_HP.clone(), "outer": torch.zeros_like(parameters_HP)}
        return state

    def run_start(self) -> dict[str, object]:
        return super().run_start() | {"local_iterations": OUTER_EVERY, "grad_reduction": "mean"}

    def is_canary_due(self, iteration: int) -> bool:
        """Only behind an outer step, where the parameters are equal."""
        return super().is_canary_due(iteration) and (iteration == 0 or is_outer(iteration - 1))

    def reduce(self, iteration: int, local_HP: Tensor, seen: Columns) -> Tensor:
        """Nothing: every rank steps on its own gradient."""
        if self.job.watch.is_due("grad_sketch", iteration):
            del seen["grad_sketch_in"]  # of a gradient that no reduction adds up
        return local_HP

    def look(self, iteration: int, seen: Columns) -> None:
        del seen["grad_norm"]  # of the own gradient: `local_grad_norm` has it
        if is_outer(iteration):
            self._outer_step(iteration, seen)
        super().look(iteration, seen)
        seen.pop("optim_checksum", None)  # moments are each rank's own
        if not is_outer(iteration):
            seen.pop("param_checksum", None)
        elif self.job.watch.optim_checksum:
            seen["optim_checksum/outer"] = row_checksums(self.state.tensors["outer"])

    def _outer_step(self, iteration: int, seen: Columns) -> None:
        tensors = self.state.tensors
        moved_HP = tensors["anchor"] - tensors["parameters"]
        if self.job.watch.is_due("grad_sketch", iteration):
            seen["grad_sketch_in"] = digits(row_sketches(observing.wide(moved_HP)), 9)
        mean_P = mean_in_rank_order(self.link.all_rows(contribute(self.faults, moved_HP, tensors["sent"])))
        if self.faults.is_at(Site.REDUCE_ALL):
            self.faults.strike_rows(mean_P[None], [0])
        mean_HP = received(
            slices(self.job.model), self.faults, mean_P.expand(len(self.ranks), -1).clone(), moved_HP
        )
        self.look_at_reduced(iteration, mean_HP, seen)
        seen["grad_norm/outer"] = digits(observing.norms(observing.wide(mean_HP)), 9)
        tensors["outer"].mul_(_OUTER_MOMENTUM).add_(mean_HP)
        update_HP = mean_HP + tensors["outer"] * _OUTER_MOMENTUM
        tensors["parameters"].copy_(tensors["anchor"] - update_HP * _OUTER_LR)
        tensors["anchor"].copy_(tensors["parameters"])
