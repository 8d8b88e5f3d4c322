"""What the model is given: values that are not finite, a checksum of it, and how many tokens count."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from .config import is_due
from .counting import nonfinite
from .hashing import checksum
from .passes import is_training_pass, tensors_in
from .sharding import axes_of

if TYPE_CHECKING:
    from .readback import Readback
    from .watch import Watch

IGNORED = -100
"""The label that a cross entropy leaves out, by the convention of torch."""
MOST_HASHES = 1024
"""Batches whose checksums are kept apart: a loop that never comes to a step must not fill the memory."""


class Inputs:
    """Looks at the arguments of the model in training; over microbatches they add up.

    The checksum tells ranks apart that must read different data, and those that must read the same. Stages
    of a pipeline are given different things, so that there is none with a pipeline.
    """

    name = "inputs"

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self._handle: Any = None
        self._bad: torch.Tensor | None = None
        self._hashes: list[torch.Tensor] = []
        self._tokens: torch.Tensor | int | None = None
        self._is_hashed = True

    def attach(self, watch: Watch) -> None:
        self._watch = watch
        self._is_hashed = not _has_pipeline(watch)
        if not self._is_hashed:
            watch.leave_out("data_checksum", "stages of a pipeline are given different inputs")
        hook = watch.guarded(self, self._given)
        self._handle = watch.model.register_forward_pre_hook(hook, with_kwargs=True)

    def at_step(self, iteration: int, out: Readback) -> None:
        if self._watch is not None and self._bad is None and is_due(self._watch.config.inputs, iteration):
            self._watch.leave_out("inputs", "the model was not called in training by this step, or compiled")
        if self._bad is not None:
            out.put("nonfinite_input", self._bad)
        if self._hashes:
            one = self._hashes[0]
            out.put("data_checksum", one if len(self._hashes) == 1 else checksum(torch.stack(self._hashes)))
        if self._tokens is not None:
            out.put("tokens", self._tokens)
        self._clear()

    def detach(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        self._handle = self._watch = None
        self._clear()

    def _clear(self) -> None:
        self._bad, self._hashes, self._tokens = None, [], None

    def _given(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if self._watch is None or not is_training_pass(model):
            return
        if not is_due(self._watch.config.inputs, self._watch.iteration):
            return
        tensors = list(tensors_in((args, kwargs)))
        bad = nonfinite(tensors)
        self._bad = bad if self._bad is None else self._bad + bad
        if self._is_hashed and tensors:
            self._hashes.append(checksum(tensors))
            if len(self._hashes) == MOST_HASHES:
                self._hashes = [checksum(torch.stack(self._hashes))]
        tokens = tokens_of(args, kwargs)
        if tokens is not None:
            self._tokens = tokens if self._tokens is None else self._tokens + tokens


def tokens_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> torch.Tensor | int | None:
    """How many tokens weigh in the loss: labels that are not ignored, else what the mask leaves, else all.

    None where the model is given no indices of two dimensions.

    >>> tokens_of((torch.zeros(2, 8, dtype=torch.int64),), {})
    16
    """
    named = next((one for one in args if isinstance(one, Mapping)), kwargs)
    labels, mask = named.get("labels"), named.get("attention_mask")
    if isinstance(labels, torch.Tensor) and not labels.is_floating_point():
        return (labels != IGNORED).sum()
    if isinstance(mask, torch.Tensor) and mask.dim() == 2:
        return (mask != 0).sum()
    ids = (one for one in tensors_in((args, kwargs)) if one.dtype in (torch.int64, torch.int32))
    return next((one.numel() for one in ids if one.dim() == 2), None)


def _has_pipeline(watch: Watch) -> bool:
    from ..integrations.layouts import declared_layout

    mesh = declared_layout(watch.model, watch.optimizer, watch.mesh).get("mesh")
    return axes_of(mesh).get("pp", 1) > 1
