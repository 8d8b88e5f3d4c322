"""Gradients as they arrive at their parameters: looked at there, where later they are something else.

Whoever reduces in place, or at a time that nobody knows, leaves no other moment. A gradient that arrives
again (microbatches, recomputed segments, which are passes of their own) takes the place of what it was.

Axes: P tensors.
"""

from __future__ import annotations

import torch

from .counting import nonfinite_of, norms
from .sketching import sketch


class Arrivals:
    """What is known of the gradient at each place of a model, as it arrived last in this iteration."""

    def __init__(self) -> None:
        self.sketches: dict[int, torch.Tensor] = {}
        """By place."""
        self._norms: dict[int, torch.Tensor] = {}
        self._bad: dict[int, torch.Tensor] = {}

    @property
    def places(self) -> set[int]:
        """Where a gradient arrived."""
        return {*self._norms, *self.sketches}

    def add(self, at: int, values: torch.Tensor) -> None:
        """Take in the norm of a gradient, and how many values of it are not finite."""
        norm_P = norms([values])
        self._norms[at], self._bad[at] = norm_P[0], nonfinite_of([values], norm_P)

    def add_sketch(self, at: int, values: torch.Tensor, row: int) -> None:
        """Take in the sketch of a gradient whose first element stands at the beginning of ``row``."""
        self.sketches[at] = sketch(values, row)

    def forget(self, places: set[int]) -> None:
        """Nothing arrived there."""
        for at in places:
            for found in (self._norms, self._bad, self.sketches):
                found.pop(at, None)

    def clear(self) -> None:
        """Nothing arrived anywhere."""
        self.forget(self.places)

    def norms_and_bad(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The norm of each gradient in the order of places, and how many values are not finite."""
        if not self._norms:
            return None
        first = self._norms[min(self._norms)].device
        norms_P, bad_P = (
            torch.stack([found[at].to(first) for at in sorted(found)]) for found in (self._norms, self._bad)
        )
        return norms_P, bad_P.sum()
