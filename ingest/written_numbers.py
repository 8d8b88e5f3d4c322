"""Numbers as people and programs write them in a key or a cell."""

from __future__ import annotations

import math
import re
from functools import lru_cache

MAX_NUMBER_CHARS = 64
"""Longer text is no number."""
THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?")
_OF_TOTAL = re.compile(r"([0-9]+)\s*/\s*[0-9]+")


def number_in(value: object) -> float | None:
    """A value as a number: one, true and false, or text that holds one.

    >>> [number_in(value) for value in (True, "0.5", "7%", "3/547", "1,024", "1_0")]
    [1.0, 0.5, 7.0, 3.0, 1024.0, None]
    """
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:  # an integer beyond any float
            return math.inf if value > 0 else -math.inf
    if not isinstance(value, str) or len(value) > MAX_NUMBER_CHARS:
        return None
    return _number_in_text(value)


def number_of(value: object) -> float | None:
    """As `number_in`, but none for true, false and shares of a hundred: they do not count."""
    is_told_otherwise = isinstance(value, bool) or (isinstance(value, str) and "%" in value)
    return None if is_told_otherwise else number_in(value)


@lru_cache(maxsize=8192)  # what a column means is asked of the same cells of its head in several ways
def _number_in_text(value: str) -> float | None:
    text = value.strip().removesuffix("%")
    if not text.isascii() or "_" in text:  # float() takes digits of other scripts, and 1_000
        return None
    try:
        return float(text)
    except ValueError:
        if (count := _OF_TOTAL.fullmatch(text)) is not None:
            return float(count[1])
        return float(text.replace(",", "")) if THOUSANDS.fullmatch(text) else None
