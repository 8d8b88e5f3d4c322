"""From the reduced gradient to the next state: unscale, clip, step, and the faults on the way.

Axes: H ranks held by this process, P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import torch

from .corruption import flipped
from .faults import Faults
from .observing import Columns, digits, distinct
from .optimizer import step
from .spec import Job, Site
from .state import State, adapt_scale
from .training import RigTraining


class Updated(Protocol):
    """The parts of a strategy that an update needs."""

    job: Job
    state: State
    faults: Faults

    def norms(self, grad_HP: torch.Tensor) -> list[float]:
        """The norm of the gradient by which each rank clips."""
        ...

    def apply(self, grad_HP: torch.Tensor, lrs: list[float]) -> None:
        """The optimizer's step of every rank."""
        ...


def update(replicas: Updated, iteration: int, reduced_HP: torch.Tensor, seen: Columns) -> None:
    """Unscale, clip and step; a rank whose gradient overflowed under a loss scale skips."""
    training, state, faults = replicas.job.training, replicas.state, replicas.faults
    _strike_scale(state, faults)
    grad_HP = reduced_HP / torch.tensor(state.scales).view(-1, 1) if state.scales else reduced_HP
    norms = replicas.norms(grad_HP)
    lrs = faults.lrs(iteration)
    seen |= {"grad_norm": digits(norms, 9), "lr": digits(lrs, 7)}
    skipping = [row for row, norm in enumerate(norms) if state.scales and not math.isfinite(norm)]
    if state.scales:
        skips = [int(row in skipping) for row in range(len(norms))]
        seen |= {"loss_scale": list(state.scales), "skipped": skips}
        for row, is_skipped in enumerate(skips):
            adapt_scale(training, state, row, is_finite=not is_skipped)
    faults.strike_in_place(Site.FIRST_MOMENT, state.tensors["first"])
    if "second" in state.tensors:
        faults.strike_in_place(Site.SECOND_MOMENT, state.tensors["second"])
    kept = state.clone() if skipping else None
    replicas.apply(_clipped(grad_HP, norms, training.clip_norm), lrs)
    if kept is not None:
        _undo(state, kept, skipping)
    faults.strike_in_place(Site.PARAMETER, state.tensors["parameters"])


def apply_all(training: RigTraining, state: State, grad_HP: torch.Tensor, lrs: Sequence[float]) -> None:
    """Every rank steps on its own gradient; where all of them are alike to the bit, one does for all."""
    state.steps = [count + 1 for count in state.steps]
    names = ("parameters", *(name for name in ("first", "second") if name in state.tensors))
    moved = {name: state.tensors[name] for name in names}
    is_one = len(set(lrs)) == len(set(state.steps)) == 1
    if not is_one or any(len(distinct(rows)) > 1 for rows in (grad_HP, *moved.values())):
        step(training, moved, grad_HP, lrs, state.steps)
        return
    step(training, {name: rows[:1] for name, rows in moved.items()}, grad_HP[:1], lrs[:1], state.steps[:1])
    for rows in moved.values():
        rows[1:] = rows[:1]


def _clipped(grad_HP: torch.Tensor, norms: Sequence[float], limit: float | None) -> torch.Tensor:
    """Scaled down to the limit where the norm is over it; a norm that is NaN makes all of it NaN."""
    if limit is None or all(norm <= limit for norm in norms):
        return grad_HP
    factors = [1.0 if norm <= limit else limit / norm for norm in norms]
    return grad_HP * torch.tensor(factors).view(-1, 1)


def _undo(state: State, kept: State, rows: Sequence[int]) -> None:
    """The ranks that skip are as they were; the loss scale has moved on."""
    for name, tensor in state.tensors.items():
        tensor[list(rows)] = kept.tensors[name][list(rows)]
    for row in rows:
        state.steps[row] = kept.steps[row]


def _strike_scale(state: State, faults: Faults) -> None:
    fault = faults.fault
    if fault is None or not state.scales or not faults.is_at(Site.LOSS_SCALE):
        return
    for row in faults.rows():
        bit = 24 if fault.bit is None else fault.bit  # 24: a factor of four either way
        state.scales[row] = flipped(state.scales[row], bit, fault.dtype)
