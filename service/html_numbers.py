"""The curves of a run as a table: what stands around the onset, in numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .html_axis import number_words
from .html_cards import scrolling
from .html_markup import Markup, data, join, tag
from .picture_curve import CurveBucket

_AROUND = 6
"""Rows before and after the onset."""


def numbers_table(curves: Mapping[str, Sequence[CurveBucket]], onset: int | None) -> Markup | None:
    """Metric by metric around ``onset``; without one, the end of the curves. None without a number."""
    columns = {metric: {bucket.first: bucket for bucket in curve} for metric, curve in curves.items()}
    firsts = sorted({first for column in columns.values() for first in column})
    if not firsts:
        return None
    end = len(firsts) - 1
    at = end if onset is None else next((i for i, first in enumerate(firsts) if first >= onset), end)
    head = tag(
        "tr",
        tag("th", "iteration", scope="col"),
        *(tag("th", data(metric, 40), scope="col") for metric in columns),
    )
    shown = firsts[max(0, at - _AROUND) : at + _AROUND + 1]
    what = "around the onset" if onset is not None else "at the end"
    body = tag("tbody", *(_row(columns, first, is_onset=first == onset) for first in shown))
    table = scrolling(tag("table", tag("thead", head), body), f"Numbers {what}")
    return tag("details", tag("summary", f"The numbers {what}"), table)


def _row(columns: Mapping[str, Mapping[int, CurveBucket]], first: int, *, is_onset: bool) -> Markup:
    last = max((column[first].last for column in columns.values() if first in column), default=first)
    span = str(first) if last == first else f"{first}–{last}"
    cells = [tag("td", _words(column.get(first)), class_="number") for column in columns.values()]
    return tag("tr", tag("th", span, scope="row"), *cells, class_="at" if is_onset else None)


def _words(bucket: CurveBucket | None) -> Markup | str:
    """The values of a bucket as a span, and what was not finite in it by name."""
    if bucket is None:
        return "–"
    kinds = ((bucket.nan, "NaN"), (bucket.posinf, "Infinity"), (bucket.neginf, "−Infinity"))
    words = " ".join(word for count, word in kinds if count) + (" (concluded)" if bucket.inferred else "")
    bad = tag("b", words, class_="nonfinite") if words else None
    if bucket.low is None or bucket.high is None:
        return bad or "–"
    values = number_words(bucket.low)
    if bucket.high > bucket.low:
        values += f" … {number_words(bucket.high)}"
    return join(values, " ", bad) if bad else values
