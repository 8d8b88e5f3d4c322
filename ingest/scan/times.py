"""The time in front of a line, as seconds since 1970, where it names a year."""

from __future__ import annotations

import re
from datetime import date
from functools import lru_cache
from math import nan

import numpy as np

from ingest.blocks import Floats, Ints

from .pieces import Piece
from .prefixes import MAX_PREFIX_BYTES, Part, Prefix, read_prefix

_CLOCK = re.compile(
    r"(?P<hour>\d{1,2}):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,:](?P<fraction>\d{1,9}))?"
    r"(?: ?(?P<half>[AP])M)?(?: ?(?:UTC|GMT|Z))?(?P<zone>[+-]\d\d:?\d\d)?"
)
_YEAR_FIRST = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")
_YEAR_LAST = re.compile(r"(\d{1,2})[/.](\d{1,2})[/.](\d{4})\b")
_IN_WORDS = re.compile(r"(?:[A-Z][a-z]{2},? )?([A-Z][a-z]{2}) {1,2}(\d{1,2}) (?:(\d{4}) )?")
_YEAR_AT_END = re.compile(r" (\d{4})$")
_COMPACT = re.compile(r"(\d{4})(\d\d)(\d\d)\b")
_EPOCH = re.compile(r"(1\d{9})(?:\.(\d{1,9})|(\d{3}|\d{6}|\d{9}))?$")
_MONTHS = {
    name: number
    for number, name in enumerate(
        ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"), 1
    )
}
_FIRST_DAY = date(1970, 1, 1).toordinal()


def read_time(text: str) -> float | None:
    """Seconds since 1970 of a time as logs write it, taken as UTC where it names no zone.

    None where no year is known (``Nov 30 14:43:34``, ``[11/18 18:14:12]``), or only two digits of it, since
    those of a year, a month and a day cannot be told apart.

    >>> read_time("2026-06-28 16:08:16,250"), read_time("06/28 16:08:16"), read_time("1764470000250")
    (1782662896.25, None, 1764470000.25)
    """
    if epoch := _EPOCH.match(text):
        return float(f"{epoch[1]}.{epoch[2] or epoch[3] or 0}")
    clock = _CLOCK.search(text)
    if clock is None or clock.start() == 0:
        return None
    day = _day_of(text[: clock.start()], text[clock.end() :])
    return None if day is None else day * 86_400 + _seconds(clock)


def times_of(lines: Piece, line_R: Ints) -> Floats:
    """The times in front of some lines; NaN where there is none, or several lines made one."""
    fronts = (lines[at][:MAX_PREFIX_BYTES] if 0 <= at < len(lines) else b"" for at in line_R.tolist())
    times = (time_in(front, read_prefix(front)) for front in fronts)
    return np.array([nan if time is None else time for time in times], np.float64)


def time_in(line: bytes, prefix: Prefix) -> float | None:
    """The first time in the prefix of a line that names its year."""
    times = (read_time(field.of(line)) for field in prefix.fields if field.what is Part.TIME)
    return next((time for time in times if time is not None), None)


def _seconds(clock: re.Match[str]) -> float:
    hour = int(clock["hour"])
    if clock["half"]:
        hour = hour % 12 + 12 * (clock["half"] == "P")
    seconds = (
        hour * 3600 + int(clock["minute"]) * 60 + int(clock["second"]) + float(f"0.{clock['fraction'] or 0}")
    )
    if zone := clock["zone"]:
        offset = int(zone[1:3]) * 60 + int(zone[-2:])
        seconds -= offset * 60 * (1 if zone[0] == "+" else -1)
    return seconds


@lru_cache(maxsize=64)
def _day_of(before: str, behind: str) -> int | None:
    """The day since 1970-01-01 of the text around a clock."""
    if found := _YEAR_FIRST.match(before) or _COMPACT.match(before):
        return _ordinal(*(int(part) for part in found.groups()))
    if found := _YEAR_LAST.match(before):
        first, second, year = (int(part) for part in found.groups())
        # Month first, as most loggers with slashes write it, unless it cannot be one.
        return _ordinal(year, second, first) if first > 12 else _ordinal(year, first, second)
    if found := _IN_WORDS.match(before):
        year_text = found[3] or ((end := _YEAR_AT_END.search(behind)) and end[1])
        return _ordinal(int(year_text), _MONTHS.get(found[1], 0), int(found[2])) if year_text else None
    return None


def _ordinal(year: int, month: int, day: int) -> int | None:
    try:
        return date(year, month, day).toordinal() - _FIRST_DAY
    except ValueError:
        return None
