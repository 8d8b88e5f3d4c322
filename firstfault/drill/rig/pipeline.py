"""Pipeline stages of tensor-parallel and data-parallel ranks: who reads, who reports, and what must agree.

First and last stage read data; the last one alone reports a loss. The tied embedding is reduced between them
behind the data-parallel reduction, as trainers do. What the tensor-parallel ranks hold alike (norms,
positions) is *not* reduced over them: each computes the same gradient, so the copies stay equal by
themselves, or drift apart for ever once they differ.

Axes: H ranks of a stage, P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..checksum import row_checksums
from . import observing
from .model_parallel import ModelParallel, Passed
from .part_looks import Said, put
from .parts import Part, PartFaults
from .reading import Shards
from .rows import Tap
from .spec import Kind, Site
from .stages import TIED, Stage, StagedModel, is_tensor_replicated

Tensor = torch.Tensor


class Pipeline(ModelParallel):
    """The layout pp × dp × tp, in this order of its axes."""

    message_axis = "pp"
    loss_part = -1

    def make_parts(self) -> list[Part]:
        layout = self.job.layout
        count, self._data_ranks_count, self._tensor_ranks = (layout.size(axis) for axis in ("pp", "dp", "tp"))
        per_stage = self._data_ranks_count * self._tensor_ranks
        model = StagedModel(self.job.model, count, per_stage, self._tensor_ranks, self.job.seed)
        self._model = model
        return [self._part(stage, per_stage) for stage in model.stages]

    def make_readers(self) -> list[int]:
        return sorted({*self.parts[0].ranks, *self.parts[-1].ranks})

    def data_rank(self, rank: int) -> int:
        return rank // self._tensor_ranks % self._data_ranks_count

    def forward(self, shards: Shards, tap: Tap) -> Passed:
        count, last = len(self.parts[0].ranks), self.parts[-1]
        x = self._model.hidden(shards.tokens_HBS[:count, :, :-1], shards.features_HBLF[:count], tap)
        targets = shards.targets()[-count:]
        loss_H = self._model.stages[-1].losses(x, targets, tap, last.own_faults)
        return Passed(loss_H, loss_H.sum())

    def synchronize(self, grads: Sequence[Tensor]) -> None:
        """Add up the gradients of the tied embedding; a fault may keep a rank out, or desync a norm."""
        places = [stage.rows.places[TIED] for stage in (self._model.stages[0], self._model.stages[-1])]
        first_HP, last_HP = grads[0][:, places[0]], grads[-1][:, places[1]]
        both_HP = first_HP + last_HP
        for part, own_HP in ((self.parts[0], first_HP), (self.parts[-1], last_HP)):
            missed = part.faults.rows() if part.faults.is_at(Site.REDUCE_OUT, Kind.TIED_DESYNC) else []
            kept_HP = own_HP[missed].clone()
            own_HP.copy_(both_HP)
            own_HP[missed] = kept_HP
        for part, grad_HP in zip(self.parts, grads, strict=True):
            if part.faults.is_at(Site.REDUCE_OUT, Kind.TP_DESYNC):
                self._desynchronize(part, grad_HP)

    def global_norms(self, grads: Sequence[Tensor]) -> list[float]:
        """Each data-parallel replica adds up its own stages and shares, what is held twice once."""
        total_D = [0.0] * self._data_ranks_count
        for stage, grad_HP in zip(self._model.stages, grads, strict=True):
            wide_HP = observing.wide(grad_HP)
            twice = [name for name in stage.rows.places if is_tensor_replicated(name)]
            counted_before = {*twice, TIED} if stage.at else {*twice}
            once = [name for name in stage.rows.places if name not in counted_before]
            for row, (own, replicated) in enumerate(
                zip(_squares(wide_HP, stage, once), _squares(wide_HP, stage, twice), strict=True)
            ):
                is_counted = row % self._tensor_ranks == 0
                total_D[row // self._tensor_ranks] += own + (replicated if is_counted else 0.0)
        return [math.sqrt(total_D[self.data_rank(rank)]) for rank in self.ranks]

    def look(self, iteration: int, seen: Said) -> None:
        super().look(iteration, seen)
        if not self.job.watch.is_due("param_checksum", iteration):
            return
        for stage, part in zip(self._model.stages, self.parts, strict=True):
            replicated = [name for name in stage.rows.places if is_tensor_replicated(name)]
            sums = row_checksums(stage.rows.of(replicated))
            put(seen, "param_checksum/tp_replicated", part.ranks, sums)
            if TIED in stage.rows.places:
                put(seen, "param_checksum/tied", part.ranks, row_checksums(stage.rows.of([TIED])))

    def _part(self, stage: Stage, per_stage: int) -> Part:
        ranks = range(stage.at * per_stage, (stage.at + 1) * per_stage)
        messages = ([] if stage.is_last else ["activation"]) + (["gradient"] if stage.at else [])
        faults = PartFaults(self.faults, ranks, stage.places, messages)
        return Part(self.job, stage.rows, faults, ranks, replicas=self._data_ranks_count)

    def _desynchronize(self, part: Part, grad_HP: Tensor) -> None:
        """The norm layers of one tensor-parallel coordinate get another gradient, on all replicas alike."""
        fault = part.faults.fault
        assert fault is not None
        rows = [row % self._tensor_ranks for row in part.faults.rows()]
        struck = [row for row in range(len(grad_HP)) if row % self._tensor_ranks in rows]
        for name, place in part.rows.places.items():
            if "norm" in name:
                grad_HP[struck, place] *= 1 + fault.magnitude


def _squares(wide_HP: observing.Rows, stage: Stage, names: Sequence[str]) -> list[float]:
    parts = [observing.squares(wide_HP[:, stage.rows.places[name]]) for name in names]
    return [sum(values) for values in zip(*parts, strict=True)]
