"""What a single name or value on the wire may be; each rule is said once, the same for every decoder.

Standard library only: this module is imported inside training jobs.
"""

from __future__ import annotations

import math
import reprlib
import unicodedata
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache

from .telemetry import (
    KEY_ALIASES,
    MAX_CHECKSUM_BITS,
    MAX_LABEL_BYTES,
    MAX_METRIC_NAME_BYTES,
    MAX_RUN_BYTES,
    RESERVED_KEYS,
    Checksum,
    fold_checksum,
    is_checksum,
)

TELEMETRY_TOPIC = "firstfault.telemetry"
"""Where on Kafka training jobs send to and the service reads from, unless told otherwise."""
_NAN_WORDS = ("NaN", "nan", "NAN", "-nan", "-NaN", "-nan(ind)")
_INFINITE_WORDS = ("Infinity", "inf", "Inf", "INF", "infinity")
NONFINITE_TEXT: Mapping[str, float] = {
    **dict.fromkeys(_NAN_WORDS, math.nan),
    **{sign + word: math.inf for word in _INFINITE_WORDS for sign in ("", "+")},
    **{"-" + word: -math.inf for word in _INFINITE_WORDS},
}
"""The strings that stand for numbers JSON cannot write, as the languages that trainers are written in spell
them; we write ``NaN``, ``Infinity`` and ``-Infinity``."""
_CHECKSUM_DIGITS = MAX_CHECKSUM_BITS // 4
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80  # readable on one terminal line
_SHORT.maxlevel = 2

RULE_OBJECT = "must be a JSON object"
RULE_NAME = f"must be 1 to {MAX_METRIC_NAME_BYTES} bytes of UTF-8 without control characters"
RULE_RUN = f"must be text of 1 to {MAX_RUN_BYTES} bytes of UTF-8 without control characters"
RULE_LABEL = f"must be at most {MAX_LABEL_BYTES} bytes of UTF-8"
RULE_TIME = "must be a finite number of seconds"
RULE_VALUE = "must be a number, true, false, null or text"
RULE_CHECKSUM = f"must be hexadecimal of at most {MAX_CHECKSUM_BITS} bits or a 64-bit integer"


def integer(value: object, low: int, high: int) -> int | None:
    """``value`` as an integer in [low, high], None if it is none; ``2.0`` is one, true is not."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    return None


def integer_rule(high: int) -> str:
    """The rule that an identity field breaks: said the same way by every decoder."""
    return f"must be an integer from 0 to {high}"


@lru_cache(maxsize=4096)
def is_run_name(text: str) -> bool:
    """Whether ``text`` may name a run: 1 to 256 bytes of UTF-8, no control characters."""
    return _is_name(text, MAX_RUN_BYTES)


@lru_cache(maxsize=16384)
def is_metric_name(text: str) -> bool:
    """Whether ``text`` may name a metric or label."""
    return _is_name(text, MAX_METRIC_NAME_BYTES)


class Role(Enum):
    """What a key of a record is."""

    RESERVED = "reserved"
    NUMBER = "number"
    CHECKSUM = "checksum"
    BAD = "bad"


@lru_cache(maxsize=16384)
def role_of(key: str) -> tuple[str, Role]:
    """The canonical name of a key and what it is; cached, since every record asks the same."""
    name = KEY_ALIASES.get(key, key)
    if name in RESERVED_KEYS:
        return name, Role.RESERVED
    if not is_metric_name(name):
        return name, Role.BAD
    return name, Role.CHECKSUM if is_checksum(name) else Role.NUMBER


def is_label_text(text: str) -> bool:
    """Whether ``text`` may be the value of a label: any UTF-8 up to its limit."""
    return _utf8_length(text) <= MAX_LABEL_BYTES


def parse_checksum(value: object) -> Checksum | None:
    """The checksum that ``value`` writes, folded to 128 bits; None if it is none.

    Hexadecimal in any case, with or without ``0x``; or an integer of 64 bits. A negative one is the
    same bits read as signed (torch has no unsigned 64-bit tensors), so it equals its unsigned twin.

    >>> parse_checksum("0xFFFFFFFFFFFFFFFE") == parse_checksum(-2)
    True
    """
    if isinstance(value, str):
        digits = value[2:] if value[:2] in ("0x", "0X") else value
        if not 1 <= len(digits) <= _CHECKSUM_DIGITS or not _HEX_DIGITS.issuperset(digits):
            return None
        return Checksum(fold_checksum(int(digits, 16)))
    if isinstance(value, bool) or not isinstance(value, int) or not -(1 << 63) <= value < 1 << 64:
        return None
    return Checksum(value % (1 << 64))


def describe(value: object) -> str:
    """``value`` as text for a person, cut to a readable length; never raises."""
    return _SHORT.repr(value)[:200]


def as_float(value: float) -> float:
    """``value`` as a double; an integer beyond its range is infinite, as ``1e400`` is."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_name(text: str, max_bytes: int) -> bool:
    if not 1 <= _utf8_length(text) <= max_bytes:
        return False
    return text.isprintable() or not any(unicodedata.category(character) == "Cc" for character in text)


def _utf8_length(text: str) -> int:
    """Bytes of ``text`` in UTF-8; more than any limit when a lone surrogate cannot be written at all."""
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return MAX_LABEL_BYTES + MAX_RUN_BYTES + 1
