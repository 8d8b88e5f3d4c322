"""How precisely a log has its numbers: text rounds them, and what was rounded away cannot be compared.

Two logs that print alike are compared as printed. Where one prints less, equal means that both may be
roundings of one number.

Axes: T positions, R ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingest.blocks import Flags, Floats

_LOOKED_AT = 512
"""First values of a metric among which different ones are looked for."""
_ENOUGH = 16
"""Different values that its precision is told by. Only the first: where a log comes to differ in finer
digits later on, that is a difference and no other way of printing."""
_LEAST = 8
"""Different values needed: full numbers have so many round ones in a row once in 1e8 or less."""
_MOST = 9
"""Decimals or digits from which on a number counts as whole: float32 has 9."""


@dataclass(frozen=True, slots=True)
class Precision:
    """``decimals`` behind the point, or else ``digits`` in all; neither where numbers are whole."""

    decimals: int | None = None
    digits: int | None = None

    @property
    def words(self) -> str:
        """The precision for a person."""
        for count, unit in ((self.decimals, "decimal"), (self.digits, "digit")):
            if count is not None:
                return f"{count} {unit}{'' if count == 1 else 's'}"
        return "in full"

    def half_unit(self, values_TR: Floats) -> Floats:
        """Half of the last place of each value: how far the number may be from what was printed."""
        if self.decimals is not None:
            return np.full(values_TR.shape, 0.5 * 10.0**-self.decimals)
        if self.digits is None:
            return np.zeros(values_TR.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            power_TR = np.floor(np.log10(np.abs(values_TR))) - self.digits + 1
        return np.where(np.isfinite(power_TR), 0.5 * 10.0 ** np.nan_to_num(power_TR), 0.0)


FULL = Precision()


def precision_of(values_TR: Floats, present_TR: Flags) -> Precision:
    """How the first values of a metric are printed; in full where too few differ to tell.

    >>> values = np.array([[0.125], [2.5], [3.75], [1.5], [9.25], [4.125], [7.5], [8.625]])
    >>> precision_of(values, np.ones((8, 1), bool)).words
    '3 decimals'
    """
    known = values_TR[present_TR & np.isfinite(values_TR)][:_LOOKED_AT]
    different, place = np.unique(known[known != 0.0], return_index=True)
    some = different[np.argsort(place)][:_ENOUGH]
    if len(some) < _LEAST:
        return FULL
    for decimals in range(_MOST):
        if _is_whole(some * 10.0**decimals):
            return Precision(decimals=decimals)
    power = np.floor(np.log10(np.abs(some)))
    for digits in range(1, _MOST):
        if _is_whole(some * 10.0 ** (digits - 1 - power)):
            return Precision(digits=digits)
    return FULL


def is_same_as_printed(one_TR: Floats, two_TR: Floats, precisions: tuple[Precision, Precision]) -> Flags:
    """Where two numbers are the same as far as both are printed: NaN is NaN, whatever its bits, -0 is 0."""
    same_TR: Flags = (one_TR == two_TR) | (np.isnan(one_TR) & np.isnan(two_TR))
    first, second = precisions
    if first == second:
        return same_TR
    with np.errstate(invalid="ignore", over="ignore"):
        reach_TR = first.half_unit(one_TR) + second.half_unit(two_TR)
        # 1e-9: the sum of two roundings that meet at a half is reached, but for the last bits of binary
        near_TR: Flags = np.abs(one_TR - two_TR) <= reach_TR * (1 + 1e-9)
    return same_TR | near_TR


def _is_whole(values: Floats) -> bool:
    # 1e-6 of a last place: what is left of a decimal number in binary, up to 1e9 last places
    return bool(np.all(np.abs(values - np.rint(values)) < 1e-6 * np.maximum(1.0, np.abs(values) / 1e6)))
