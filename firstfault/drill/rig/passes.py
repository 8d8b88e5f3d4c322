"""Forward and backward passes of all replicas, with the places where faults act and ranks look.

Axes: H ranks held by this process, P parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..checksum import row_checksums
from .corruption import round_to_bf16
from .faults import Faults
from .losses import losses
from .model import Named, Tap, Transformer, flat_length, gradients, leaves
from .observing import Columns, PassLook, digits, on_gradient, output_checksums
from .reading import Shards
from .spec import Job, Site


class Passes:
    """The model of every rank here, reading its parameters (H, P)."""

    def __init__(self, job: Job, faults: Faults, parameters_HP: torch.Tensor) -> None:
        self.job = job
        self.faults = faults
        self.model = Transformer(job.model)
        self._parameters_HP = parameters_HP
        self._is_bf16 = job.training.precision == "bf16"
        self._read_HP = parameters_HP.clone() if self._is_bf16 else parameters_HP
        self.p: Named = leaves(self._read_HP, job.model)

    def refresh(self) -> None:
        """Bring what the forward pass reads up to date with the parameters."""
        if self._is_bf16:
            self._read_HP.copy_(torch.from_numpy(round_to_bf16(self._parameters_HP.numpy())))

    def loss_and_gradient(
        self, shards: Shards, look: PassLook, scales: Sequence[float]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One forward and backward pass: each rank's loss (H) and scaled gradient (H, P)."""
        x = self.model.embed(self.p, shards.tokens_HBS[:, :, :-1], shards.features_HBLF)
        tap = self.tap(look)
        for name in self.model.blocks:
            look.outputs[name] = x.detach()
            look.watch_gradient(name, x)
            if self.faults.is_at(Site.RECOMPUTE) and self.faults.block == name:
                x = self._recomputing_block(name, x, look)
            else:
                x = self.model.block(self.p, name, x, tap)
        look.outputs["end"] = x.detach()
        loss_H = losses(self.faults, self.model.logits(self.p, x, tap), shards.targets())
        scaled_H = loss_H * torch.tensor(scales) if scales else loss_H
        return loss_H.detach(), gradients(scaled_H, self.p, flat_length(self.job.model))

    def loss(self, shards: Shards) -> torch.Tensor:
        """Each rank's loss (H) alone, with what a lasting fault makes of it."""
        tap = self.tap(None)
        with torch.no_grad():
            x = self.model.embed(self.p, shards.tokens_HBS[:, :, :-1], shards.features_HBLF)
            for name in self.model.blocks:
                x = self.model.block(self.p, name, x, tap)
            return losses(self.faults, self.model.logits(self.p, x, tap), shards.targets())

    def canary(self, shards: Shards) -> Columns:
        """Forward and backward of the fixed batch, twice; its gradient is hashed and thrown away."""
        said: list[tuple[torch.Tensor, torch.Tensor]] = []
        for time in range(2):
            self.faults.begin(f"canary{time}")
            loss_H, grad_HP = self.loss_and_gradient(shards, PassLook(len(self._parameters_HP)), ())
            said.append((loss_H, self.faults.strike(Site.WEIGHT_GRAD, grad_HP)))
        sums = [row_checksums(torch.cat([loss_H[:, None], grad_HP], dim=1)) for loss_H, grad_HP in said]
        return {
            "canary_loss": digits(said[0][0].tolist(), 9),
            "canary_checksum": sums[0],
            "repeat_checksum/canary": sums[1],
        }

    def recomputed(self, look: PassLook) -> Columns:
        """The blocks' outputs, and the same computed a second time from the blocks' inputs."""
        self.faults.begin("recompute")
        names = self.model.blocks
        after = [*names[1:], "end"]
        again: list[torch.Tensor] = []
        with torch.no_grad():
            for name in names:
                x = look.recomputed.get(name)
                if x is None:
                    tap = self.tap(None, Site.FORWARD, Site.RECOMPUTE)
                    x = self.model.block(self.p, name, look.outputs[name], tap)
                again.append(x)
        return {
            "recompute_checksum": output_checksums([look.outputs[name] for name in after]),
            "repeat_checksum/recompute": output_checksums(again),
        }

    def tap(self, look: PassLook | None, *sites: Site) -> Tap:
        """Lets faults at these sites (the forward pass's, unless said) act, and looks."""
        faults = self.faults

        def tapped(place: str, value: torch.Tensor) -> torch.Tensor:
            if faults.is_place(place):
                for site in sites or (Site.FORWARD,):
                    value = faults.strike(site, value)
                if value.requires_grad and faults.is_at(Site.ACT_GRAD):
                    on_gradient(value, lambda grad: faults.strike(Site.ACT_GRAD, grad))
            if look is not None:
                look.see(place, value)
            return value

        return tapped

    def _recomputing_block(self, name: str, x: torch.Tensor, look: PassLook) -> torch.Tensor:
        """A block whose backward pass uses activations that were computed a second time, and wrong."""
        with torch.no_grad():
            clean = self.model.block(self.p, name, x, self.tap(look))
        again = self.model.block(self.p, name, x, self.tap(None, Site.FORWARD, Site.RECOMPUTE))
        look.recomputed[name] = again.detach()
        substituted: torch.Tensor = _Substitute.apply(again, clean)
        return substituted


class _Substitute(torch.autograd.Function):
    """The value of one tensor, the graph of another."""

    @staticmethod
    def forward(_ctx: Any, _recomputed: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return value.clone()

    @staticmethod
    def backward(_ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0], None
