"""What layouts have in common that put different parameters on different ranks.

`ModelParallel` is a strategy as `DataParallel` is, over several parts. A layout says what the parts are, who
reads which shard, and what the forward pass is.

Axes: H ranks that hold a part, P its parameters, R all ranks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..checksum import row_checksums
from ..plans import DrillError
from . import part_looks
from .data_faults import read_shards
from .faults import Faults
from .links import Link
from .observing import Columns, PassLook, digits, due_checksums, nonfinite, on_gradient
from .part_looks import Said, add, columns_of, put
from .parts import JointState, Part
from .reading import Reader, Shards
from .rows import Tap, gradients
from .spec import Job, Kind, Site
from .state import State
from .updating import update

Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class Passed:
    """What one forward pass gives."""

    loss_H: Tensor
    """Of the ranks that see one."""
    objective: Tensor
    """What is differentiated: the sum of all losses."""


class ReadingFaults(Faults):
    """The fault as readers meet it: a replica's ranks read together, so that all of them read it wrong."""

    def __init__(self, whole: Faults, readers: Sequence[int], data_ranks: Sequence[int]) -> None:
        # not the base class's: its attributes are looked up in `whole`
        self._whole, self._readers, self._data_ranks = whole, readers, data_ranks

    def __getattr__(self, name: str) -> object:
        return getattr(self._whole, name)

    def rows(self) -> list[int]:
        fault = self.fault
        if fault is None or fault.rank is None:
            return list(range(len(self._readers)))
        struck = [row for row, rank in enumerate(self._readers) if rank == fault.rank]
        if fault.kind is Kind.RANDOM_DESYNC or not struck:
            return struck
        return [row for row, at in enumerate(self._data_ranks) if at == self._data_ranks[struck[0]]]


