"""What ranks of several parts see of themselves: columns of which each part fills its own ranks.

Axes: H ranks that hold a part, P its parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...telemetry import Value
from ..checksum import row_checksums
from ..sketch import row_sketches
from . import observing
from .observing import Columns, digits
from .parts import Part
from .training import Watch

Said = dict[str, dict[int, Value]]
"""A metric's values by rank; a rank that is not in it does not report the metric."""


def put(said: Said, metric: str, ranks: Sequence[int], values: Sequence[Value | None]) -> None:
    """What these ranks report."""
    told = {rank: value for rank, value in zip(ranks, values, strict=True) if value is not None}
    said.setdefault(metric, {}).update(told)


def add(said: Said, metric: str, ranks: Sequence[int], counts: Sequence[int]) -> None:
    """The same, added to what they counted in other parts."""
    before = said.get(metric, {})
    put(said, metric, ranks, [before.get(rank, 0) + n for rank, n in zip(ranks, counts, strict=True)])


def columns_of(said: Said, ranks: int) -> Columns:
    """The same by metric, for all ranks."""
    return {metric: [by_rank.get(rank) for rank in range(ranks)] for metric, by_rank in said.items()}


def at_activations(watch: Watch, iteration: int, part: Part, is_last: bool, said: Said) -> None:
    """Counts of activations, and the norms of their gradients, over the microbatches."""
    if not part.looks or not part.looks[0].is_used:
        return
    counts = [look.counts() for look in part.looks]
    for metric in ("nonfinite_act", "nonfinite_logits") if is_last else ("nonfinite_act",):
        for one in counts:
            add(said, metric, part.ranks, one[metric])
    if watch.is_due("act_grad_norm", iteration):
        for metric, norms in observing.act_grad_norms(part.looks, ()).items():
            put(said, metric, part.ranks, norms)


def at_local(
    watch: Watch, iteration: int, parts: Sequence[Part], local: Sequence[torch.Tensor], said: Said
) -> None:
    """Norms, counts and sketches of the gradients as they enter the reduction."""
    for part, grad_HP in zip(parts, local, strict=True):
        wide_HP = observing.wide(grad_HP)
        squares = observing.squares(wide_HP)
        put(said, part.named("local_grad_norm"), part.ranks, digits([math.sqrt(one) for one in squares], 7))
        put(said, part.named("grad_absmax"), part.ranks, digits(observing.absmax(wide_HP), 7))
        add(said, "nonfinite_grad", part.ranks, observing.nonfinite(grad_HP, squares))
        if watch.is_due("grad_sketch", iteration):
            put(said, part.named("grad_sketch_in"), part.ranks, digits(row_sketches(wide_HP), 9))


def at_reduced(
    watch: Watch, iteration: int, parts: Sequence[Part], reduced: Sequence[torch.Tensor], said: Said
) -> None:
    """What each rank sees of the gradients that it got."""
    for part, grad_HP in zip(parts, reduced, strict=True):
        add(said, "nonfinite_reduced", part.ranks, observing.nonfinite(grad_HP))
        if watch.is_due("grad_sketch", iteration):
            sketches = row_sketches(observing.wide(grad_HP))
            put(said, part.named("grad_sketch_out"), part.ranks, digits(sketches, 9))
        if watch.is_due("grad_checksum", iteration):
            put(said, part.named("grad_checksum"), part.ranks, row_checksums(grad_HP))
