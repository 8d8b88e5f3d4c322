"""Plain data parallel training of all replicas, and the seams at which other layouts differ.

`DataParallel` is a strategy: it owns the forward and backward pass over the rank axis, the reduction, the
optimizer and what the ranks see of themselves. `iterate` calls the parts in causal order, and a layout
overrides those in which it differs:

* `fresh_state`: the tensors that an iteration changes; all have a leading rank axis.
* `gather`: what is sharded (full shard), before anything is computed.
* `read`: which shard each rank reads.
* `passes`: forward and backward of every rank (`Passes`; pipelines, tensor and expert parallel).
* `reduce`: from local gradients to what each rank's optimizer gets (local SGD: mostly nothing).
* `norms`: the gradient norm that each rank clips by (of all shards together).
* `apply`: the optimizer's step (a ZeRO owner steps its shard; then the gather).
* `look`: checksums and counts of the state.
* `restore`: what a resumed attempt makes of a checkpoint.
* `run_start`: mesh, sharding and what else the layout has to say.

At each place where a fault may act they ask `self.faults` (`strike`, `is_at`). Axes: H ranks held by this
process, P parameters.
"""

from __future__ import annotations

import torch

from ..checksum import row_checksums
from ..sketch import row_sketches
from . import observing
from .contribution import contribute, received
from .corruption import round_to_bf16
from .data_faults import read_shards
from .faults import Faults
from .links import Link, mean_in_rank_order
from .model import initial_parameters, slices
from .observing import Columns, PassLook, digits
from .optimizer import fresh_moments
from .passes import Passes
from .reading import Reader, Shards
from .restoring import restored
from .spec import Job, Site
from .state import State
from .updating import apply_all, update


