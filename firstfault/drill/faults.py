"""The faults: each does to one replica what the hardware, the data or the schedule would do.

`Faults` belongs to one replica and is asked at the places of an iteration where something can go
wrong; with no fault planned there it hands back what it got.
"""

from __future__ import annotations

import numpy as np
import torch

from .corpus import Batch
from .plans import Plan
from .scenarios import FaultKind

# Bits of a float32: 31 sign, 30..23 exponent, 22..0 mantissa.
_TOP_EXPONENT_BIT = 30
"""Flipped in a value between 1 and 2 it gives an exponent of all ones: NaN, or infinity for 1.0."""
_MODEST_EXPONENT_BIT = 25
"""A factor of 16 either way: one parameter is wrong, the loss hardly moves."""
_MOMENT_EXPONENT_BIT = 27
"""A factor of 65 536 either way: moments are small, and a smaller one would be lost in rounding."""

_OVERFLOWS_EVERY = 15
"""Iterations between the overflows of a unit that fails now and then."""
_STUCK_STRIDE = 64
"""One word of this many is stuck, as with one line of a memory chip."""


class Faults:
    """What goes wrong on one rank, by plan."""

    def __init__(self, plan: Plan, rank: int) -> None:
        self._plan = plan
        self._rank = rank
        self._sent_before: torch.Tensor | None = None

    def lr_factor(self, iteration: int) -> float:
        """What the learning rate of the schedule is multiplied with."""
        is_high = self._is(FaultKind.HIGH_LR) and self._plan.is_struck(iteration)
        return self._plan.scenario.magnitude if is_high else 1.0

    def on_batch(self, iteration: int, batch: Batch) -> Batch:
        """The batch as it is read."""
        if self._is(FaultKind.BAD_SAMPLE) and self._strikes_now(iteration):
            features = batch.features_BSF.copy()
            features[1, 5:9, 0] = (np.nan, np.inf, np.nan, -np.inf)
            return Batch(tokens_BS=batch.tokens_BS, features_BSF=features)
        return batch

    def on_activation(self, iteration: int, site: str, value: torch.Tensor) -> torch.Tensor:
        """An activation as it is computed, in training and in the canary alike."""
        if site == "layer0" and self._is(FaultKind.ACTIVATION_FLIP) and self._strikes_now(iteration):
            changed = value.clone()
            _flip(changed.data.view(-1), _place_between(value, 1.0, 2.0), _TOP_EXPONENT_BIT)
            return changed
        is_scaled = self._is(FaultKind.SCALED_MATMUL) and self._plan.is_struck(iteration, self._rank)
        return value * self._plan.scenario.magnitude if is_scaled and site == "layer1.mlp" else value

    def on_gradient(self, iteration: int, grad_P: torch.Tensor) -> torch.Tensor:
        """The scaled local gradient as the backward pass leaves it."""
        is_struck = self._plan.is_struck(iteration, self._rank)
        if self._is(FaultKind.SCALED_GRADIENT) and is_struck:
            return grad_P * self._plan.scenario.magnitude
        is_due = (iteration - (self._plan.fault_iteration or 0)) % _OVERFLOWS_EVERY == 0
        if not (self._is(FaultKind.OVERFLOWING) and is_struck and is_due):
            return grad_P
        changed_P = grad_P.clone()
        changed_P[len(changed_P) // 3] = torch.inf
        return changed_P

    def on_average(self, iteration: int, flat_P: torch.Tensor) -> None:
        """The averaged parameters, which evaluation alone reads: one bit of every some words is stuck."""
        if self._is(FaultKind.STUCK_AVERAGE) and self._plan.is_struck(iteration):
            bits = flat_P.numpy().view(np.uint32)[::_STUCK_STRIDE]
            bits |= np.uint32(1 << _MODEST_EXPONENT_BIT)

    def on_contribution(self, iteration: int, grad_P: torch.Tensor) -> torch.Tensor:
        """The local gradient as it enters the reduction."""
        before_P, self._sent_before = self._sent_before, grad_P
        if not self._plan.is_struck(iteration, self._rank):
            return grad_P
        if self._is(FaultKind.STALE_GRADIENT) and before_P is not None:
            return before_P
        return torch.zeros_like(grad_P) if self._is(FaultKind.DROPPED_GRADIENT) else grad_P

    def on_result(self, iteration: int, reduced_P: torch.Tensor) -> torch.Tensor:
        """The reduced gradient as this rank gets it."""
        if not (self._is(FaultKind.REDUCED_FLIP) and self._strikes_now(iteration)):
            return reduced_P
        changed_P = reduced_P.clone()
        _flip(changed_P, int(changed_P.abs().argmax()), _MODEST_EXPONENT_BIT)
        return changed_P

    def before_update(self, iteration: int, moment: torch.Tensor) -> None:
        """The flat first moment, just before the optimizer reads it."""
        if self._is(FaultKind.OPTIMIZER_FLIP) and self._strikes_now(iteration):
            place = _place_between(moment, 1e-4, 1.0)
            _flip(moment, place, _MOMENT_EXPONENT_BIT)

    def after_update(self, iteration: int, flat: torch.Tensor) -> None:
        """The flat parameters, just after the update."""
        if self._is(FaultKind.PARAM_FLIP) and self._strikes_now(iteration):
            _flip(flat, _place_between(flat, 0.02, 0.1), _MODEST_EXPONENT_BIT)

    def _is(self, kind: FaultKind) -> bool:
        return self._plan.fault is kind

    def _strikes_now(self, iteration: int) -> bool:
        return iteration == self._plan.fault_iteration and self._rank == self._plan.fault_rank


def _place_between(values: torch.Tensor, low: float, high: float) -> int:
    """The middle one of the places whose magnitude lies in [low, high)."""
    size = values.detach().abs().view(-1)
    places = torch.nonzero((size >= low) & (size < high)).view(-1)
    if not len(places):
        return int(size.argmax())
    return int(places[len(places) // 2])


def _flip(flat: torch.Tensor, place: int, bit: int) -> None:
    bits = flat.detach().numpy().view(np.uint32)
    bits[place] ^= np.uint32(1 << bit)
