"""Values as the trainer has them, taken at once: what is logged must not change while it waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

MAX_METRICS = 8192
"""Metrics of one record: twice the names that the service takes of a run, in 10 ms of the training thread."""
_PLAIN = frozenset({float, int, bool, str, type(None)})


class OnDevice(ValueError):
    """A tensor on a device was logged: reading it would make the training wait for the device."""


def captured(value: object) -> object:
    """``value`` as a plain number or text.

    Scalars of numpy and torch are read; a tensor on a device is not, since that waits for the device.

    Raises:
        OnDevice: a tensor on a device.
        Exception: whatever the value's own methods raise.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return str(value)
    device = getattr(value, "device", None)
    if getattr(device, "type", "cpu") not in ("cpu", None):
        raise OnDevice(f"a tensor on {device} is only read by probe.watch, which does not wait for it")
    item = getattr(value, "item", None)
    return item() if item is not None else float(value)  # type: ignore[arg-type]  # raises for what is none


def captured_all(
    metrics: Mapping[str, object], note_error: Callable[[str, BaseException], None]
) -> dict[str, Any]:
    """Each value as `captured` has it; what cannot be read, or is too much, is left out and told."""
    if len(metrics) > MAX_METRICS:
        error = ValueError(
            f"a record holds at most {MAX_METRICS} metrics, got {len(metrics)}: the rest is lost"
        )
        note_error("log", error)
        metrics = dict(islice(metrics.items(), MAX_METRICS))
    kept: dict[str, Any] = {}
    for name, value in metrics.items():
        if type(value) in _PLAIN:  # nearly all of them, without a call each
            kept[name] = value
            continue
        try:
            kept[name] = captured(value)
        except Exception as error:  # the value is the user's object, whose methods may raise anything
            note_error(f"value {name!r:.80}", error)
    return kept
