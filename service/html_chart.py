"""A curve as inline SVG: the median over ranks, the spread of ranks, a lane for what is not finite, marks.

All places along the width are shares of it, so that the chart is as wide as the page, and text and lines
keep their size. The curve itself is drawn in a stretched inner picture.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .html_axis import Scale, number_words, round_values, scale_for
from .html_lines import TALL, WIDE, Line, Span, band, lane, stroke
from .html_markup import Markup, join, tag
from .picture_curve import thinned

HEIGHT = 210
"""Pixels of the plotting area."""
_LANE, _MARKS, _FOOT = 16, 18, 18
"""Pixels of the lane for what is not finite, of the row of marks, and of the iterations below."""
MAX_POINTS = 480
_FLAT = 12
"""Pixels of the plotting area where no value is finite: only the lane is of interest."""


@dataclass(frozen=True, slots=True)
class Pin:
    """A mark under the curve: a glyph at an iteration."""

    glyph: str
    iteration: int
    style: str = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What is drawn."""

    id: str
    title: str
    summary: str
    lines: Sequence[Line]
    first: int
    last: int
    onset: int | None = None
    last_clean: int | None = None
    last_good: int | None = None
    word: str = "fault"
    pins: Sequence[Pin] = field(default_factory=tuple)

    @property
    def span(self) -> Span:
        """The iterations of its width."""
        return Span(self.first, self.last)


def draw_chart(chart: Chart) -> Markup:
    """The chart as one element; its words are in its title and description too."""
    lines = [Line(one.attempt, thinned(one.buckets, MAX_POINTS), one.is_soft) for one in chart.lines]
    scale = scale_for(list(_extremes(lines)))
    has_lane = any(bucket.nonfinite for line in lines for bucket in line.buckets)
    has_pins = bool(chart.pins) or chart.onset is not None or chart.last_good is not None
    top = _LANE if has_lane else 4
    bottom = top + (HEIGHT if scale else _FLAT)
    height = bottom + (_MARKS if has_pins else 4) + _FOOT
    return tag(
        "svg",
        tag("title", chart.title, id=f"{chart.id}t"),
        tag("desc", chart.summary, id=f"{chart.id}d"),
        _onset_area(chart, bottom),
        _value_axis(scale, top) if scale else None,
        _lane(chart, lines) if has_lane else None,
        _curves(chart, lines, scale, top) if scale else None,
        _value_words(scale, top) if scale else None,
        _onset_line(chart, bottom),
        _pins(chart, bottom + 13),
        _foot(chart, bottom, height),
        role="img",
        aria_labelledby=f"{chart.id}t {chart.id}d",
        class_="chart",
        width="100%",
        height=height,
    )


def is_log(lines: Sequence[Line]) -> bool:
    """Whether the chart of these has a logarithmic axis."""
    scale = scale_for(list(_extremes(lines)))
    return scale is not None and scale.is_log


def _extremes(lines: Sequence[Line]) -> Iterator[float]:
    for line in lines:
        for bucket in line.buckets:
            if bucket.low is not None and bucket.high is not None:
                yield bucket.low
                yield bucket.high


def _percent(chart: Chart, iteration: float) -> str:
    return f"{100 * chart.span.at(iteration):.2f}%"


def _value_axis(scale: Scale, top: int) -> Markup:
    places = [top + HEIGHT * (1 - scale.at(tick)) for tick in scale.ticks()]
    return join(*(tag("line", class_="grid", x1="0", x2="100%", y1=y, y2=y) for y in places))


def _value_words(scale: Scale, top: int) -> Markup:
    """Behind nothing: a halo keeps them readable over the curve."""
    return join(
        *(
            tag(
                "text",
                number_words(tick),
                class_="tick",
                x="2",
                y=max(10.0, top + HEIGHT * (1 - scale.at(tick)) - 3),
            )
            for tick in scale.ticks()
        )
    )


def _curves(chart: Chart, lines: Sequence[Line], scale: Scale, top: int) -> Markup:
    parts: list[Markup] = []
    for line in lines:
        area = "" if line.is_soft else band(chart.span, line, scale)
        parts += [tag("path", class_="band", d=area)] if area else []
        path = stroke(chart.span, line, scale)
        parts += [tag("path", class_="soft-line" if line.is_soft else "line", d=path)] if path else []
    return tag(
        "svg",
        *parts,
        x="0",
        y=top,
        width="100%",
        height=HEIGHT,
        viewBox=f"0 0 {WIDE} {TALL}",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _lane(chart: Chart, lines: Sequence[Line]) -> Markup:
    """Ticks where values were not finite: NaN is no gap."""
    path = lane(chart.span, lines)
    inner = tag(
        "svg",
        tag("path", class_="bad-lane", d=path),
        x="0",
        y="2",
        width="100%",
        height="10",
        viewBox=f"0 0 {WIDE} 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
    return join(tag("line", class_="edge", x1="0", x2="100%", y1=14, y2=14), inner)


def _onset_area(chart: Chart, bottom: int) -> Markup | None:
    """The interval in which it began."""
    if chart.onset is None or chart.last_clean is None or chart.onset - chart.last_clean <= 1:
        return None
    left, right = chart.span.at(chart.last_clean), chart.span.at(chart.onset)
    return tag(
        "rect",
        class_="interval",
        x=f"{100 * left:.2f}%",
        y="0",
        width=f"{100 * (right - left):.2f}%",
        height=bottom,
    )


def _onset_line(chart: Chart, bottom: int) -> Markup | None:
    if chart.onset is None:
        return None
    x = _percent(chart, chart.onset)
    return tag("line", class_="onset", x1=x, x2=x, y1=0, y2=bottom)


def _pins(chart: Chart, y: int) -> Markup:
    pins = list(chart.pins)
    if chart.last_good is not None:
        pins.append(Pin("◆", chart.last_good, "good"))
    if chart.onset is not None:
        pins.append(Pin("▲", chart.onset, "fault"))
    kept: dict[tuple[str, int], Markup] = {}
    for pin in pins:
        if not chart.first <= pin.iteration <= chart.last:
            continue
        # one glyph a place: what is closer than 1/150 of the width cannot be told apart
        key = (pin.glyph, round(150 * chart.span.at(pin.iteration)))
        share = chart.span.at(pin.iteration)
        anchor = "start" if share < 0.01 else "end" if share > 0.99 else "middle"
        kept.setdefault(
            key,
            tag(
                "text",
                pin.glyph,
                class_=f"pin {pin.style}",
                x=_percent(chart, pin.iteration),
                y=y,
                text_anchor=anchor,
            ),
        )
    return join(*kept.values())


def _foot(chart: Chart, bottom: int, height: int) -> Markup:
    ticks = round_values(chart.first, chart.last, 5) if chart.last > chart.first else [chart.first]
    parts = [tag("line", class_="edge", x1="0", x2="100%", y1=bottom, y2=bottom)]
    for tick in ticks:
        if tick != int(tick):
            continue
        share = chart.span.at(tick)
        anchor = "start" if share < 0.04 else "end" if share > 0.96 else "middle"
        parts.append(
            tag(
                "text",
                f"{int(tick)}",
                class_="tick",
                x=_percent(chart, tick),
                y=height - 5,
                text_anchor=anchor,
            )
        )
    return join(*parts)