class DataParallel:
    """Every rank holds the whole model and reads its own shard."""

    def __init__(self, job: Job, link: Link, faults: Faults) -> None:
        self.job = job
        self.link = link
        self.ranks = link.ranks_here
        self.reader = Reader(job)
        self.faults = faults
        self.state = self.fresh_state()
        self.passes = self.make_passes()
        self._canary = self.reader.canary(len(self.ranks))

    def fresh_state(self) -> State:
        """The state before the first iteration."""
        ranks, training = len(self.ranks), self.job.training
        one_P = initial_parameters(self.job.model, self.job.seed)
        parameters_HP = one_P.expand(ranks, -1).clone()
        tensors = {"parameters": parameters_HP, "sent": torch.zeros_like(parameters_HP)}
        tensors |= fresh_moments(training, parameters_HP)
        scales = [training.initial_scale] * ranks if training.precision == "fp16" else []
        return State(tensors, [0] * ranks, scales, [0] * len(scales))

    def make_passes(self) -> Passes:
        """The model over the state's parameters."""
        return Passes(self.job, self.faults, self.state.tensors["parameters"])

    def run_start(self) -> dict[str, object]:
        """What the layout has to say in the job's ``run_start``."""
        layout = self.job.layout
        return {"mesh": [list(axis) for axis in layout.mesh], "sharding": layout.sharding}

    def iterate(self, iteration: int, attempt: int) -> Columns:
        """One iteration of every rank here: what they saw."""
        seen: Columns = {}
        self.faults.enter(iteration, attempt)
        self.gather(iteration, seen)
        self.passes.refresh()
        if self.is_canary_due(iteration):
            seen |= self.passes.canary(self._canary)
        local_HP = self.compute(iteration, seen)
        self.faults.begin("update")
        reduced_HP = self.reduce(iteration, local_HP, seen)
        update(self, iteration, reduced_HP, seen)
        self.look(iteration, seen)
        return seen

    def gather(self, iteration: int, seen: Columns) -> None:
        """Collect sharded parameters: here every rank has them all."""

    def is_canary_due(self, iteration: int) -> bool:
        """Whether the canary is computed before this iteration."""
        return self.job.watch.is_due("canary", iteration)

    def compute(self, iteration: int, seen: Columns) -> torch.Tensor:
        """Data, forward and backward of all microbatches: the scaled local gradient (H, P)."""
        watch, count = self.job.watch, self.job.training.microbatches(iteration)
        losses: list[torch.Tensor] = []
        looks: list[PassLook] = []
        shards: list[Shards] = []
        total_HP = torch.zeros_like(self.state.tensors["sent"])
        for microbatch in range(count):
            self.faults.begin(f"train{microbatch}")
            shards.append(self.read(iteration, microbatch))
            looks.append(PassLook(len(self.ranks)))
            loss_H, grad_HP = self.passes.loss_and_gradient(shards[-1], looks[-1], self.state.scales)
            losses.append(loss_H)
            total_HP += self.faults.strike(Site.WEIGHT_GRAD, grad_HP)
        if watch.is_due("data_checksum", iteration):
            seen["data_checksum"] = shards[0].checksums()
        if watch.is_due("recompute", iteration):
            seen |= self.passes.recomputed(looks[0])
        local_HP = _at_precision(self.job.training.precision, total_HP / count)
        seen |= observing.pass_columns(self.job, losses, looks, shards)
        self._look_at_gradient(iteration, local_HP, looks, seen)
        return local_HP

    def read(self, iteration: int, microbatch: int) -> Shards:
        """What each rank reads."""
        world = self.job.layout.ranks
        return read_shards(self.reader, self.faults, (iteration, microbatch), self.ranks, world)

    def reduce(self, iteration: int, local_HP: torch.Tensor, seen: Columns) -> torch.Tensor:
        """The mean of all ranks' gradients, one copy for each rank here."""
        sent_HP = contribute(self.faults, local_HP, self.state.tensors["sent"])
        mean_P = mean_in_rank_order(self.link.all_rows(sent_HP))
        if self.faults.is_at(Site.REDUCE_ALL):
            self.faults.strike_rows(mean_P[None], [0])
        reduced_HP = mean_P.expand(len(self.ranks), -1).clone()
        reduced_HP = received(slices(self.job.model), self.faults, reduced_HP, local_HP)
        self.look_at_reduced(iteration, reduced_HP, seen)
        return reduced_HP

    def norms(self, grad_HP: torch.Tensor) -> list[float]:
        """The norm of the gradient by which each rank clips."""
        return observing.for_each(observing.norms(observing.wide(observing.distinct(grad_HP))), len(grad_HP))

    def apply(self, grad_HP: torch.Tensor, lrs: list[float]) -> None:
        """The optimizer's step of every rank."""
        apply_all(self.job.training, self.state, grad_HP, lrs)

    def look(self, iteration: int, seen: Columns) -> None:
        """Checksums and counts of the state after the update."""
        tensors, watch = self.state.tensors, self.job.watch
        sums = tensors["parameters"].sum(1).tolist()
        seen["nonfinite_param"] = observing.nonfinite(tensors["parameters"], sums)
        seen |= observing.due_checksums(watch, iteration, tensors)
        every = self.job.training.evaluation_every
        if every and iteration % every == 0:
            held_out = self.reader.held_out(len(self.ranks))
            self.faults.begin("evaluation")
            seen["eval_loss"] = digits(self.passes.loss(held_out).tolist(), 7)

    def restore(self, state: State) -> None:
        """Go on from a checkpoint; a fault may damage what one rank reads of it."""
        self.state.become(restored(self.job, self.faults, state))

    def _look_at_gradient(
        self, iteration: int, local_HP: torch.Tensor, looks: list[PassLook], seen: Columns
    ) -> None:
        scales_H1 = torch.tensor(self.state.scales or [1.0] * len(self.ranks)).view(-1, 1)
        wide_HP = observing.wide(local_HP / scales_H1) if self.state.scales else observing.wide(local_HP)
        norms = observing.norms(wide_HP)
        seen |= {
            "local_grad_norm": digits(norms, 7),
            "grad_absmax": digits(observing.absmax(wide_HP), 7),
            "nonfinite_grad": observing.nonfinite(local_HP, norms),
        }
        if self.job.watch.is_due("act_grad_norm", iteration):
            seen |= observing.act_grad_norms(looks, self.state.scales)
        if self.job.watch.is_due("grad_sketch", iteration):
            seen["grad_sketch_in"] = digits(row_sketches(observing.wide(local_HP)), 9)

    def look_at_reduced(self, iteration: int, reduced_HP: torch.Tensor, seen: Columns) -> None:
        """What each rank sees of the gradient that it got."""
        ranks, reduced_HP = len(reduced_HP), observing.distinct(reduced_HP)
        wide_HP = observing.wide(reduced_HP)
        counts = observing.nonfinite(reduced_HP, observing.squares(wide_HP))
        seen["nonfinite_reduced"] = observing.for_each(counts, ranks)
        if self.job.watch.is_due("grad_sketch", iteration):
            seen["grad_sketch_out"] = observing.for_each(digits(row_sketches(wide_HP), 9), ranks)
        if self.job.watch.is_due("grad_checksum", iteration):
            seen["grad_checksum"] = observing.for_each(row_checksums(reduced_HP), ranks)


def _at_precision(precision: str, grad_HP: torch.Tensor) -> torch.Tensor:
    """The gradient as it is stored: what does not fit into half precision becomes infinite."""
    if precision == "fp16":
        return grad_HP.half().float()
    return torch.from_numpy(round_to_bf16(grad_HP.numpy())) if precision == "bf16" else grad_HP
