"""A curve as text: eight rows of dots, a lane for NaN, and a mark where the fault begins.

Axes: N points, C columns of the drawing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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
    """Iterations to point at: the interval (last_clean, onset] of a fault, and the last good state."""

    onset: int | None = None
    last_clean: int | None = None
    last_good: int | None = None
    word: str = "fault"
    """What lies at the onset: a fault, a suspicion, a spike that recovered."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """Maps an iteration to one of ``columns`` columns."""

    first: int
    span: int
    columns: int

    def column(self, iteration: int) -> int:
        at = (iteration - self.first) * self.columns // (self.span + 1)
        return min(self.columns - 1, max(0, at))

    def finer(self, times: int) -> _Frame:
        """The same range in ``times`` as many columns."""
        return _Frame(self.first, self.span, self.columns * times)


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
    first, last = points[0].iteration, max(points[-1].iteration, marks.onset or 0)
    frame = _Frame(first, max(1, last - first), width - _GUTTER)
    axis = _axis(points)
    lines = [f"  {title}{', log scale' if axis and axis.is_log else ''}"]
    if axis is not None:
        lines += _picture(points, axis, frame, marks=marks, ink=ink, rows=rows)
    lane = _nonfinite_lane(points, frame)
    if lane:
        crosses = ink.paint(lane.replace("x", ink.either("✗", "x")), "red")
        lines.append(f"{'NaN, Inf':>{_GUTTER - 2}} {ink.either('│', '|')}{crosses}")
    lines.append(" " * (_GUTTER - 1) + ink.either("└", "+") + ink.either("─", "-") * frame.columns)
    lines += _mark_lines(marks, ink, frame)
    ends = f"{first:<{frame.columns // 2}}{last:>{frame.columns - frame.columns // 2}}"
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
    points: Sequence[CurvePoint], axis: _Axis, frame: _Frame, *, marks: Marks, ink: Ink, rows: int
) -> list[str]:
    """The rows of the drawing, with a dotted line down to the onset."""
    across, down = (2, 4) if ink.has_unicode else (1, 1)
    dots = _strokes(points, axis, frame.finer(across), rows * down)
    onset = None if marks.onset is None else frame.column(marks.onset)
    lines = []
    for row in range(rows):
        cells = [_cell(dots, row, column, ink) for column in range(frame.columns)]
        is_labelled = row in (0, rows // 2, rows - 1)
        label = _number(axis.value(1.0 - row / (rows - 1))) if is_labelled else ""
        edge = ink.either("┤" if is_labelled else "│", "|")
        curve = _painted(cells, onset, ink)
        lines.append(f"{ink.paint(f'{label:>{_GUTTER - 2}}', 'dim')} {edge}{curve}")
    return lines


def _painted(cells: Sequence[str], onset: int | None, ink: Ink) -> str:
    """The cells of one row as text, the onset's column dotted where the curve leaves it free."""
    if onset is None or cells[onset] != " ":
        return ink.paint("".join(cells).rstrip(), "cyan")
    left, right = "".join(cells[:onset]), "".join(cells[onset + 1 :]).rstrip()
    line = ink.paint(ink.either("┊", ":"), "yellow")
    return ink.paint(left, "cyan") + line + ink.paint(right, "cyan")


def _strokes(points: Sequence[CurvePoint], axis: _Axis, frame: _Frame, down: int) -> list[list[bool]]:
    """Which dots are set: a stroke from the least to the greatest value of each dot column."""
    reach: list[tuple[int, int] | None] = [None] * frame.columns
    for point in points:
        if point.median is not None:
            x = frame.column(point.iteration)
            y = round((1.0 - axis.height(point.median)) * (down - 1))
            was = reach[x]
            reach[x] = (y, y) if was is None else (min(was[0], y), max(was[1], y))
    dots = [[False] * frame.columns for _ in range(down)]
    before: tuple[int, int] | None = None
    gap = max(2, 2 * frame.columns // len(points))  # sparse points are joined, a stretch of NaN is not
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


def _nonfinite_lane(points: Sequence[CurvePoint], frame: _Frame) -> str:
    lane = [" "] * frame.columns
    for point in points:
        if point.nonfinite:
            lane[frame.column(point.iteration)] = "x"
    return "".join(lane).rstrip()


def _mark_lines(marks: Marks, ink: Ink, frame: _Frame) -> list[str]:
    """One line of marks under the axis and one that says what they mean."""
    if marks.onset is None:
        return []
    lane = [" "] * frame.columns
    words = []
    if marks.last_clean is not None:
        for at in range(frame.column(marks.last_clean) + 1, frame.column(marks.onset)):
            lane[at] = ink.either("╌", ".")
    if marks.last_good is not None:
        lane[frame.column(marks.last_good)] = ink.either("◆", "o")
        words.append(f"{ink.either('◆', 'o')} last good {marks.last_good}")
    lane[frame.column(marks.onset)] = ink.either("▲", "^")
    words.append(f"{ink.either('▲', '^')} {marks.word} {_interval_words(marks)}")
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
