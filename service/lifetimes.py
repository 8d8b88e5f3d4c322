"""Spans of time as people type them: 12h, 90d, 4w."""

from __future__ import annotations

import re

from .errors import ConfigError

_LIFETIME = re.compile(r"(\d{1,6})([hdw])")
_SECONDS = {"h": 3600.0, "d": 86_400.0, "w": 7 * 86_400.0}


def lifetime_s(option: str, text: str) -> float:
    """The seconds of a span; ``option`` is named where it is none.

    >>> lifetime_s("--for", "12h")
    43200.0

    Raises:
        ConfigError: not a number of hours, days or weeks.
    """
    match = _LIFETIME.fullmatch(text)
    if match is None or int(match[1]) == 0:
        words = "must be a number of hours, days or weeks such as 12h, 90d, 4w"
        raise ConfigError(f"{option} {words}; got {text!r}")
    return int(match[1]) * _SECONDS[match[2]]
