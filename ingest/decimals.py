"""The double nearest to a decimal number, in a form that numba can compile; the bits that `float` gives.

Sources: Clinger, How to Read Floating Point Numbers Accurately, PLDI 1990 (both parts exact in a double, then
one rounding); Lemire, Number Parsing at a Gigabyte per Second, Software: Practice and Experience 51 (2021),
algorithm 1: the product with a power of five to 128 bits, whose rounding is sure but for cases that are told.
"""

from __future__ import annotations

import numpy as np

_POWERS = np.array([10.0**power for power in range(23)])
_EXACT = np.uint64(1 << 53)
_FIRST, _LAST = -60, 40
"""Powers of ten with a table; numbers of a log with others are rare, and left to Python."""
_LEAST_TWO = -300
"""Of the powers of two, which cover those of ten from `_FIRST` to `_LAST` times 19 digits."""
_TWOS = np.array([2.0**power for power in range(_LEAST_TWO, 300)])
_ALL, _LOW = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0xFFFFFFFF)
_HALF, _TOP = np.uint64(32), np.uint64(63)
_ONE, _TWO, _THREE, _DROPPED = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(9)
_UNSURE = np.uint64(0x1FF)
"""Bits of the upper half below the 55 that decide: all set, the lower half of the power may carry."""
_MISSING = -1.0


def _power_of_five(power: int) -> int:
    """128 leading bits of 5^power, cut off; of a reciprocal rounded up."""
    if power < 0:
        five: int = 5**-power
        bits = (five - 1).bit_length()
        inverse: int = 2 ** (bits + 127 if power >= -27 else 2 * bits + 128) // five + 1
        return inverse >> max(inverse.bit_length() - 128, 0)
    five = 5**power
    shift = five.bit_length() - 128
    return five >> shift if shift > 0 else five << -shift


_FIVES = np.array(
    [divmod(_power_of_five(power), 1 << 64) for power in range(_FIRST, _LAST + 1)], np.uint64
).reshape(-1)
"""Upper and lower half of each."""


def nearest_double(mantissa: np.uint64, power: int) -> float:
    """The double nearest to ``mantissa`` times ten to ``power``; -1 where Python has to find it.

    >>> nearest_double(np.uint64(9365494200260287), -16), nearest_double(np.uint64(25), -1)
    (0.9365494200260287, 2.5)
    """
    if mantissa == np.uint64(0):
        return 0.0
    if mantissa <= _EXACT and -22 <= power <= 22:
        if power < 0:
            return float(np.float64(mantissa) / _POWERS[-power])
        return float(np.float64(mantissa) * _POWERS[power])
    if power < _FIRST or power > _LAST:
        return _MISSING
    return _by_product(mantissa, power)


def _by_product(mantissa: np.uint64, power: int) -> float:
    at = 2 * (power - _FIRST)
    zeros = leading_zeros(mantissa)
    mantissa <<= np.uint64(zeros)
    upper, lower = product(mantissa, _FIVES[at])
    if upper & _UNSURE == _UNSURE:
        more, _ = product(mantissa, _FIVES[at + 1])
        lower = (lower + more) & _ALL
        if lower < more:
            upper += _ONE
    if lower == _ALL and (power < -27 or power > 55):
        return _MISSING
    is_long = upper >> _TOP
    bits = upper >> (is_long + _DROPPED)
    # Half way between two doubles, to the even one: only where the product is exact.
    is_exact = bits << (is_long + _DROPPED) == upper and lower <= _ONE
    if is_exact and -4 <= power <= 23 and bits & _THREE == _ONE:
        bits ^= _ONE
    bits = (bits + (bits & _ONE)) >> _ONE
    two = ((217706 * power) >> 16) + int(is_long) - zeros + 11
    return float(np.float64(bits) * _TWOS[two - _LEAST_TWO])


def leading_zeros(word: np.uint64) -> int:
    """How many bits of a word that is not 0 are 0 from its top on."""
    zeros = 0
    for step in (32, 16, 8, 4, 2, 1):
        if word >> np.uint64(64 - step) == np.uint64(0):
            word <<= np.uint64(step)
            zeros += step
    return zeros


def product(one: np.uint64, other: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Upper and lower half of the product of two words."""
    one_high, one_low = one >> _HALF, one & _LOW
    other_high, other_low = other >> _HALF, other & _LOW
    low = one_low * other_low
    middle = one_high * other_low + (low >> _HALF)
    rest = one_low * other_high + (middle & _LOW)
    upper = one_high * other_high + (middle >> _HALF) + (rest >> _HALF)
    return upper, (rest << _HALF) | (low & _LOW)


PARTS = (leading_zeros, product, _by_product, nearest_double)
"""All of them, each after those that it calls."""
