"""Says when a forward pass begins, so that heartbeats tell who hangs in one while the others wait for it.

Without it a rank that never comes back from its forward pass looks as if it were saving or evaluating after
the iteration before, which is borne for half an hour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from .readback import Readback
    from .watch import Watch


class ForwardMark:
    """Marks the place of the trainer at each forward pass of the model as it was given."""

    def __init__(self) -> None:
        self._handles: list[Any] = []

    def attach(self, watch: Watch) -> None:
        """Put a hook before the forward pass; one of a compiled model runs outside what is compiled."""

        def mark(*_: object) -> None:
            watch.probe.at("forward", watch.iteration)

        model: Any = watch.model
        for module in model if isinstance(model, list | tuple) else [model]:
            if isinstance(module, nn.Module):
                self._handles.append(module.register_forward_pre_hook(watch.guarded(self, mark)))

    def at_step(self, iteration: int, out: Readback, /) -> None:
        """Nothing is measured."""

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
