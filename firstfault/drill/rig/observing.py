"""What the ranks see of themselves: norms, counts and checksums, one value a rank.

Sums are made in double precision along each rank's own row, so that no rank's bits depend on the others.

Axes: H ranks held by this process, P parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from ...telemetry import Checksum, Value
from ..checksum import row_checksums
from .reading import Shards
from .spec import Job
from .training import Watch

Columns = dict[str, Sequence[Value | None]]
"""A metric's values, one for each rank held here; None where a rank does not report it."""
Rows = NDArray[np.float64]
T = TypeVar("T")


def wide(values: torch.Tensor) -> Rows:
    """Each rank's values in double precision, (H, n)."""
    return values.detach().numpy().reshape(len(values), -1).astype(np.float64)


def squares(rows_Hn: Rows) -> list[float]:
    """The sum of squares of each row; not finite exactly where a value is not."""
    with np.errstate(over="ignore", invalid="ignore"):
        sums: list[float] = np.sum(rows_Hn * rows_Hn, axis=1).tolist()
        return sums


def norms(rows_Hn: Rows) -> list[float]:
    """The L2 norm of each row."""
    return [float(np.sqrt(value)) for value in squares(rows_Hn)]


def absmax(rows_Hn: Rows) -> list[float]:
    """The largest magnitude of each row; NaN where one is in it."""
    greatest: list[float] = np.maximum(rows_Hn.max(axis=1), -rows_Hn.min(axis=1)).tolist()
    return greatest


def nonfinite(values: torch.Tensor, sums: Sequence[float] | None = None) -> list[int]:
    """How many values of each rank are not finite; ``sums`` that are all finite say none."""
    if sums is not None and np.isfinite(sums).all():
        return [0] * len(values)
    counts: list[int] = (~torch.isfinite(values.detach())).flatten(1).sum(1).tolist()
    return counts


def digits(values: Sequence[float], count: int) -> list[float]:
    """The values at float32 precision or a little less, so that a log line stays short."""
    return [float(f"{value:.{count}g}") for value in values]


def distinct(values: torch.Tensor) -> torch.Tensor:
    """The first row alone where all rows hold the same bits, as replicas do; else all of them."""
    bits = values.detach().view(torch.int32)
    return values[:1] if len(values) > 1 and bool((bits[1:] == bits[:1]).all()) else values


def for_each(seen: Sequence[T], rows: int) -> list[T]:
    """What was seen of `distinct` rows, for each of the rows."""
    return list(seen) * (rows // len(seen))


def due_checksums(watch: Watch, iteration: int, tensors: Mapping[str, torch.Tensor]) -> Columns:
    """Checksums of parameters and moments where they are due."""
    seen: Columns = {}
    if watch.is_due("param_checksum", iteration):
        seen["param_checksum"] = checksums(tensors["parameters"])
    if watch.is_due("optim_checksum", iteration):
        moments = [tensors[name] for name in ("first", "second") if name in tensors]
        seen["optim_checksum"] = checksums(torch.cat(moments, dim=1))
    return seen


def checksums(values: torch.Tensor) -> list[Checksum]:
    """The hash of every row; replicas that agree are hashed once."""
    return for_each(row_checksums(distinct(values)), len(values))


class PassLook:
    """What is seen during one forward and backward pass."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._sums: list[tuple[str, torch.Tensor, torch.Tensor]] = []
        self.act_grads: dict[str, list[float]] = {}
        """Sum of squares of the gradient at each block's input, per rank."""
        self.outputs: dict[str, torch.Tensor] = {}
        """What went into each block; what came out of the last is under ``end``."""
        self.recomputed: dict[str, torch.Tensor] = {}
        """Outputs that the backward pass computed a second time."""

    def see(self, place: str, value: torch.Tensor) -> None:
        """Look at an activation."""
        held = value.detach()
        self._sums.append((place, held, held.flatten(1).sum(1)))

    @property
    def is_used(self) -> bool:
        """Whether it saw anything."""
        return bool(self._sums)

    def watch_gradient(self, place: str, value: torch.Tensor) -> None:
        """Look at the gradient that will arrive at an activation."""
        on_gradient(value, lambda grad: self.see_gradient(place, grad))

    def see_gradient(self, place: str, grad: torch.Tensor) -> None:
        """Look at the gradient of an activation."""
        self.act_grads[place] = squares(wide(grad))

    def counts(self) -> dict[str, list[int]]:
        """Non-finite activations and logits of each rank."""
        totals = {"nonfinite_act": [0] * self._ranks, "nonfinite_logits": [0] * self._ranks}
        # a finite sum has only finite terms: the counting is for the rare case
        if not bool(torch.isfinite(torch.stack([sums for _, _, sums in self._sums])).all()):
            for place, held, _ in self._sums:
                name = "nonfinite_logits" if place == "logits" else "nonfinite_act"
                found = nonfinite(held)
                totals[name] = [had + more for had, more in zip(totals[name], found, strict=True)]
        return totals


def pass_columns(
    job: Job, losses: Sequence[torch.Tensor], looks: Sequence[PassLook], shards: Sequence[Shards]
) -> Columns:
    """Loss, tokens and counts over the microbatches of one iteration."""
    count = len(losses)
    mean = [sum(parts) / count for parts in zip(*(loss_H.tolist() for loss_H in losses), strict=True)]
    inputs = [
        nonfinite(shard.features_HBLF, shard.features_HBLF.flatten(1).sum(1).tolist()) for shard in shards
    ]
    seen: Columns = {
        "loss": digits(mean, 7),
        "tokens": [count * job.model.samples * job.model.length] * len(mean),
        "nonfinite_input": [sum(parts) for parts in zip(*inputs, strict=True)],
        "nonfinite_loss": [int(not math.isfinite(loss)) for loss in mean],
    }
    counts = [look.counts() for look in looks]
    for name in counts[0]:
        seen[name] = [sum(parts) for parts in zip(*(one[name] for one in counts), strict=True)]
    return seen


def act_grad_norms(looks: Sequence[PassLook], scales: Sequence[float]) -> Columns:
    """The norm of the gradient at each block's input, over the microbatches of one iteration."""
    seen: Columns = {}
    for place in looks[0].act_grads:
        totals = [
            math.sqrt(sum(parts)) for parts in zip(*(look.act_grads[place] for look in looks), strict=True)
        ]
        if scales:
            totals = [total / scale for total, scale in zip(totals, scales, strict=True)]
        seen[f"act_grad_norm/{place}"] = digits(totals, 7)
    return seen


def on_gradient(value: torch.Tensor, hook: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
    """Call ``hook`` with the gradient that arrives at ``value``; what it returns takes its place."""
    value.register_hook(hook)  # type: ignore[no-untyped-call]  # torch does not say its type


def output_checksums(outputs: Sequence[torch.Tensor]) -> list[Checksum]:
    """One hash a rank over several activations."""
    return row_checksums(torch.cat([output.detach().flatten(1) for output in outputs], dim=1))
