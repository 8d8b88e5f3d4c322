"""Line charts as SVG: the same bytes everywhere, small, and readable on a light and on a dark page.

Written by hand since the bytes of a plotting library change with its version. Axes: K points of a line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

WIDTH, LEFT, RIGHT = 760, 66, 16
HEIGHT, LEGEND, GAP, FOOT = 132, 30, 12, 52
"""Of one panel, of the row of words above it, between two, and below the last one, in pixels."""
_COLUMN = 2.5
"""Pixels in which only the first, the least, the greatest and the last point of a line are drawn."""
_STYLE = """
svg{--ink:#1f2328;--soft:#59636e;--grid:#d8dee4;--page:#fff;--stat:#0550ae;--peer:#a6aeb8;--limit:#b3261e;
--onset:#8a5a00;font:12px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}
@media(prefers-color-scheme:dark){svg{--ink:#e6edf3;--soft:#9ba5b0;--grid:#30363d;--page:#0d1117;--stat:#79b8ff;
--peer:#59636e;--limit:#ff8a80;--onset:#e3b341}}
.page{fill:var(--page)}text{fill:var(--ink)}.soft{fill:var(--soft)}.grid{stroke:var(--grid);stroke-width:1}
path,line{fill:none}.stat{stroke:var(--stat);stroke-width:1.6}.peer{stroke:var(--peer);stroke-width:1}
.limit{stroke:var(--limit);stroke-width:1.6;stroke-dasharray:7 4}.onset{stroke:var(--onset);stroke-width:1.4;
stroke-dasharray:2 3}.alarm{stroke:var(--limit);stroke-width:1.4}.span{fill:var(--onset);opacity:.16}
circle.stat{fill:var(--stat);stroke:none}circle.peer{fill:var(--peer);stroke:none}
.onset-word{fill:var(--onset)}.alarm-word{fill:var(--limit)}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series. ``role`` is ``stat`` (what is judged), ``peer`` (what it is beside) or ``limit``.

    NaN leaves a gap. ``name`` is empty for all but the first of lines that share a word in the legend.
    """

    x_K: Sequence[float]
    y_K: Sequence[float]
    role: str = "stat"
    name: str = ""
    dots: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One chart: what its axis says with the unit, and its lines; those last in the list lie on top."""

    label: str
    lines: Sequence[Line]
    is_log: bool = False
    floor: float | None = None
    """Where the axis begins, if not at the least value."""
    top: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A position on the shared axis: ``onset`` or ``alarm``, and its word."""

    x: float
    role: str
    word: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Panels over one axis, with the positions that matter marked through all of them."""

    title: str
    caption: str
    x_label: str
    panels: Sequence[Panel]
    marks: Sequence[Mark] = ()
    span: tuple[float, float] | None = None
    """Where the detector says that the fault began."""
    x_range: tuple[float, float] | None = None


@dataclass(slots=True)
class _Axis:
    """From values to pixels."""

    low: float
    high: float
    start: float
    stop: float
    is_log: bool = False
    ticks: list[float] = field(default_factory=list)

    def at(self, value: float) -> float:
        low, high = (math.log10(self.low), math.log10(self.high)) if self.is_log else (self.low, self.high)
        place = math.log10(max(value, self.low)) if self.is_log else value
        share = min(max((place - low) / (high - low), -0.02), 1.02)
        return self.start + share * (self.stop - self.start)


def draw(figure: Figure) -> bytes:
    """The figure as a file."""
    height = LEGEND + len(figure.panels) * (HEIGHT + LEGEND + GAP) + FOOT
    x_axis = _x_axis(figure)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}"',
        f'height="{height}" role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(figure.title)}</title><desc id="d">{escape(figure.caption)}</desc>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
        f'<text x="{LEFT}" y="20" font-weight="600">{escape(figure.title)}</text>',
    ]
    top = float(LEGEND)
    for panel in figure.panels:
        parts += _panel(panel, figure, x_axis, top + LEGEND)
        top += LEGEND + HEIGHT + GAP
    parts += _marks(figure, x_axis, top - GAP)
    parts += _x_words(figure, x_axis, top - GAP)
    return ("\n".join([*parts, "</svg>"]) + "\n").encode()


def _x_axis(figure: Figure) -> _Axis:
    if figure.x_range is None:
        every = [x for panel in figure.panels for line in panel.lines for x in line.x_K]
        low, high = min(every), max(every)
    else:
        low, high = figure.x_range
    axis = _Axis(low, max(high, low + 1), LEFT, WIDTH - RIGHT)
    axis.ticks = _ticks(axis.low, axis.high, 8)
    return axis


def _y_axis(panel: Panel, top: float) -> _Axis:
    values = [y for line in panel.lines for y in line.y_K if math.isfinite(y)]
    if panel.is_log:
        values = [value for value in values if value > 0]
        low = panel.floor if panel.floor is not None else min(values)
        high = panel.top if panel.top is not None else max(values)
        room = (high / low) ** 0.06 if high > low else 2.0
        axis = _Axis(low / room, high * room, top + HEIGHT, top, True)
        axis.ticks = _log_ticks(axis.low, axis.high)
        return axis
    low = panel.floor if panel.floor is not None else min(values)
    high = panel.top if panel.top is not None else max(values)
    room = 0.06 * (high - low or abs(high) or 1.0)
    axis = _Axis(low if panel.floor is not None else low - room, high + room, top + HEIGHT, top)
    axis.ticks = _ticks(axis.low, axis.high, 5)
    return axis


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers in a range: steps of 1, 2 or 5 times a power of ten."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten in a range, with 2 and 5 between them, or round numbers where it is narrow."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    wide = max(1, len(decades) // 5)
    for steps in ((1.0,), (1.0, 2.0, 5.0)):
        ticks = [step * 10.0**n for n in decades if n % wide == 0 for step in steps]
        ticks = [tick for tick in ticks if low <= tick <= high]
        if len(ticks) >= 3:
            return ticks
    return _ticks(low, high, 4)


def _panel(panel: Panel, figure: Figure, x_axis: _Axis, top: float) -> Iterator[str]:
    y_axis = _y_axis(panel, top)
    if figure.span is not None:
        low, high = (x_axis.at(end) for end in figure.span)
        yield (
            f'<rect class="span" x="{low:.1f}" y="{top:.0f}" width="{max(high - low, 1.5):.1f}" '
            f'height="{HEIGHT}"/>'
        )
    for tick in y_axis.ticks:
        y = y_axis.at(tick)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="soft" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_number(tick)}</text>'
    yield from _legend(panel, top - 9)
    for line in panel.lines:
        yield from _line(line, x_axis, y_axis)


def _legend(panel: Panel, y: float) -> Iterator[str]:
    """What the axis says, and at the right the word of each line beside a piece of it."""
    yield f'<text x="{LEFT}" y="{y:.0f}">{escape(panel.label)}</text>'
    x = float(WIDTH - RIGHT)
    for line in reversed([line for line in panel.lines if line.name]):
        yield f'<text class="soft" x="{x:.0f}" y="{y:.0f}" text-anchor="end">{escape(line.name)}</text>'
        x -= _width(line.name)
        if line.dots:
            yield f'<circle class="{line.role}" cx="{x - 10:.0f}" cy="{y - 4:.0f}" r="2.6"/>'
        else:
            yield f'<path class="{line.role}" d="M{x - 27:.0f} {y - 4:.0f}h20"/>'
        x -= 42


def _line(line: Line, x_axis: _Axis, y_axis: _Axis) -> Iterator[str]:
    x_K, y_K = np.asarray(line.x_K, np.float64), np.asarray(line.y_K, np.float64)
    inside_K = (x_K >= x_axis.low) & (x_K <= x_axis.high)
    points = [
        (x_axis.at(x), y_axis.at(y) if math.isfinite(y) else math.nan)
        for x, y in zip(x_K[inside_K].tolist(), y_K[inside_K].tolist(), strict=True)
    ]
    if line.dots:
        for x, y in points:
            if math.isfinite(y):
                yield f'<circle class="{line.role}" cx="{x:.1f}" cy="{y:.1f}" r="2.2"/>'
        return
    path, is_open = [], False
    corners = [(round(x, 1), round(y, 1)) for x, y in _thinned(points)]
    for at, (x, y) in enumerate(corners):
        near = {corners[max(at - 1, 0)][1], y, corners[min(at + 1, len(corners) - 1)][1]}
        if len(near) == 1 and 0 < at < len(corners) - 1:
            continue  # on a level stretch only its ends count
        if math.isfinite(y):
            path.append(f"{'L' if is_open else 'M'}{x:g} {y:g}")
        is_open = math.isfinite(y)
    if path:
        yield f'<path class="{line.role}" d="{"".join(path)}"/>'


def _thinned(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """First, least, greatest and last of the points in each column of pixels: no extreme is lost."""
    column: list[tuple[float, float]] = []
    for point in [*points, (math.inf, math.nan)]:
        if column and (not math.isfinite(point[0]) or int(point[0] / _COLUMN) != int(column[0][0] / _COLUMN)):
            known = [one for one in column if math.isfinite(one[1])]
            wanted = {id(column[0]), id(column[-1])}
            if known:
                wanted |= {id(min(known, key=lambda one: one[1])), id(max(known, key=lambda one: one[1]))}
            yield from (one for one in column if id(one) in wanted)
            column = []
        column.append(point)


def _marks(figure: Figure, x_axis: _Axis, bottom: float) -> Iterator[str]:
    """Lines through all panels; words below the title, the second of two that are near under the first."""
    taken: list[tuple[float, float, int]] = []
    for mark in figure.marks:
        x = x_axis.at(mark.x)
        width = _width(mark.word)
        left = min(max(x - width / 2, LEFT), WIDTH - RIGHT - width)
        # the word of the axis stands at the right of the first row
        taken = taken or [(WIDTH - RIGHT - _width(figure.x_label), WIDTH, 0)]
        row = next(
            row
            for row in range(9)
            if not any(r == row and a < left + width and left < b for a, b, r in taken)
        )
        taken.append((left, left + width, row))
        for panel in range(len(figure.panels)):
            top = 2 * LEGEND + panel * (LEGEND + HEIGHT + GAP)
            yield f'<line class="{mark.role}" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + HEIGHT}"/>'
        yield (
            f'<text class="{mark.role}-word" x="{left:.0f}" y="{bottom + 31 + 13 * row:.0f}">'
            f"{escape(mark.word)}</text>"
        )


def _x_words(figure: Figure, x_axis: _Axis, bottom: float) -> Iterator[str]:
    for tick in x_axis.ticks:
        x = x_axis.at(tick)
        y = bottom + 16
        yield f'<text class="soft" x="{x:.1f}" y="{y:.0f}" text-anchor="middle">{_number(tick)}</text>'
    yield (
        f'<text class="soft" x="{WIDTH - RIGHT}" y="{bottom + 31:.0f}" text-anchor="end">'
        f"{escape(figure.x_label)}</text>"
    )


def _width(text: str) -> float:
    """Pixels that a text takes, about: fonts differ by a tenth."""
    return sum(3.9 if letter in "ijlfrt,.()/ " else 11.0 if letter in "mwMW" else 7.4 for letter in text)


def _number(value: float) -> str:
    """A tick as people write it."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:.6g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
