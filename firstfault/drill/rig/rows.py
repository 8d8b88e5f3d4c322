"""Parameters of several ranks as rows of one tensor, and what sees the values that ranks compute from them.

Axes: H ranks that hold a part, P parameters of one rank.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch.nn import functional

from .model import ALIGNMENT
from .observing import on_gradient
from .spec import Site

Tensor = torch.Tensor
Shapes = dict[str, tuple[int, ...]]


class Tap(Protocol):
    """Sees what the ranks of part number ``part`` hold at a place, one row a rank, and may change it."""

    def __call__(self, site: Site, place: str, value_H: Tensor, part: int) -> Tensor: ...


class Rows:
    """``flat_HP`` holds all parameters; the named ones are views of it, and leaves of the graph."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], ranks: int) -> None:
        total = sum(math.prod(shape) for shape in shapes.values())
        self.flat_HP = torch.zeros(ranks, -(-total // ALIGNMENT) * ALIGNMENT)
        self.named: dict[str, Tensor] = {}
        self.places: dict[str, slice] = {}
        start = 0
        for name, shape in shapes.items():
            place = slice(start, start + math.prod(shape))
            self.named[name] = self.flat_HP[:, place].view(ranks, *shape).detach().requires_grad_()
            self.places[name] = place
            start = place.stop

    def of(self, names: Sequence[str]) -> Tensor:
        """The columns of the named parameters."""
        return torch.cat([self.flat_HP[:, self.places[name]] for name in names], 1)


def gradients(objective: Tensor, parts: Sequence[Rows]) -> list[Tensor]:
    """The gradient of ``objective`` for all parameters of each of ``parts``, laid out as they are."""
    found = list(torch.autograd.grad([objective], [leaf for rows in parts for leaf in rows.named.values()]))
    flat = []
    for rows in parts:
        own, found = found[: len(rows.named)], found[len(rows.named) :]
        joined_HP = torch.cat([grad_H.flatten(1) for grad_H in own], 1)
        flat.append(functional.pad(joined_HP, (0, rows.flat_HP.shape[1] - joined_HP.shape[1])))
    return flat


def tap_gradient(value_H: Tensor, site: Site, place: str, part: int, tap: Tap) -> None:
    """Let ``tap`` see the gradient of a value; its rows are computed by the ranks of ``part``."""
    if value_H.requires_grad:
        on_gradient(value_H, lambda grad_H: tap(site, place, grad_H, part))
