"""The batches of a canary: a fixed one that all ranks share, and others drawn from it by the iteration.

The fixed batch is the example that was given, or the first batch that rank 0 trains on; the others fetch it
from the store at which the ranks met, since a collective in a trainer's stead could wait for ever.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from .canary_pass import Batch
from .canary_state import CanaryError

MAX_BATCH_BYTES = 64 << 20
"""Size of a batch that is shared through the store: larger ones belong into a file of the trainer's own."""
_made = itertools.count()
"""Canaries made by this process: all ranks make theirs in the same order."""
WAIT_S = 30.0
"""Longest wait for the batch, once, at the first canary: rank 0 left it there many iterations before."""
_LEAST_VALUES = 3
"""Different values from which on integers are drawn anew: two are a mask, and a mask of nothing gives NaN."""


class SharedBatch:
    """The fixed batch: left in the store by rank 0, or the first of a pipeline stage, for the others."""

    def __init__(self, store: Any, device: torch.device, stage: Sequence[int] = ()) -> None:
        self.batch: Batch | None = None
        self.why_none = "no batch was seen: the model was never called in training"
        self._store, self._device = store, device
        self._leader = next(iter(stage), 0)
        self._rank, self._ranks = self._leader, 1
        self._key = f"firstfault/canary/{next(_made)}/{self._leader}"
        self._place = f"{self._key}/batch"
        self._is_checked = store is None
        if store is not None:
            self._rank = torch.distributed.get_rank()
            self._ranks = len(stage) or torch.distributed.get_world_size()
            store.add(f"{self._key}/ranks", 1)

    def offer(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Take a copy of the arguments of a call, on the rank that decides.

        Raises:
            CanaryError: they are too large.
        """
        if self.batch is not None or self._rank != self._leader:
            return
        plain = _mapped(Batch(args, dict(kwargs)), lambda one: one.detach().cpu().clone())
        if self._store is not None:
            self._store.set(self._place, _packed(plain))
        self.batch = self._placed(plain)

    def wanted(self) -> Batch | None:
        """The batch, fetched where it is not here yet; None where there is none (`why_none`).

        All ranks must have come to watch: a canary may turn out to be made of collectives.
        """
        if not self._is_checked:
            came = self._store.add(f"{self._key}/ranks", 0)
            if came < self._ranks:
                self.why_none = f"a canary needs all ranks to watch, {came} of {self._ranks} do"
                return None
            self._is_checked = True
        if self.batch is None and self._rank != self._leader:
            try:
                self._store.wait([self._place], timedelta(seconds=WAIT_S))
            except RuntimeError as error:  # a timeout, or a store that is gone
                self.why_none = f"rank {self._leader} left no batch: {error}"
                return None
            self.batch = self._placed(_unpacked(self._store.get(self._place)))
        return self.batch

    def _placed(self, batch: Batch) -> Batch:
        return _mapped(batch, lambda one: one.to(self._device))


def seeded(batch: Batch, seed: int) -> Batch:
    """A batch like ``batch``, drawn from ``seed``, the same on every rank.

    Numbers get noise of their own spread. Integers of two or more axes (tokens, labels, positions) are drawn
    from the values that are there, and so stay valid; masks, lengths and offsets stay as they are.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(one: torch.Tensor) -> torch.Tensor:
        if one.is_floating_point() and one.numel() > 1:
            noise = torch.randn(one.shape, generator=generator).to(one.device, one.dtype)
            return one + noise * one.float().std().to(one.dtype)
        if one.dtype != torch.int64 or one.dim() < 2:
            return one
        values = one.cpu().view(-1) if one.is_contiguous() else one.cpu().reshape(-1)
        if len(torch.unique(values)) < _LEAST_VALUES:
            return one
        chosen = torch.randint(len(values), one.shape, generator=generator)
        return values[chosen].to(one.device)

    return _mapped(batch, draw)


def with_gradients(batch: Batch) -> Batch:
    """The batch with numbers that get a gradient, as what a stage of a pipeline is handed does."""
    return _mapped(batch, lambda one: one.clone().requires_grad_() if one.is_floating_point() else one)


def _mapped(batch: Batch, change: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
    def walk(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, Mapping):
            return {name: walk(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(walk(one) for one in value)
        return value

    return Batch(walk(tuple(batch.args)), walk(batch.kwargs))


def _packed(batch: Batch) -> bytes:
    buffer = io.BytesIO()
    torch.save((batch.args, dict(batch.kwargs)), buffer)
    if buffer.tell() > MAX_BATCH_BYTES:
        raise CanaryError(f"an example batch must be at most {MAX_BATCH_BYTES} bytes, got {buffer.tell()}")
    return buffer.getvalue()


def _unpacked(packed: bytes) -> Batch:
    args, kwargs = torch.load(io.BytesIO(packed), weights_only=True)
    return Batch(tuple(args), kwargs)
