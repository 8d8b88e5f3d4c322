"""Device scalars on their way to the host, without a wait on the training stream.

All scalars of a step are packed into one vector on the device and copied into pinned memory on a side
stream, one copy a step. An event behind the copy is polled at later steps, and what has arrived is
logged under the iteration it belongs to: order and delay of arrival change no record. Devices without
streams (the CPU) are read at once.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..telemetry import is_checksum

Reported = float | int | str | torch.Tensor
"""A number, text, or a scalar on a device; under a ``*_checksum`` name an integer of 64 bits."""
Log = Callable[..., None]

_MASK_64 = (1 << 64) - 1
_POLL_S = 0.001
"""Seconds between looks at the last copies when a watch closes."""


@dataclass(slots=True)
class _Step:
    """What one iteration has reported, until it is packed."""

    iteration: int
    given: dict[str, Reported] = field(default_factory=dict)
    """What the trainer itself reports."""
    host: dict[int | None, dict[str, float | str]] = field(default_factory=dict)
    """By microbatch; None is the whole iteration."""
    device: dict[torch.device, list[tuple[int | None, str, torch.Tensor]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Arriving:
    """A vector on its way. ``names`` has its entries in order, each with its microbatch."""

    iteration: int
    names: list[tuple[int | None, str]]
    pinned: torch.Tensor
    event: Any
    host: dict[int | None, dict[str, float | str]]


class Readback:
    """Takes what signals report of a step and logs it once it is on the host."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._step: _Step | None = None
        self._arriving: deque[_Arriving] = deque()
        self._streams: dict[torch.device, Any] = {}
        self._free: dict[int, list[torch.Tensor]] = {}

    def begin(self, iteration: int) -> None:
        """Open a step."""
        self._step = _Step(iteration)

    def give(self, name: str, value: Reported) -> None:
        """Report what the trainer says itself: it wins over what is measured here."""
        self._take(name, value, None)
        assert self._step is not None, "values belong to a step"
        self._step.given[name] = value

    def given(self, name: str) -> Reported | None:
        """What the trainer reports under a name at this step."""
        return None if self._step is None else self._step.given.get(name)

    def wants(self, name: str) -> bool:
        """Whether a value of the whole iteration would be kept: not where the trainer gives its own."""
        return self._step is not None and name not in self._step.given

    def put(self, name: str, value: Reported, *, microbatch: int | None = None) -> None:
        """Report one value of the open step.

        A tensor must have one element; it is read later, and not kept once the step is flushed.
        """
        if microbatch is not None or self.wants(name):
            self._take(name, value, microbatch)

    def flush(self) -> None:
        """Close the step: what is on the host is logged, what is not is sent on its way."""
        step, self._step = self._step, None
        if step is None:
            return
        for device, parts in step.device.items():
            names = [(microbatch, name) for microbatch, name, _ in parts]
            packed = torch.cat([_as_double(name, tensor) for _, name, tensor in parts])
            if not _has_streams(device):
                _sort_in(step.host, names, packed)
                continue
            pinned, event = self._copy(device, packed)
            self._arriving.append(_Arriving(step.iteration, names, pinned, event, step.host))
            step.host = {}  # goes with the first copy, in one record
        self._say(step.iteration, step.host)

    def drain(self) -> None:
        """Log what has arrived since. Never waits."""
        while self._arriving and self._arriving[0].event.query():
            self._land(self._arriving.popleft())

    def close(self, timeout_s: float) -> int:
        """Wait for what is still on its way; gives how many steps were lost."""
        end = time.monotonic() + timeout_s
        self.drain()
        while self._arriving and time.monotonic() < end:
            time.sleep(_POLL_S)
            self.drain()
        lost = len(self._arriving)
        self._arriving.clear()
        return lost

    def _take(self, name: str, value: Reported, microbatch: int | None) -> None:
        assert self._step is not None, "values belong to a step"
        if not isinstance(value, torch.Tensor):
            host = self._step.host.setdefault(microbatch, {})
            host[name] = value if isinstance(value, str) else _number(name, value)
        elif value.numel() == 1:
            held = value.detach()
            self._step.device.setdefault(held.device, []).append((microbatch, name, held))
        else:
            raise ValueError(f"{name} must be one number, got a tensor of {value.numel()} elements")

    def _copy(self, device: torch.device, packed: torch.Tensor) -> tuple[torch.Tensor, Any]:
        module = torch.get_device_module(device)
        side = self._streams.get(device)
        if side is None:
            side = self._streams[device] = module.Stream(device)
        spare = self._free.get(packed.numel())
        pinned = spare.pop() if spare else torch.empty(packed.numel(), dtype=packed.dtype, pin_memory=True)
        side.wait_stream(module.current_stream(device))
        with module.stream(side):
            pinned.copy_(packed, non_blocking=True)
            event = module.Event()
            event.record(side)
        packed.record_stream(side)
        return pinned, event

    def _land(self, one: _Arriving) -> None:
        _sort_in(one.host, one.names, one.pinned)
        self._free.setdefault(one.pinned.numel(), []).append(one.pinned)
        self._say(one.iteration, one.host)

    def _say(self, iteration: int, values: dict[int | None, dict[str, float | str]]) -> None:
        for microbatch, metrics in values.items():
            if microbatch is None:
                self._log(iteration=iteration, **metrics)
            else:
                self._log(iteration=iteration, microbatch=microbatch, **metrics)


def _has_streams(device: torch.device) -> bool:
    """Whether copies from this device can be waited for by an event (CUDA, ROCm, XPU)."""
    return device.type in ("cuda", "xpu")


def _as_double(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """A vector of one double; of a checksum its bits."""
    flat = tensor.reshape(-1)
    return flat.to(torch.int64).view(torch.float64) if is_checksum(name) else flat.to(torch.float64)


def _sort_in(
    host: dict[int | None, dict[str, float | str]],
    names: Sequence[tuple[int | None, str]],
    packed: torch.Tensor,
) -> None:
    doubles: list[float] = packed.tolist()
    words: list[int] = packed.view(torch.int64).tolist()
    for (microbatch, name), number, word in zip(names, doubles, words, strict=True):
        value = f"{word & _MASK_64:016x}" if is_checksum(name) else number
        host.setdefault(microbatch, {})[name] = value


def _number(name: str, value: float) -> float | str:
    return f"{int(value) & _MASK_64:016x}" if is_checksum(name) else value
