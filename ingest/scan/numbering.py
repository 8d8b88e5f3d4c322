"""Numbers for records that print no counter of their own."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from ingest.blocks import Floats, Ints


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

    @property
    def counts_alone(self) -> bool:
        """Whether records have begun to be numbered and the last had no counter in front of it."""
        return self._counter == -1.0 and self._last >= 0

    def number_all(self, series_K: Ints, value_K: Floats) -> Floats:
        """The numbers of records without a counter, as `number` gives them once it `counts_alone`.

        Then none is a copy: of one series in a row each record begins the next number.
        """
        number_K = np.empty(len(series_K))
        borders = np.flatnonzero(np.diff(series_K, prepend=-1, append=-1))
        for start, stop in pairwise(borders.tolist()):
            series = int(series_K[start])
            if not series:
                number_K[start:stop] = self._last
                continue
            is_repeated = series in self._seen
            number_K[start:stop] = self._last + is_repeated + np.arange(stop - start)
            if is_repeated or stop - start > 1:
                self._last, self._seen = float(number_K[stop - 1]), {}
            self._seen[series] = float(value_K[stop - 1])
        return number_K

    def _is_copy(self, series: int, value: float) -> bool:
        """Whether a message behind a bar was printed twice, by two handlers."""
        before = self._seen[series]
        is_same = value == before or (math.isnan(value) and math.isnan(before))
        return is_same and self._counter == self._last