class ModelParallel(ABC):
    """Ranks that hold different parts of a model."""

    message_axis: str
    loss_part: int = 0
    """Number of the part whose ranks see the loss."""

    def __init__(self, job: Job, link: Link, faults: Faults) -> None:
        require_plain(job)
        self.job = job
        self.ranks = link.ranks_here
        self.faults = faults
        self.reader = Reader(job)
        self.parts = self.make_parts()
        self.state: State = JointState(self.parts, len(self.ranks))
        self.readers = self.make_readers()
        self._data_ranks = [self.data_rank(rank) for rank in self.readers]
        self._reading_faults = ReadingFaults(faults, self.readers, self._data_ranks)
        self._canary_shards = self.reader.canary(len(self.readers))
        self._sent: dict[int, int] = {}

    @abstractmethod
    def make_parts(self) -> list[Part]:
        """The parts with their first parameters."""

    @abstractmethod
    def make_readers(self) -> list[int]:
        """The ranks that read data."""

    @abstractmethod
    def data_rank(self, rank: int) -> int:
        """The shard of the data that a rank reads."""

    @abstractmethod
    def forward(self, shards: Shards, tap: Tap) -> Passed:
        """The losses of what the readers read."""

    @abstractmethod
    def global_norms(self, grads: Sequence[Tensor]) -> list[float]:
        """The norm of the reduced gradient as each rank gets it (R)."""

    def run_start(self) -> dict[str, object]:
        """What the layout has to say in the job's ``run_start``."""
        layout = self.job.layout
        return {"mesh": [list(axis) for axis in layout.mesh], "sharding": layout.sharding}

    @abstractmethod
    def synchronize(self, grads: Sequence[Tensor]) -> None:
        """What is reduced beside the data-parallel reduction, in place."""

    def iterate(self, iteration: int, attempt: int) -> Columns:
        """One iteration of every rank: what they saw."""
        seen: Said = {}
        self.faults.enter(iteration, attempt)
        if self.job.watch.is_due("canary", iteration):
            self._canary(seen)
        local = self._compute(iteration, seen)
        self.faults.begin("update")
        reduced = [part.reduced(grad_HP) for part, grad_HP in zip(self.parts, local, strict=True)]
        part_looks.at_reduced(self.job.watch, iteration, self.parts, reduced, seen)
        self.synchronize(reduced)
        norm_R = self.global_norms(reduced)
        for part, grad_HP in zip(self.parts, reduced, strict=True):
            part.clip_norms = [norm_R[rank] for rank in part.ranks]
            said: Columns = {}
            update(part, iteration, grad_HP, said)
            for name, values in said.items():
                put(seen, name, part.ranks, values)
        self.look(iteration, seen)
        return columns_of(seen, len(self.ranks))

    def look(self, iteration: int, seen: Said) -> None:
        """Checksums and counts of the state after the update."""
        for part in self.parts:
            tensors = part.state.tensors
            add(seen, "nonfinite_param", part.ranks, nonfinite(tensors["parameters"]))
            for name, sums in due_checksums(self.job.watch, iteration, tensors).items():
                put(seen, part.named(name), part.ranks, sums)

    def restore(self, state: State) -> None:
        """Go on from a checkpoint."""
        self.state.become(state)
        for part in self.parts:
            part.restore()

    def _compute(self, iteration: int, seen: Said) -> list[Tensor]:
        """Data, forward and backward of all microbatches: the mean local gradient of each part."""
        count = self.job.training.microbatches(iteration)
        total = [torch.zeros_like(part.rows.flat_HP) for part in self.parts]
        losses: list[Tensor] = []
        for part in self.parts:
            part.looks = []
        self._sent = {}
        for microbatch in range(count):
            self.faults.begin(f"train{microbatch}")
            for part in self.parts:
                part.looks.append(PassLook(len(part.ranks)))
            passed = self.forward(self._read(iteration, microbatch, seen), self._tap)
            losses.append(passed.loss_H.detach())
            for sum_HP, grad_HP in zip(total, self._gradients(passed), strict=True):
                sum_HP.add_(grad_HP)
        local = [sum_HP / count for sum_HP in total]
        self._look_at_passes(iteration, torch.stack(losses), seen)
        part_looks.at_local(self.job.watch, iteration, self.parts, local, seen)
        return local

    def _gradients(self, passed: Passed) -> list[Tensor]:
        found = gradients(passed.objective, [part.rows for part in self.parts])
        return [
            part.faults.strike(Site.WEIGHT_GRAD, grad_HP / part.losses)
            for part, grad_HP in zip(self.parts, found, strict=True)
        ]

    def _read(self, iteration: int, microbatch: int, seen: Said) -> Shards:
        at, world = (iteration, microbatch), max(self._data_ranks) + 1
        shards = read_shards(self.reader, self._reading_faults, at, self._data_ranks, world)
        add(seen, "nonfinite_input", self.readers, nonfinite(shards.features_HBLF))
        if microbatch == 0 and self.job.watch.is_due("data_checksum", iteration):
            put(seen, "data_checksum", self.readers, shards.checksums())
        return shards

    def _canary(self, seen: Said) -> None:
        """Forward and backward of the fixed batch, twice; its gradient is hashed and thrown away."""
        ranks = self.parts[self.loss_part].ranks
        for time, metric in enumerate(("canary_checksum", "repeat_checksum/canary")):
            self.faults.begin(f"canary{time}")
            passed = self.forward(self._canary_shards, self._quiet_tap)
            held: dict[int, list[Tensor]] = {rank: [] for rank in self.ranks}
            for rank, loss in zip(ranks, passed.loss_H.detach(), strict=True):
                held[rank].append(loss.view(1))
            for part, grad_HP in zip(self.parts, self._gradients(passed), strict=True):
                for rank, row_P in zip(part.ranks, grad_HP, strict=True):
                    held[rank].append(row_P)
            put(
                seen,
                metric,
                self.ranks,
                [row_checksums(torch.cat(held[rank])[None])[0] for rank in self.ranks],
            )
            if not time:
                put(seen, "canary_loss", ranks, digits(passed.loss_H.tolist(), 9))

    def _tap(self, site: Site, place: str, value_H: Tensor, part: int) -> Tensor:
        """The training pass: faults act, and what ranks compute and send is looked at."""
        value_H = self._quiet_tap(site, place, value_H, part)
        look = self.parts[part].looks[-1]
        if site is Site.FORWARD:
            look.see(place, value_H)
        elif site is Site.ACT_GRAD:
            look.see_gradient(place, value_H)
        elif site is Site.MESSAGE and not place.endswith("gradient"):  # `nonfinite_grad` sees those
            for rank, bad in zip(self.parts[part].ranks, nonfinite(value_H), strict=True):
                self._sent[rank] = self._sent.get(rank, 0) + bad
        return value_H

    def _quiet_tap(self, site: Site, place: str, value_H: Tensor, part: int) -> Tensor:
        """The canary's pass: faults act, and nothing is counted."""
        faults = self.parts[part].own_faults
        if site is Site.MESSAGE:
            return faults.strike(site, value_H) if faults.is_message(place) else value_H
        if site is not Site.FORWARD or not faults.is_place(place):
            return value_H
        value_H = faults.strike(site, value_H)
        if value_H.requires_grad and faults.is_at(Site.ACT_GRAD):
            on_gradient(value_H, lambda grad_H: faults.strike(Site.ACT_GRAD, grad_H))
        return value_H

    def _look_at_passes(self, iteration: int, losses_MH: Tensor, seen: Said) -> None:
        size, part = self.job.model, self.parts[self.loss_part]
        loss_H = losses_MH.mean(0)
        put(seen, "loss", part.ranks, digits(loss_H.tolist(), 7))
        put(seen, "nonfinite_loss", part.ranks, nonfinite(loss_H[:, None]))
        tokens = len(losses_MH) * size.samples * size.length
        put(seen, "tokens", self.ranks, [tokens] * len(self.ranks))
        put(seen, f"nonfinite_send/{self.message_axis}", list(self._sent), list(self._sent.values()))
        for one in self.parts:
            part_looks.at_activations(self.job.watch, iteration, one, one is part, seen)


def require_plain(job: Job) -> None:
    """That a job of another layout than plain data parallel asks for nothing that only that one has.

    Raises:
        DrillError: another precision than fp32, an evaluation, or a restart that forgets or resizes.
    """
    training, name = job.training, job.layout.name
    if training.precision != "fp32":
        raise DrillError(f"training.precision must be fp32 in layout {name}, got {training.precision!r}")
    if training.evaluation_every:
        raise DrillError(
            f"training.evaluation_every must be 0 in layout {name}, got {training.evaluation_every!r}"
        )
    if any(restart.is_spiking for restart in training.restarts):
        raise DrillError(
            f"training.restarts must keep the optimizer in layout {name}, got {training.restarts!r}"
        )
