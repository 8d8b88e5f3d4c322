"""The lines of a chart as paths of a stretched picture of `WIDE` × `TALL` units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .html_axis import Scale
from .picture_curve import CurveBucket

WIDE, TALL = 2000, 400
"""Units of the stretched picture: whole numbers are exact enough and short."""
_REACH = 8
"""Usual steps over which points are joined: where more are missing the line is broken."""


@dataclass(frozen=True, slots=True)
class Span:
    """The iterations of a chart's width."""

    first: int
    last: int

    def at(self, iteration: float) -> float:
        """The place of an iteration, 0 to 1."""
        return min(1.0, max(0.0, (iteration - self.first) / max(1, self.last - self.first)))


@dataclass(frozen=True, slots=True)
class Line:
    """One attempt's curve; one that was given up is drawn soft."""

    attempt: int
    buckets: Sequence[CurveBucket]
    is_soft: bool = False


def stroke(span: Span, line: Line, scale: Scale) -> str:
    """The line through start, least, greatest and end of each bucket; broken where nothing was finite."""
    words: list[str] = []
    reach = _usual_step(line.buckets) * _REACH
    before: CurveBucket | None = None
    for bucket in line.buckets:
        if bucket.start is None or bucket.least is None or bucket.greatest is None or bucket.end is None:
            before = None
            continue
        x = round(span.at((bucket.first + bucket.last) / 2) * WIDE)
        values = dict.fromkeys((bucket.start, bucket.least, bucket.greatest, bucket.end))
        places = list(dict.fromkeys(round((1 - scale.at(value)) * TALL) for value in values))
        is_joined = before is not None and bucket.first - before.last <= reach
        words.append(f"{'L' if is_joined else 'M'}{x} {places[0]}" + ("" if is_joined else "h0"))
        words += [f"V{place}" for place in places[1:]]
        before = bucket
    return "".join(words)


def band(span: Span, line: Line, scale: Scale) -> str:
    """The area between the least and the greatest rank."""
    areas: list[str] = []
    run: list[tuple[int, int, int]] = []
    reach, last = _usual_step(line.buckets) * _REACH, line.buckets[0].first
    for bucket in (*line.buckets, None):
        is_gap = bucket is not None and bucket.first - last > reach
        last = last if bucket is None else bucket.last
        if is_gap:
            areas += _area(run)
            run = []
        if bucket is not None and bucket.low is not None and bucket.high is not None:
            x = round(span.at((bucket.first + bucket.last) / 2) * WIDE)
            run.append(
                (x, round((1 - scale.at(bucket.high)) * TALL), round((1 - scale.at(bucket.low)) * TALL))
            )
        elif run:
            areas += _area(run)
            run = []
    return "".join(areas)


def _area(run: Sequence[tuple[int, int, int]]) -> list[str]:
    if not any(low > high for _, high, low in run):
        return []
    there = "L".join(f"{x} {high}" for x, high, _ in run)
    back = "L".join(f"{x} {low}" for x, _, low in reversed(run))
    return [f"M{there}L{back}Z"]


def _usual_step(buckets: Sequence[CurveBucket]) -> int:
    """The usual distance between two buckets."""
    steps = sorted(two.first - one.last for one, two in pairwise(buckets))
    return max(1, steps[len(steps) // 2]) if steps else 1


def lane(span: Span, lines: Sequence[Line]) -> str:
    """Ticks where values were not finite: NaN is no gap."""
    spans: list[tuple[float, float]] = []
    for line in lines:
        half = _usual_step(line.buckets) / 2  # up to half the way to the neighbours, so that a stretch is one
        for bucket in line.buckets:
            if bucket.nonfinite:
                left = span.at(bucket.first - half) * WIDE
                right = max(left + 4, span.at(bucket.last + half) * WIDE)  # 4: two pixels of a phone
                if spans and left - spans[-1][1] < 4:
                    spans[-1] = spans[-1][0], max(spans[-1][1], right)
                else:
                    spans.append((left, right))
    return "".join(f"M{left:.0f} 0H{right:.0f}V10H{left:.0f}Z" for left, right in spans)


def nonfinite_words(lines: Sequence[Line]) -> str:
    """What is not finite in the lines, by kind and number: ``NaN 5, Infinity 1``."""
    kinds = {
        word: sum(getattr(bucket, kind) for line in lines for bucket in line.buckets)
        for kind, word in (("nan", "NaN"), ("posinf", "Infinity"), ("neginf", "−Infinity"))
    }
    return ", ".join(f"{word} {count}" for word, count in kinds.items() if count)
