"""What is pointed at in a run's charts, and the words below them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .html_chart import Chart, Pin
from .html_markup import Markup, tag
from .ink import clean
from .picture import AttemptPicture, Mark

_GLYPHS: Mapping[str, str] = {
    "checkpoint": "◇",
    "resume": "↻",
    "restart": "↻",
    "lr_change": "≈",
    "batch_size": "≈",
    "data_change": "≈",
    "loss_scale": "×",
    "loss_scale_skip": "×",
    "skipped_step": "×",
    "spike_recovered": "△",
    "hardware": "!",
}
_OTHER = "•"
_ORDER = "▲◆↻×△!≈•◇"
_LISTED = 6
"""Iterations named in the legend of one kind of mark."""


def pins_of(verdict: Mapping[str, Any], pictures: Sequence[AttemptPicture]) -> list[tuple[Pin, str]]:
    """The events of a run and what was found benign in it, each with its kind in words."""
    found: list[tuple[Pin, str]] = []
    starts = {int(one["from"]) for one in verdict.get("attempts", [])[1:] if one.get("from") is not None}
    for picture in pictures:
        found += [
            _pin(mark.kind, mark.iteration, _mark_words(mark))
            for mark in picture.marks
            if mark.kind != "run_end" and not (mark.kind == "resume" and mark.iteration in starts)
        ]
    found += [
        _pin("restart", int(one["from"]), f"restart (attempt {one['attempt']})")
        for one in verdict.get("attempts", [])[1:]
        if one.get("from") is not None
    ]
    found += [
        _pin(str(note["kind"]), int(note["iteration"]), str(note["kind"]).replace("_", " "))
        for note in verdict.get("annotations", [])
        if note.get("iteration") is not None
    ]
    return sorted(found, key=lambda one: (one[0].iteration, one[1]))


def legend_of(chart: Chart, pins: Iterable[tuple[Pin, str]]) -> Markup | None:
    """What the glyphs under a chart mean, and where they are."""
    entries: list[tuple[str, str, str]] = []
    if chart.onset is not None:
        entries.append(("▲", "fault", f"{chart.word} {_onset_words(chart)}"))
    if chart.last_good is not None:
        entries.append(("◆", "good", f"last good {chart.last_good}"))
    places: dict[tuple[str, str], list[int]] = {}
    for pin, words in pins:
        places.setdefault((pin.glyph, words), []).append(pin.iteration)
    for (glyph, words), iterations in sorted(places.items(), key=lambda one: _ORDER.index(one[0][0])):
        listed = ", ".join(str(at) for at in iterations[:_LISTED])
        more = f" and {len(iterations) - _LISTED} more" if len(iterations) > _LISTED else ""
        entries.append((glyph, "note", f"{clean(words, 60)} at {listed}{more}"))
    if not entries:
        return None
    spans = [
        tag("span", tag("span", glyph, class_=f"pin {style}"), f" {words}") for glyph, style, words in entries
    ]
    return tag("p", *spans, class_="legend")


def _pin(kind: str, iteration: int, words: str) -> tuple[Pin, str]:
    return Pin(_GLYPHS.get(kind, _OTHER), iteration), words


def _mark_words(mark: Mark) -> str:
    words = mark.kind.replace("lr_", "learning rate ").replace("_", " ")
    if mark.kind == "hardware":
        what = " ".join(
            str(mark.fields[key]).replace("_", " " if key == "kind" else "_")
            for key in ("kind", "xid", "host")
            if mark.fields.get(key) is not None
        )
        return f"{words} event {clean(what, 40)}".rstrip()
    return words


def _onset_words(chart: Chart) -> str:
    if chart.last_clean is None or chart.onset is None or chart.onset - chart.last_clean <= 1:
        return f"at {chart.onset}"
    return f"after {chart.last_clean}, by {chart.onset}"
