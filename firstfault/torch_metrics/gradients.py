"""Norms, non-finite counts and sketches of the gradient before and after its reduction.

Axes: P tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch

from .arrivals import Arrivals
from .backward_end import BackwardEnd
from .config import is_due
from .counting import nonfinite_of
from .counting import norms as norms_of
from .reduce_scatter import ReduceScatters
from .sharding import holds_whole_model, local, values_of
from .sketching import rows_of, sketch
from .step_scalars import scale_of

if TYPE_CHECKING:
    from .readback import Readback
    from .watch import Watch


class Source(Protocol):
    """Where gradients are met on their way."""

    has_whole_result: bool
    """Whether what comes out of the reduction is the whole gradient on every rank."""

    def attach(self, watch: Watch, gradients: Gradients) -> None:
        """Put the hooks on."""

    def refresh(self) -> None:
        """Put them on parameters that the model got since."""

    def detach(self) -> None:
        """Take them off."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where each tensor of a gradient stands among the signs, and to which sketch it belongs."""

    rows_P: tuple[int, ...]
    groups_P: tuple[int, ...]

    @classmethod
    def of(cls, sizes_P: Sequence[int], groups: int) -> Places:
        """Tensors one after the other, in groups of about the same number of elements.

        >>> Places.of([5000, 1, 3000, 2000], groups=2)
        Places(rows_P=(0, 2, 3, 4), groups_P=(0, 0, 1, 1))
        """
        rows, found, row, seen, total = [], [], 0, 0, max(1, sum(sizes_P))
        for size in sizes_P:
            rows.append(row)
            found.append(min(groups - 1, groups * seen // total))
            row += rows_of(size)
            seen += size
        return cls(tuple(rows), tuple(found))


class Side:
    """What was seen of the gradient on one side of the reduction, in the iteration being computed."""

    def __init__(self) -> None:
        self.squares: torch.Tensor | None = None
        self.bad: torch.Tensor | None = None
        self.sketches: dict[int, torch.Tensor] = {}
        """By group."""

    def clear(self) -> None:
        """Forget all of it."""
        self.squares = self.bad = None
        self.sketches = {}

    def copy_to(self, other: Side) -> None:
        """Let the other side have seen the same: nothing lies between them."""
        other.squares, other.bad = self.squares, self.bad

    def add(self, tensors: Sequence[torch.Tensor], scale: torch.Tensor | float | None) -> None:
        """Take in the norms and counts of more tensors, without the loss scale."""
        norms_P = norms_of(tensors)
        self._add(norms_P, nonfinite_of(tensors, norms_P), scale)

    def take(self, arrivals: Arrivals, scale: torch.Tensor | float | None, places: Places) -> None:
        """Take in what was seen as the gradients arrived."""
        found = arrivals.norms_and_bad()
        if found is not None:
            self._add(*found, scale)
        for at in sorted(arrivals.sketches):
            self.add_sketch(places.groups_P[at], arrivals.sketches[at])

    def add_sketch(self, group: int, value: torch.Tensor) -> None:
        """Take in the sketch of one more tensor of a group."""
        self.sketches[group] = self.sketches[group] + value if group in self.sketches else value

    def _add(self, norms_P: torch.Tensor, bad: torch.Tensor, scale: torch.Tensor | float | None) -> None:
        squares = (norms_P if scale is None else norms_P / scale).square().sum()
        self.squares = squares if self.squares is None else self.squares + squares
        self.bad = bad if self.bad is None else self.bad + bad


class Gradients:
    """The gradient as this rank computed it, and as the reduction left it; before it is clipped.

    Where gradients accumulate, both are of the last backward pass. Norms are without the loss scale;
    sketches keep it, as what is reduced does.
    """

    name = "gradients"

    def __init__(self) -> None:
        self.before, self.after = Side(), Side()
        self._watch: Watch | None = None
        self._source: Source | None = None
        self._is_by_hand = False
        self._is_whole_model = True

    def attach(self, watch: Watch) -> None:
        self._watch = watch
        self._source = ReduceScatters() if ReduceScatters.fits(watch.model) else BackwardEnd()
        self._source.attach(watch, self)
        self._is_whole_model = holds_whole_model(watch.module, watch.mesh)
        if not self._is_whole_model:
            watch.leave_out("grad_norm", "each rank holds a part of the model: give the whole norm to step()")

    def at_step(self, _: int, out: Readback) -> None:
        assert self._watch is not None and self._source is not None, "attached before the first step"
        before, after = self.before, self.after
        if before.squares is None and self.wants(before):
            self._watch.leave_out("local_grad_norm", "no gradient was seen to arrive at a parameter")
        if before.squares is not None and before.bad is not None:
            out.put("local_grad_norm", before.squares.sqrt())
            out.put("nonfinite_grad", before.bad)
        if after.squares is not None and after.bad is not None:
            out.put("nonfinite_reduced", after.bad)
            if self._is_whole_model and (self._source.has_whole_result or self._is_by_hand):
                out.put("grad_norm", after.squares.sqrt())
        if before.sketches and after.sketches:
            for metric, side in (("grad_sketch_in", before), ("grad_sketch_out", after)):
                for group, value in side.sketches.items():
                    out.put(f"{metric}/{group}", value)
        before.clear()
        after.clear()
        if not self._is_by_hand:
            self._source.refresh()

    def detach(self) -> None:
        if self._source is not None:
            self._source.detach()
        self._source = self._watch = None
        self.before.clear()
        self.after.clear()

    def by_hand(self, side: Side, tensors: Sequence[torch.Tensor]) -> None:
        """Look at gradients that a trainer with a reduction of its own hands over."""
        if not self._is_by_hand and self._source is not None:
            self._source.detach()
        self._is_by_hand = True
        assert self._watch is not None, "asked for while attached only"
        sizes = [tensor.numel() for tensor in tensors]
        self.see(side, tensors, Places.of(sizes, self._watch.config.sketch_groups))

    def see(self, side: Side, tensors: Sequence[torch.Tensor | None], places: Places) -> None:
        """Look at the whole gradient, None for a tensor without one, instead of what was seen."""
        side.clear()
        held = [one for one in tensors if one is not None]
        if not held:
            return
        if self.wants(side):
            side.add([values_of(one) for one in held], self.scale())
        if self.wants_sketch():
            for one, row, group in zip(tensors, places.rows_P, places.groups_P, strict=True):
                # of a sparse one, whose elements have no place of their own, there is none on either side
                if one is not None and one.layout == torch.strided:
                    side.add_sketch(group, sketch(local(one), row))

    def wants(self, side: Side) -> bool:
        """Whether norms and counts of a side are due."""
        assert self._watch is not None, "asked for while attached only"
        config = self._watch.config
        return is_due(config.local_grad if side is self.before else config.global_grad, self._watch.iteration)

    def wants_sketch(self) -> bool:
        """Whether sketches are due."""
        assert self._watch is not None, "asked for while attached only"
        return is_due(self._watch.config.grad_sketch, self._watch.iteration)

    def scale(self) -> torch.Tensor | float | None:
        """The loss scale that gradients have now."""
        return None if self._watch is None else scale_of(self._watch.scaler)
