"""Several optimizers of one model, as Muon for its matrices beside AdamW for the rest: watched as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle


class Optimizers:
    """What signals ask of an optimizer, asked of each in turn; its rate is that of the first."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = list(optimizers)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all, in the order in which the optimizers were given."""
        return [group for each in self._optimizers for group in each.param_groups]

    @property
    def state(self) -> Mapping[Any, Any]:
        """What each keeps of its parameters; a copy: to ask one for what it lacks puts it there."""
        return {parameter: kept for each in self._optimizers for parameter, kept in each.state.items()}

    def register_step_post_hook(self, hook: Callable[..., None]) -> Handles:
        """Have ``hook`` called behind each step of each."""
        return Handles([each.register_step_post_hook(hook) for each in self._optimizers])


class Handles:
    """Several hooks that are taken away together."""

    def __init__(self, handles: Sequence[RemovableHandle]) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Take all of them away."""
        for each in self._handles:
            each.remove()


def as_one(optimizer: Any) -> Any:
    """The optimizer, or several in a list or tuple as one."""
    return Optimizers(optimizer) if isinstance(optimizer, list | tuple) else optimizer
