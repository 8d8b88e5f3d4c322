"""Numbers in the bytes of a log, for the compiled kernel: where they end, and what they are worth.

The rules are those of the regular expression `tokens.NUMBER`. A number is parsed here where that is exact: up
to 2^53 without its point, times or divided by a power of ten up to 10^22, with one rounding (Clinger, How to
Read Floating Point Numbers Accurately, PLDI 1990). Others are left to Python.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_POWERS = np.array([10.0**power for power in range(23)])
_EXACT = np.uint64(1 << 53)
_MAX_DIGITS = 18
"""Digits that fit 64 bits whatever they are."""


def end_of_signed(bytes_B: NDArray[np.uint8], at: int, limit: int, is_closed: bool) -> int:
    """Where the number that begins at ``at`` ends; ``at`` if none does. Behind a bracket a sign is none."""
    byte = bytes_B[at]
    if byte > 57:
        return at
    digit = at + 1 if (byte == 43 or byte == 45) and not is_closed else at  # noqa: PLR1714
    end = _end_of_number(bytes_B, digit, limit)
    return end if end > digit else at


def _end_of_number(bytes_B: NDArray[np.uint8], at: int, limit: int) -> int:
    """Where the number that begins at ``at``, behind its sign, ends; ``at`` if none does."""
    end = _end_of_digits(bytes_B, at, limit)
    if end == at:
        if bytes_B[at] != 46 or at >= limit:
            return at
        end = _end_of_digits(bytes_B, at + 1, limit)
        if end == at + 1:
            return at
    else:
        if end - at <= 3:
            groups = end
            while groups < limit and bytes_B[groups] == 44:
                group = _end_of_digits(bytes_B, groups + 1, min(groups + 4, limit))
                if group != groups + 4:
                    break
                groups = group
            if groups > end and not _goes_on(bytes_B, groups, limit):
                end = groups
        if end < limit and bytes_B[end] == 46:
            fraction = _end_of_digits(bytes_B, end + 1, limit)
            if fraction > end + 1:
                end = fraction
            elif end + 1 < limit and (
                bytes_B[end + 1] == 35 or _end_of_exponent(bytes_B, end + 1, limit) > end + 1
            ):
                end += 1
    return _end_of_exponent(bytes_B, end, limit)


def _goes_on(bytes_B: NDArray[np.uint8], at: int, limit: int) -> bool:
    """Whether a digit or a comma and a digit stand here, so that no thousands end here."""
    if at >= limit:
        return False
    if 48 <= bytes_B[at] <= 57:
        return True
    return bytes_B[at] == 44 and at + 1 < limit and 48 <= bytes_B[at + 1] <= 57


def _end_of_digits(bytes_B: NDArray[np.uint8], at: int, limit: int) -> int:
    while at < limit and 48 <= bytes_B[at] <= 57:
        at += 1
    return at


def _end_of_exponent(bytes_B: NDArray[np.uint8], at: int, limit: int) -> int:
    """Where ``e-05`` ends; ``at`` if there is none."""
    if at >= limit or (bytes_B[at] != 101 and bytes_B[at] != 69):
        return at
    digits = at + 1
    if digits < limit and (bytes_B[digits] == 43 or bytes_B[digits] == 45):
        digits += 1
    end = _end_of_digits(bytes_B, digits, limit)
    return end if end > digits else at


def parse(bytes_B: NDArray[np.uint8], at: int, end: int) -> tuple[float, bool]:
    """The value of a number without its sign, and whether it is exact."""
    mantissa, power, digits = np.uint64(0), 0, 0
    is_fraction = False
    while at < end:
        byte = bytes_B[at]
        if 48 <= byte <= 57:
            if digits > 0 or byte != 48:
                digits += 1
            if digits > _MAX_DIGITS:
                return 0.0, False
            mantissa = mantissa * np.uint64(10) + np.uint64(byte - 48)
            if is_fraction:
                power -= 1
        elif byte == 46:
            is_fraction = True
        elif byte != 44:
            break
        at += 1
    if at < end:
        at += 1
        is_down = bytes_B[at] == 45
        if is_down or bytes_B[at] == 43:
            at += 1
        exponent = 0
        while at < end:
            exponent = exponent * 10 + int(bytes_B[at]) - 48
            if exponent > 10_000:
                return 0.0, False
            at += 1
        power += -exponent if is_down else exponent
    if mantissa == 0:
        return 0.0, True
    if mantissa > _EXACT or power < -22 or power > 22:
        return 0.0, False
    if power < 0:
        return np.float64(mantissa) / _POWERS[-power], True
    return np.float64(mantissa) * _POWERS[power], True


PARTS = (_end_of_digits, _end_of_exponent, _goes_on, _end_of_number, end_of_signed, parse)
"""All of them, each after those that it calls."""
