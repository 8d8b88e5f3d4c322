"""Times beside the lines of a log: what they are called, and whether they go back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_NAMES = frozenset(
    (
        *("timestamp", "@timestamp", "time", "_time", "ts", "date", "datetime", "eventtime"),
        *("__realtime_timestamp", "@ingestiontime", "ingestiontime"),
    )
)
_CLEAR = 4
"""Times as many steps back in time as forward: records of one second may be in any order."""


def is_time_name(name: str) -> bool:
    """Whether a field of this name says when a line was printed."""
    return name.strip().lower() in _NAMES


def do_fall(times: Sequence[str]) -> bool:
    """Whether times, all written alike, go back from one to the next.

    >>> do_fall(["2026-03-01 12:00:30", "2026-03-01 12:00:15", "2026-03-01 12:00:15"])
    True
    """
    falls = sum(before > after for before, after in pairwise(times))
    rises = sum(before < after for before, after in pairwise(times))
    return falls > _CLEAR * rises
