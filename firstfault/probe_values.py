"""Values as the trainer has them, taken at once: what is logged must not change while it waits."""

from __future__ import annotations

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
