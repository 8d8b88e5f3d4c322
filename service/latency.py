"""How long something takes, as counts in buckets that add up over processes."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Upper bounds of the buckets, seconds: finest around the two that an alert may take; what is beyond five
minutes has no bound."""


class Latency:
    """Spans of time by bucket.

    >>> latency = Latency()
    >>> latency.add(0.3), latency.add(400.0), latency.body()["sum_s"]
    (None, None, 400.3)
    """

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self._sum_s = 0.0

    def add(self, span_s: float) -> None:
        """One more span; the clock may have been set back."""
        span_s = max(0.0, span_s)
        self._counts[bisect_left(BOUNDS_S, span_s)] += 1
        self._sum_s += span_s

    def body(self) -> dict[str, object]:
        """As JSON: the bounds, how many spans lay in each bucket, and their sum."""
        return {"bounds_s": list(BOUNDS_S), "counts": list(self._counts), "sum_s": self._sum_s}
