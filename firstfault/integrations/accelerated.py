"""Accelerate: one line behind ``accelerator.prepare``, and the loop stays as it is.

model, optimizer, data = accelerator.prepare(model, optimizer, data)
firstfault.accelerate_probe(accelerator, model, optimizer, sink="http://host:8080")
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ..probe import Probe
from .following import Follower, harmless


def accelerate_probe(
    accelerator: Any,
    model: Any,
    optimizer: Any,
    run: str | None = None,
    sink: str | None = None,
    *,
    watch: Mapping[str, Any] | None = None,
    **options: Any,
) -> Probe:
    """Follow a loop of Accelerate: losses as they go into ``backward``, iterations as ``optimizer`` steps.

    ``model`` and ``optimizer`` are the prepared ones; ``options`` are those of `Probe`, ``watch`` of
    `Probe.watch`. The probe is closed by its `close`, or when the interpreter exits.
    """
    follower = Follower({"run": run, "sink": sink, **options}, watch)
    probe = follower.begin(model, optimizer, scaler=getattr(accelerator, "scaler", None))
    if probe.is_on:
        _Hooks(follower, accelerator).put_around(optimizer)
    return probe


class _Hooks:
    """Goes around ``accelerator.backward`` and ``optimizer.step``."""

    def __init__(self, follower: Follower, accelerator: Any) -> None:
        self.follower, self._accelerator = follower, accelerator

    def put_around(self, optimizer: Any) -> None:
        """From now on each call tells the probe; what the calls do and return stays."""
        backward, step = self._accelerator.backward, optimizer.step

        @functools.wraps(backward)
        def backward_with_probe(loss: Any, *args: Any, **kwargs: Any) -> Any:
            self.take(loss)
            return backward(loss, *args, **kwargs)

        @functools.wraps(step)
        def step_with_probe(*args: Any, **kwargs: Any) -> Any:
            result = step(*args, **kwargs)
            self.stepped()
            return result

        self._accelerator.backward = backward_with_probe
        optimizer.step = step_with_probe

    @harmless
    def take(self, loss: Any) -> None:
        """The loss of a microbatch."""
        self.follower.losses.add(loss)

    @harmless
    def stepped(self) -> None:
        """The optimizer was asked to step, which it does at the last microbatch alone."""
        if self._accelerator.sync_gradients and self.follower.probe is not None:
            self.follower.probe.step(self.follower.losses.mean())
