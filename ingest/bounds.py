"""Bounds of settings: what is out of range stops the start and is named."""

from __future__ import annotations

from collections.abc import Mapping


def check_bounds(config: object, bounds: Mapping[str, tuple[float, float]]) -> None:
    """Hold each field of ``config`` against its (least, most), both of them allowed.

    Raises:
        ValueError: a field that is out of its bounds, or is NaN.

    >>> from types import SimpleNamespace
    >>> check_bounds(SimpleNamespace(points=0), {"points": (1, 64)})
    Traceback (most recent call last):
    ValueError: points must be >= 1, got 0
    """
    for name, (least, most) in bounds.items():
        value = getattr(config, name)
        if not value >= least:  # so that NaN, which TOML has, is out of every bound
            raise ValueError(f"{name} must be >= {least}, got {value}")
        if value > most:
            raise ValueError(f"{name} must be <= {most}, got {value}")
