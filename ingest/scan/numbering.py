"""Numbers for records that print no counter of their own."""

from __future__ import annotations

import math


class BareNumbers:
    """Numbers records that have no counter of their own: a key that comes again begins the next one."""

    def __init__(self) -> None:
        self._counter = -1.0
        self._last = -1.0
        self._seen: dict[int, float] = {}

    def number(self, counter: float, series: int, value: float) -> float:
        """The number of the next record, which follows ``counter`` (-1: there is none)."""
        if counter != self._counter:
            self._counter, moved = counter, counter > self._last
            if moved:
                self._last, self._seen = counter, {}
        if not series:
            return max(self._last, 0.0)
        is_repeated = series in self._seen and not self._is_copy(series, value)
        if is_repeated or self._last < 0:
            self._last += 1
            self._seen = {}
        self._seen[series] = value
        return self._last

    def _is_copy(self, series: int, value: float) -> bool:
        """Whether a message behind a bar was printed twice, by two handlers."""
        before = self._seen[series]
        is_same = value == before or (math.isnan(value) and math.isnan(before))
        return is_same and self._counter == self._last
