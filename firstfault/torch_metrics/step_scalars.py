"""What the trainer's own objects say at a step: loss, learning rate, loss scale, skipped steps, time."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import torch

from .config import is_due

if TYPE_CHECKING:
    from .readback import Readback
    from .watch import Watch


class Schedule:
    """Learning rate, loss scale, skipped steps and step time. Nothing here waits for a device.

    A loss scaler skips the optimizer's step, which a hook behind the step notices; one that leaves the
    skipping to a fused optimizer shows it by a scale that fell. The scale reported is the one that the
    gradients came with, else that of the last boundary.
    """

    name = "schedule"

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self._hook: Any = None
        self._steps = 0
        self._scale: torch.Tensor | float | None = None
        self._began_s: float | None = None

    def attach(self, watch: Watch) -> None:
        self._watch = watch
        self._scale = scale_of(watch.scaler)
        self._began_s = time.perf_counter()
        if watch.optimizer is not None and hasattr(watch.optimizer, "register_step_post_hook"):
            self._hook = watch.optimizer.register_step_post_hook(watch.guarded(self, self._stepped))

    def at_step(self, iteration: int, out: Readback) -> None:
        assert self._watch is not None, "attached before the first step"
        now_s, before = time.perf_counter(), self._watch.loss_scale
        before = self._scale if before is None else before
        self._scale, self._watch.loss_scale = scale_of(self._watch.scaler), None
        if is_due(self._watch.config.schedule, iteration):
            if self._began_s is not None:
                out.put("step_time_s", now_s - self._began_s)
            self._put_rate(out)
            self._put_scale(out, before)
        self._steps, self._began_s = 0, now_s

    def detach(self) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._hook = self._watch = self._scale = None

    def _put_rate(self, out: Readback) -> None:
        assert self._watch is not None, "attached before the first step"
        groups = [] if self._watch.optimizer is None else self._watch.optimizer.param_groups
        if groups and "lr" in groups[0]:
            out.put("lr", groups[0]["lr"])

    def _put_scale(self, out: Readback, before: torch.Tensor | float | None) -> None:
        if before is not None:
            out.put("loss_scale", before)
        if self._hook is None:
            return
        if self._steps == 0:
            out.put("skipped", 1)
        elif isinstance(before, torch.Tensor) and isinstance(self._scale, torch.Tensor):
            out.put("skipped", self._scale < before)
        else:
            out.put("skipped", 0)

    def _stepped(self, *_: object) -> None:
        self._steps += 1


class Loss:
    """Whether the loss is finite; the loss itself is what the trainer gives to the step."""

    name = "loss"

    def __init__(self) -> None:
        self._watch: Watch | None = None

    def attach(self, watch: Watch) -> None:
        self._watch = watch

    def at_step(self, iteration: int, out: Readback) -> None:
        assert self._watch is not None, "attached before the first step"
        loss = out.given("loss")
        if loss is None or not is_due(self._watch.config.loss, iteration):
            return
        if isinstance(loss, torch.Tensor):
            out.put("nonfinite_loss", ~torch.isfinite(loss.detach()))
        elif isinstance(loss, int | float):
            out.put("nonfinite_loss", int(not -_INF < loss < _INF))

    def detach(self) -> None:
        self._watch = None


def scale_of(scaler: Any) -> torch.Tensor | float | None:
    """The loss scale now, as a copy; ``get_scale`` would wait for the device."""
    if scaler is None or not getattr(scaler, "is_enabled", lambda: True)():
        return None
    held = getattr(scaler, "_scale", None)
    if isinstance(held, torch.Tensor):
        return held.detach().clone()
    initial = getattr(scaler, "_init_scale", None)
    return float(initial) if isinstance(initial, int | float) else None


_INF = float("inf")
