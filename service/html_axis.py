"""Axes of a chart: where ticks stand and what they say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

LOG_RATIO = 30.0
"""From this ratio of greatest to least on a linear axis shows the lower part as a flat line."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to 0 (bottom) … 1 (top)."""

    low: float
    high: float
    is_log: bool

    def at(self, value: float) -> float:
        """The height of ``value``, clipped to the axis."""
        low, high, here = self._warped(self.low), self._warped(self.high), self._warped(value)
        return min(1.0, max(0.0, (here - low) / (high - low)))

    def ticks(self, most: int = 5) -> list[float]:
        """Round values inside the axis, ascending."""
        if not self.is_log:
            return round_values(self.low, self.high, most)
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        step = max(1, math.ceil((last - first + 1) / most))
        powers = [10.0**power for power in range(first, last + 1, step)]
        return powers if len(powers) > 1 else _between(self.low, self.high, most)

    def _warped(self, value: float) -> float:
        return math.log10(max(value, self.low)) if self.is_log else value


def scale_for(values: Sequence[float]) -> Scale | None:
    """An axis that shows all of ``values``; None where there are none."""
    if not values:
        return None
    low, high = min(values), max(values)
    if low > 0.0 and high / low > LOG_RATIO:
        return Scale(low / 1.15, high * 1.15, is_log=True)
    room = (high / 20 - low / 20) or abs(low) * 0.05 or 1.0  # halves first: the span itself may overflow
    if low == 0.0 or (low > 0.0 and low - room < 0.0):
        return Scale(0.0, high + room, is_log=False)
    return Scale(max(low - room, -1.7e308), min(high + room, 1.7e308), is_log=False)


def round_values(low: float, high: float, most: int) -> list[float]:
    """At most ``most`` + 1 multiples of 1, 2 or 5 times a power of ten in ``[low, high]``.

    >>> round_values(0, 700, 5)
    [0.0, 200.0, 400.0, 600.0]
    """
    span = high / most - low / most
    if not 0.0 < span < math.inf:
        return [low]
    power = 10.0 ** math.floor(math.log10(span))
    step = next((each * power for each in (1, 2, 5, 10) if each * power >= span * 0.999), 10 * power)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{at * step:.12g}") for at in range(first, min(last, first + 20) + 1)]


def number_words(value: float) -> str:
    """Four digits, as short as they get: 0.001234, 11.2, 1.5e+06.

    >>> number_words(2.5), number_words(20000.0), number_words(1000000.0), number_words(0.00001)
    ('2.5', '20000', '1e6', '1e-5')
    """
    if value != 0 and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, _, exponent = f"{value:.3e}".partition("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"


def _between(low: float, high: float, most: int) -> list[float]:
    """Ticks of a logarithmic axis of less than two decades."""
    power = math.floor(math.log10(low))
    found = [m * 10.0**p for p in range(power, power + 3) for m in (1, 2, 5) if low <= m * 10.0**p <= high]
    return found[:most] or [low, high]
