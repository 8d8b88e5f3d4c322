"""The pictures of a run: its curves, the ranks around the onset, and the numbers behind both."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .html_axis import number_words
from .html_cards import card
from .html_chart import Chart, Pin, draw_chart, is_log
from .html_lines import Line, nonfinite_words
from .html_marks import legend_of, pins_of
from .html_markup import Markup, data, tag
from .html_numbers import numbers_table
from .html_strip import draw_strip, shows, strip_words
from .metric_words import METRIC_WORDS
from .picture import AttemptPicture
from .sentence import Incident, root_incident

MAX_CHARTS = 4
"""Charts of a run with an incident: the curve it is seen in, loss, gradient norm, one more."""
_MAX_LINES = 4
"""Attempts drawn into one chart: the newest, and that of the incident."""
_MAX_STRIPS = 2
_CLOSER, _CLOSER_FROM = 40, 240
"""Buckets beside the onset that are drawn once more, and from how many on the whole shows too little."""
_CURVES = ("loss", "global_loss", "grad_norm", "local_grad_norm")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What the pictures of one run are made of."""

    id: str
    verdict: Mapping[str, Any]
    pictures: Sequence[AttemptPicture]
    most_charts: int = MAX_CHARTS

    @property
    def root(self) -> Incident | None:
        """The incident that is pointed at."""
        return root_incident(self.verdict)

    @property
    def attempt(self) -> int:
        """The attempt whose strips are shown: that of the incident, else the last."""
        numbers = [picture.attempt for picture in self.pictures]
        wanted = int(self.root["first"].get("attempt") or 0) if self.root is not None else -1
        return wanted if wanted in numbers else max(numbers, default=0)


def curves_section(scene: Scene) -> Markup | None:
    """The curves that matter, each with its marks in words, and the numbers around the onset."""
    metrics = _chosen(scene)
    if not metrics:
        return None
    charts = [_figure(scene, metric, at) for at, metric in enumerate(metrics)]
    charts[1:1] = [closer] if (closer := _closer(scene, metrics[0])) is not None else []
    picture = next((one for one in scene.pictures if one.attempt == scene.attempt), None)
    columns = {metric: picture.curves.get(metric, ()) for metric in metrics} if picture else {}
    onset = int(scene.root["first"]["iteration"]) if scene.root is not None else None
    return card("Curves", *charts, numbers_table(columns, onset) if columns else None, kind="curves")


def ranks_section(scene: Scene) -> Markup | None:
    """Every rank around the onset, where there is more than one and an incident."""
    root = scene.root
    picture = next((one for one in scene.pictures if one.attempt == scene.attempt), None)
    if root is None or picture is None:
        return None
    named = [
        str(root["first"].get("metric") or ""),
        *(str(one["metric"]) for one in root.get("evidence", [])),
    ]
    suspects, onset = [int(rank) for rank in root["first"].get("ranks", [])], int(root["first"]["iteration"])
    known = [metric for metric in dict.fromkeys([*named, *_CURVES]) if metric in picture.strips]
    metrics = [metric for metric in known if shows(picture.strips[metric], suspects, onset)][:_MAX_STRIPS]
    if not metrics:
        return None
    figures = [
        tag(
            "figure",
            tag(
                "figcaption",
                tag("b", data(_name(metric), 80)),
                " ",
                tag("span", strip_words(picture.strips[metric], suspects, onset), class_="soft"),
            ),
            draw_strip(picture.strips[metric], suspects, onset, f"{scene.id}s{at}"),
        )
        for at, metric in enumerate(metrics)
    ]
    return card("Ranks around the onset", *figures, kind="ranks")


def _chosen(scene: Scene) -> list[str]:
    known = {metric for picture in scene.pictures for metric in picture.curves}
    root = scene.root
    named = [] if root is None else [str(root["first"].get("metric") or "")]
    others = [] if root is None else [str(one["metric"]) for one in root.get("evidence", [])]
    curves = [metric for metric in _CURVES if metric in known]
    if "grad_norm" in curves and "local_grad_norm" in curves and "local_grad_norm" not in (*named, *others):
        curves.remove("local_grad_norm")  # the same curve but for a rank that parts from its peers
    rest = sorted(known - set(curves) - {"lr"})
    # a count is zero until it is not: the strip of ranks shows it better
    named, others, rest = (
        [one for one in names if not one.startswith("nonfinite_")] for names in (named, others, rest)
    )
    wanted = [*named, *curves, *others, *([] if curves else rest)]
    return [metric for metric in dict.fromkeys(wanted) if metric in known][: scene.most_charts]


