"""What a forward pass is given and gives: tensors in nested arguments, and whether the pass is training's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

_DEPTH = 8
"""Levels of nesting that are looked into: batches have three or four, and one may hold itself."""


def is_training_pass(module: nn.Module) -> bool:
    """Whether a pass of the module is one that gradients come from: no evaluation, no inference."""
    return module.training and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def is_backward_running() -> bool:
    """Whether this thread is inside a backward pass, as recomputed activations are."""
    return torch._C._current_graph_task_id() != -1


def tensors_in(value: Any, depth: int = _DEPTH) -> Iterator[torch.Tensor]:
    """All tensors in nested tuples, lists, mappings and dataclasses, in their order.

    >>> [one.item() for one in tensors_in([torch.tensor(1), {"ids": (torch.tensor(2), None)}])]
    [1, 2]
    """
    if isinstance(value, torch.Tensor):
        yield value
    elif depth > 0:
        for part in _parts(value):
            yield from tensors_in(part, depth - 1)


def output_of(value: Any) -> torch.Tensor | None:
    """The tensor that a layer hands on: the first one of floating point with a dimension, if any."""
    return next((one for one in tensors_in(value) if one.is_floating_point() and one.dim() > 0), None)


def logits_of(value: Any) -> torch.Tensor | None:
    """What a model's output names ``logits``, else its first tensor of two dimensions and more."""
    named = value.get("logits") if isinstance(value, Mapping) else getattr(value, "logits", None)
    if isinstance(named, torch.Tensor):
        return named
    return next((one for one in tensors_in(value) if one.is_floating_point() and one.dim() > 1), None)


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, tuple | list):
        yield from value
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield getattr(value, name, None)
