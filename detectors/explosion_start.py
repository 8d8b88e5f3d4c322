"""Where a curve began: what growth is held against while its noise is not known.

Plain Python that numba can compile: see `kernels.Fold`.
"""

from __future__ import annotations

from collections.abc import Sequence

from .explosion_baseline import (
    FLOOR,
    IN_WINDOW,
    POINTS,
    START_LEVEL,
    START_RANGE,
    START_TOP,
    Counts,
    Numbers,
    unit_of,
)
from .explosion_growth import LEAST_LEVEL, RELATIVE, START_RISE

ORIGIN = 1.0
"""Floor for a loss that begins at zero or below it. Such a one has no level: it is an advantage, of which 1
is a standard deviation, or a penalty that is zero before the first update, and grows out of nothing."""


def begin_curve(value: float, ints: Counts, floats: Numbers, ring: Numbers, knobs: Sequence[float]) -> None:
    """One of the first four points: where the curve began, and how far it moved at once.

    One that is high beside those before it is no part of how the curve moves.
    """
    if ints[POINTS] >= 2:
        unit = unit_of(floats[START_LEVEL], 0.5 * floats[START_RANGE], floats[FLOOR], knobs[RELATIVE])
        if value - floats[START_LEVEL] > start_rise(ints, knobs) * unit:
            return
    if ints[POINTS] == 0:
        floats[START_LEVEL] = value
        floats[START_TOP] = value
    floats[START_LEVEL] = min(floats[START_LEVEL], value)
    floats[START_TOP] = max(floats[START_TOP], value)
    floats[START_RANGE] = floats[START_TOP] - floats[START_LEVEL]
    if ints[POINTS] == 3 and knobs[RELATIVE] == 0.0:
        # Norms scatter by factors: the least of four says nothing of where they began, the middle two do.
        inner = ring[0] + ring[1] + ring[2] + value - floats[START_TOP] - floats[START_LEVEL]
        floats[START_LEVEL] = 0.5 * inner


def start_rise(ints: Counts, knobs: Sequence[float]) -> float:
    """Rise in units that counts while the noise is not known: over two points twice that over more."""
    return knobs[START_RISE] * (2.0 if ints[IN_WINDOW] < LEAST_LEVEL else 1.0)


def raise_floor(value: float, floats: Numbers, knobs: Sequence[float]) -> None:
    """The least unit of a loss, from one of its first points; a norm needs none."""
    # 2 % of where the curve started: below it nothing that training could lose is left.
    floats[FLOOR] = max(floats[FLOOR], 0.02 * abs(value)) if knobs[RELATIVE] > 0 else 0.0
    if value <= 0.0 and knobs[RELATIVE] > 0:
        floats[FLOOR] = max(floats[FLOOR], ORIGIN)