def _figure(scene: Scene, metric: str, at: int) -> Markup:
    pins = pins_of(scene.verdict, scene.pictures)
    chart = _chart(scene, metric, at, [pin for pin, _ in pins])
    ranks = int(scene.verdict["coverage"].get("ranks") or 0)
    note = [f"median of {ranks} ranks, shaded from the least to the greatest" if ranks > 1 else ""]
    note += ["log scale" if is_log(chart.lines) else ""]
    note += [
        f"attempts {', '.join(str(line.attempt) for line in chart.lines)}" if len(chart.lines) > 1 else ""
    ]
    caption = tag(
        "figcaption",
        tag("b", data(_name(metric), 80)),
        " ",
        tag("span", ", ".join(word for word in note if word), class_="soft"),
        tag("b", " ", bad, class_="nonfinite") if (bad := nonfinite_words(chart.lines)) else None,
    )
    return tag("figure", caption, draw_chart(chart), legend_of(chart, pins) if at == 0 else None)


def _closer(scene: Scene, metric: str) -> Markup | None:
    """The curve around the onset alone, where the whole of it shows too little of that."""
    whole = _chart(scene, metric, 0, [pin for pin, _ in pins_of(scene.verdict, scene.pictures)])
    buckets = next((line.buckets for line in whole.lines if not line.is_soft), ())
    has_curve = any(bucket.start is not None for bucket in buckets)
    if whole.onset is None or len(buckets) < _CLOSER_FROM or not has_curve:
        return None
    firsts = [bucket.first for bucket in buckets]
    clean = whole.onset if whole.last_clean is None else whole.last_clean
    low = max(0, bisect_left(firsts, clean) - _CLOSER)
    high = bisect_right(firsts, whole.onset) + _CLOSER
    part = buckets[low:high]
    if not part:
        return None
    lines = [Line(scene.attempt, part)]
    title = f"{whole.title}, around the onset"
    chart = replace(
        whole,
        id=f"{whole.id}z",
        title=title,
        lines=lines,
        first=part[0].first,
        last=max(part[-1].last, whole.onset),
    )
    words = f"around the onset, iterations {chart.first} to {chart.last}"
    caption = tag("figcaption", tag("b", data(_name(metric), 80)), " ", tag("span", words, class_="soft"))
    return tag("figure", caption, draw_chart(chart))


def _chart(scene: Scene, metric: str, at: int, pins: Sequence[Pin]) -> Chart:
    lines = _lines(scene, metric)
    first = min(line.buckets[0].first for line in lines)
    last = max(line.buckets[-1].last for line in lines)
    root = scene.root
    onset = last_clean = last_good = None
    word = "fault"
    if root is not None:
        onset = int(root["first"]["iteration"])
        last_clean = (root["first"].get("interval") or [None])[0]
        word = {"suspected": "suspicion", "recovered": "spike that recovered"}.get(
            str(root["certainty"]), word
        )
        last_good = (
            None if root["certainty"] == "recovered" else (root.get("last_good") or {}).get("iteration")
        )
    return Chart(
        id=f"{scene.id}c{at}",
        title=f"{_name(metric)} over iterations",
        summary=_summary(lines, onset, word),
        lines=lines,
        first=first,
        last=max(last, onset or last),
        onset=onset,
        last_clean=last_clean,
        last_good=last_good,
        word=word,
        pins=pins,
    )


def _lines(scene: Scene, metric: str) -> list[Line]:
    """The attempts that have the metric: that of the incident and the newest, others soft."""
    having = [picture for picture in scene.pictures if picture.curves.get(metric)]
    kept = [one for one in having if one.attempt == scene.attempt]
    kept += [one for one in reversed(having) if one.attempt != scene.attempt][: _MAX_LINES - len(kept)]
    kept.sort(key=lambda one: one.attempt)
    return [Line(one.attempt, one.curves[metric], one.attempt != scene.attempt) for one in kept]


def _summary(lines: Sequence[Line], onset: int | None, word: str) -> str:
    buckets = [bucket for line in lines for bucket in line.buckets]
    finite = [bucket for bucket in buckets if bucket.start is not None]
    words = f"Iterations {buckets[0].first} to {buckets[-1].last}. "
    if finite:
        least = min(bucket.least for bucket in finite if bucket.least is not None)
        greatest = max(bucket.greatest for bucket in finite if bucket.greatest is not None)
        start, end = finite[0].start or 0.0, finite[-1].end or 0.0
        words += f"From {number_words(start)} to {number_words(end)}, "
        words += f"least {number_words(least)}, greatest {number_words(greatest)}. "
    bad = sum(bucket.nonfinite for bucket in buckets)
    words += f"{bad} values are NaN or infinite. " if bad else ""
    return words + (f"{word[0].upper()}{word[1:]} at iteration {onset}." if onset is not None else "")


def _name(metric: str) -> str:
    return METRIC_WORDS.get(metric, metric)
