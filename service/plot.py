"""A curve as text: eight rows of dots, a lane for NaN, and a mark where the fault begins.

Axes: N points, C columns of the drawing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .ink import Ink

if TYPE_CHECKING:
    from .curves import CurvePoint

# 30: above it a linear axis squeezes the healthy part of an exploding curve into one row
_LOG_RATIO = 30.0
_GUTTER = 10
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # braille: [row][column] of a 2 x 4 cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Iterations to point at: the fault's interval (last_clean, first_bad], and the last good state."""

    onset: int | None = None
    last_clean: int | None = None
    last_good: int | None = None


@dataclass(frozen=True, slots=True)
class _Axis:
    """Maps a value to a height of 0 to 1."""

    low: float
    high: float
    is_log: bool

    def height(self, value: float) -> float:
        low, high, at = (self._scaled(v) for v in (self.low, self.high, value))
        return 0.5 if high <= low else min(1.0, max(0.0, (at - low) / (high - low)))

    def value(self, height: float) -> float:
        low, high = self._scaled(self.low), self._scaled(self.high)
        at = low + height * (high - low)
        return 10.0**at if self.is_log else at

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.is_log else value


def draw(
    points: Sequence[CurvePoint], marks: Marks, ink: Ink, *, title: str, width: int = 78, rows: int = 8
) -> list[str]:
    """The curve as lines of at most ``width`` columns; none when there is nothing to draw."""
    if not points:
        return []
    columns = width - _GUTTER
    first, last = points[0].iteration, max(points[-1].iteration, marks.onset or 0)
    axis = _axis(points)
    span = max(1, last - first)

    def column(iteration: int) -> int:
        return min(columns - 1, max(0, (iteration - first) * columns // (span + 1)))

    lines = [f"  {title}{', log scale' if axis and axis.is_log else ''}"]
    if axis is not None:
        lines += _picture(points, axis, marks, ink, columns=columns, rows=rows, first=first, span=span)
    lane = _nonfinite_lane(points, column, columns)
    if lane.strip():
        crosses = ink.paint(lane.replace("x", ink.either("✗", "x")), "red")
        lines.append(f"{'NaN, Inf':>{_GUTTER - 2}} {ink.either('│', '|')}{crosses}")
    lines.append(" " * (_GUTTER - 1) + ink.either("└", "+") + ink.either("─", "-") * columns)
    lines += _mark_lines(marks, ink, column, columns)
    ends = f"{first:<{columns // 2}}{last:>{columns - columns // 2}}"
    lines.append(ink.paint(" " * _GUTTER + ends, "dim"))
    return lines


def sparkline(values: Iterable[float], ink: Ink, width: int) -> str:
    """The last ``width`` buckets of a curve in one line; ✗ where a bucket holds a non-finite value."""
    series = list(values)
    if not series:
        return ""
    size = max(1, math.ceil(len(series) / width))
    buckets = [series[at : at + size] for at in range(0, len(series), size)]
    levels = [math.nan if any(not math.isfinite(v) for v in b) else max(b) for b in buckets]
    finite = [v for v in levels if math.isfinite(v)]
    low, high = min(finite, default=0.0), max(finite, default=1.0)
    glyphs = ink.either("▁▂▃▄▅▆▇█", "_.-=+*%#")
    bad = ink.either("✗", "x")

    def glyph(level: float) -> str:
        if not math.isfinite(level):
            return bad
        return (
            glyphs[0] if high <= low else glyphs[int((level - low) / (high - low) * (len(glyphs) - 1) + 0.5)]
        )

    return "".join(glyph(level) for level in levels)


def _axis(points: Sequence[CurvePoint]) -> _Axis | None:
    finite = [point.median for point in points if point.median is not None]
    if not finite:
        return None
    low, high = min(finite), max(finite)
    if low > 0.0 and high / low > _LOG_RATIO:
        return _Axis(low, high, is_log=True)
    if high <= low:
        half = abs(low) * 0.05 or 1.0
        return _Axis(low - half, high + half, is_log=False)
    return _Axis(low, high, is_log=False)


def _picture(
    points: Sequence[CurvePoint],
    axis: _Axis,
    marks: Marks,
    ink: Ink,
    *,
    columns: int,
    rows: int,
    first: int,
    span: int,
) -> list[str]:
    """The rows of the drawing, with a dotted line down to the onset."""
    across, down = (2, 4) if ink.has_unicode else (1, 1)
    grid = _strokes(points, axis, (columns * across, rows * down), first, span)
    onset = None if marks.onset is None else min(columns - 1, (marks.onset - first) * columns // (span + 1))
    lines = []
    for row in range(rows):
        cells = []
        for column in range(columns):
            cell = _cell(grid, row, column, ink)
            if cell == " " and column == onset:
                cell = ink.paint(ink.either("┊", ":"), "yellow")
            elif cell != " ":
                cell = ink.paint(cell, "cyan")
            cells.append(cell)
        is_labelled = row in (0, rows // 2, rows - 1)
        label = _number(axis.value(1.0 - row / (rows - 1))) if is_labelled else ""
        edge = ink.either("┤" if is_labelled else "│", "|")
        lines.append(f"{ink.paint(f'{label:>{_GUTTER - 2}}', 'dim')} {edge}{''.join(cells).rstrip()}")
    return lines


def _strokes(
    points: Sequence[CurvePoint], axis: _Axis, size: tuple[int, int], first: int, span: int
) -> list[list[bool]]:
    """Which dots are set: a stroke from the least to the greatest value of each dot column."""
    across, down = size
    reach: list[tuple[int, int] | None] = [None] * across
    for point in points:
        if point.median is not None:
            x = min(across - 1, max(0, (point.iteration - first) * across // (span + 1)))
            y = round((1.0 - axis.height(point.median)) * (down - 1))
            was = reach[x]
            reach[x] = (y, y) if was is None else (min(was[0], y), max(was[1], y))
    dots = [[False] * across for _ in range(down)]
    before: tuple[int, int] | None = None
    gap = max(2, 2 * across // max(1, len(points)))  # sparse points are joined, a stretch of NaN is not
    since = 0
    for x, stroke in enumerate(reach):
        since += 1
        if stroke is None:
            continue
        top, bottom = stroke
        if before is not None and since <= gap:  # close the vertical gap to the neighbour
            top, bottom = min(top, before[1]), max(bottom, before[0])
            for between in range(x - since + 1, x):
                dots[before[1]][between] = True
        for y in range(top, bottom + 1):
            dots[y][x] = True
        before, since = stroke, 0
    return dots


def _cell(dots: list[list[bool]], row: int, column: int, ink: Ink) -> str:
    if not ink.has_unicode:
        return "*" if dots[row][column] else " "
    bits = sum(_DOTS[y][x] for y in range(4) for x in range(2) if dots[row * 4 + y][column * 2 + x])
    return chr(0x2800 + bits) if bits else " "


def _nonfinite_lane(points: Sequence[CurvePoint], column: Callable[[int], int], columns: int) -> str:
    lane = [" "] * columns
    for point in points:
        if point.nonfinite:
            lane[column(point.iteration)] = "x"
    return "".join(lane).rstrip()


def _mark_lines(marks: Marks, ink: Ink, column: Callable[[int], int], columns: int) -> list[str]:
    """One line of marks under the axis and one that says what they mean."""
    if marks.onset is None:
        return []
    lane = [" "] * columns
    words = []
    if marks.last_clean is not None:
        for at in range(column(marks.last_clean) + 1, column(marks.onset)):
            lane[at] = ink.either("╌", ".")
    if marks.last_good is not None:
        lane[column(marks.last_good)] = ink.either("◆", "o")
        words.append(f"{ink.either('◆', 'o')} last good {marks.last_good}")
    lane[column(marks.onset)] = ink.either("▲", "^")
    words.append(f"{ink.either('▲', '^')} fault {_interval_words(marks)}")
    return [
        " " * _GUTTER + ink.paint("".join(lane).rstrip(), "yellow"),
        ink.paint(" " * _GUTTER + "   ".join(words), "yellow"),
    ]


def _interval_words(marks: Marks) -> str:
    if marks.last_clean is None or marks.onset is None or marks.onset - marks.last_clean <= 1:
        return f"at {marks.onset}"
    return f"after {marks.last_clean}, by {marks.onset}"


def _number(value: float) -> str:
    """Four significant digits, as short as they get: 0.001234, 11.2, 1.5e+06."""
    words = f"{value:.4g}"
    return words if len(words) <= _GUTTER - 2 else f"{value:.2e}"
