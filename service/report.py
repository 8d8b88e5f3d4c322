"""The plain report of ``firstfault replay``: a sentence, the reasons, a plot, what was checked.

80 columns, good to read without colour, and safe to paste into a ticket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .ink import WIDTH, Ink, clean, table, wrap
from .place_words import place_words
from .plot import Marks, draw
from .rank_words import rank_words
from .reasons import field, reasons
from .recognised import formats_words, recognised
from .sentence import LABEL_WORDS, Incident, Verdict, root_incident, subject
from .sufficiency import (
    has_confirmed_incident,
    headline,
    label_words,
    severity,
    tally,
    why_too_little,
)

if TYPE_CHECKING:
    from ingest.file_reader import FileNotes

    from .curves import CurvePoint
    from .strides import Strides

_MAX_ROWS = 8
"""Rows of a table in the report: what a person reads; the JSON has all."""
_MIN_DRAWN = 4
"""Points of a curve from which on it is drawn: fewer are said in a line."""
_MAX_REASONS = 5
"""Checks that did not run and are told with their reasons."""
_OF_CURVES = frozenset({"nonfinite", "explosion", "curve_drift", "evaluation"})


@dataclass(frozen=True, slots=True)
class Judged:
    """One judged run: where it came from, its verdict as JSON, and a curve to plot."""

    source: str
    verdict: Verdict
    metric: str = ""
    curve: Sequence[CurvePoint] = ()
    attempt: int = 0
    notes: Sequence[FileNotes] = ()
    strides: Strides | None = None

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong as far as can be told, and something can be told."""
        return is_healthy(self.verdict) and not why_too_little(self.verdict, self.notes)


def report(judged: Sequence[Judged], ink: Ink, *, is_detailed: bool = False) -> str:
    """All runs: a summary table when there are several, then each run, the worst first."""
    ordered = sorted(judged, key=_badness)
    parts = [summary_table(ordered, ink)] if len(ordered) > 1 else []
    parts += [
        run_report(one, ink, is_detailed=is_detailed)
        for one in ordered
        if len(ordered) == 1 or is_detailed or not one.is_healthy
    ]
    return "\n\n".join(parts) + "\n"


def is_healthy(verdict: Verdict) -> bool:
    """Whether the run's label is healthy."""
    return bool(verdict["label"] == "healthy")


def summary_table(judged: Sequence[Judged], ink: Ink) -> str:
    """One line a run: verdict, ranks, iteration."""
    title = tally([(one.verdict, one.notes) for one in judged])
    rows: list[Sequence[str]] = [("run", "verdict", "ranks", "since", "judged to")]
    rows += [_summary_row(one) for one in judged]
    painted = [_label_style(one) for one in judged]
    notes = {note.path: note for one in judged for note in one.notes}
    files = "1 file" if len(notes) == 1 else f"{len(notes)} files"
    words = f"{files}: {formats_words(list(notes.values()))}"
    read = [*field("Read", words, ink), ""] if notes else []
    return "\n".join([ink.paint(title, "bold"), "", *read, *table(rows, ink, styles=painted)])


def run_report(judged: Judged, ink: Ink, *, is_detailed: bool = False) -> str:
    """The whole report of one run: what it is a verdict of, the verdict, and what that rests on."""
    verdict = judged.verdict
    lines = _recognised_lines(judged, ink, is_detailed=is_detailed)
    sentence = wrap(headline(verdict, judged.notes))
    lines += [ink.paint(line, "bold", *_label_style(judged)) for line in sentence]
    root = root_incident(verdict)
    is_open = root is not None and root["certainty"] != "recovered"
    if root is not None and is_open:
        lines += ["", *reasons(root, ink)]
    lines += _curve_lines(judged, root, ink)
    if root is not None and is_open:
        lines += ["", *_evidence_lines(verdict, root, ink)]
    lines += ["", *_coverage_lines(verdict, ink, is_detailed=is_detailed)]
    return "\n".join(line.rstrip() for line in lines)


def _recognised_lines(judged: Judged, ink: Ink, *, is_detailed: bool) -> list[str]:
    ranks = int(judged.verdict["coverage"].get("ranks") or 0)
    lines: list[str] = []
    for at, words in enumerate(recognised(judged.notes, judged.strides, ranks, is_long=is_detailed)):
        lines += field("Read" if at == 0 else "", words, ink)
    return [*lines, ""] if lines else []


def _badness(judged: Judged) -> tuple[int, str, str]:
    return severity(judged.verdict, judged.notes), str(judged.verdict["run"]), judged.source


def _summary_row(judged: Judged) -> tuple[str, ...]:
    verdict = judged.verdict
    ranks, since = place_words(verdict)
    judged_to = verdict.get("judged_to_iteration")
    return (
        clean(verdict["run"], 28),
        label_words(verdict, judged.notes),
        ranks,
        since,
        "" if judged_to is None else str(judged_to),
    )


def _label_style(judged: Judged) -> tuple[str, ...]:
    if has_confirmed_incident(judged.verdict):
        return ("red",)
    return ("green",) if judged.is_healthy else ("yellow",)


def _curve_lines(judged: Judged, root: Incident | None, ink: Ink) -> list[str]:
    if not judged.curve:
        return []
    ranks = judged.verdict["coverage"].get("ranks") or 0
    title = clean(judged.metric) + (f", median of {ranks} ranks" if ranks > 1 else "")
    title += f", attempt {judged.attempt}" if judged.attempt else ""
    if len(judged.curve) < _MIN_DRAWN:
        return ["", *wrap(f"{title}: {_few_points(judged.curve)}", first="  ", rest="    ")]
    return ["", *draw(judged.curve, _marks(root), ink, title=title, width=WIDTH - 2)]


def _few_points(curve: Sequence[CurvePoint]) -> str:
    """Points that make no picture, in numbers."""
    return ", ".join(
        f"{'NaN or infinite' if point.median is None else value_words(point.median)} at {point.iteration}"
        for point in curve
    )


def _marks(root: Incident | None) -> Marks:
    """What to point at; nothing is restored after a spike that recovered."""
    if root is None:
        return Marks()
    words = {"confirmed": "fault", "suspected": "suspicion", "recovered": "spike that recovered"}
    certainty = str(root["certainty"])
    last_good = root.get("last_good") or {}
    return Marks(
        onset=root["first"]["iteration"],
        last_clean=(root["first"].get("interval") or [None])[0],
        last_good=None if certainty == "recovered" else last_good.get("iteration"),
        word=words.get(certainty, certainty),
    )


def _evidence_lines(verdict: Verdict, root: Incident, ink: Ink) -> list[str]:
    rows: list[Sequence[str]] = [("evidence", "metric", "ranks", "iteration", "value", "threshold")]
    evidence = root.get("evidence", [])
    rows += [_evidence_row(one) for one in evidence[:_MAX_ROWS]]
    lines = table(rows, ink)
    if len(evidence) > _MAX_ROWS:
        lines.append(f"  and {len(evidence) - _MAX_ROWS} more, in --json")
    others = [incident for incident in verdict["incidents"] if incident is not root]
    if others:
        header = ("other incident", "certainty", "ranks", "since")
        lines += ["", *table([header, *(_other_row(one, verdict) for one in others[:_MAX_ROWS])], ink)]
    return lines


def _evidence_row(one: Mapping[str, Any]) -> tuple[str, ...]:
    ranks = [int(rank) for rank in one.get("ranks", [])]
    return (
        clean(one["detector"], 16),
        clean(one["metric"], 22),
        rank_words(ranks, len(ranks), limit=2) if ranks else "-",
        str(one["iteration"]),
        *measured_words(one),
    )


def _other_row(incident: Incident, verdict: Verdict) -> tuple[str, ...]:
    who = subject(incident, verdict)[0].removeprefix("Ranks ").removeprefix("Rank ")
    label = LABEL_WORDS.get(incident["label"], incident["label"])
    return label, str(incident["certainty"]), clean(who, 26), str(incident["first"]["iteration"])


def _coverage_lines(verdict: Verdict, ink: Ink, *, is_detailed: bool) -> list[str]:
    coverage = verdict["coverage"]
    ran = [clean(check["name"]) for check in coverage["checks"] if check["state"] == "ran"]
    reached = verdict.get("judged_to_iteration")
    upto = "" if reached is None else f"up to iteration {reached}: "
    lines = field("Checked", f"{upto}{', '.join(ran) or 'nothing'}", ink)
    missing = [check for check in coverage["checks"] if check["state"] != "ran"]
    for at, words in enumerate(_missing_words(missing, is_detailed=is_detailed)):
        lines += field("Not checked" if at == 0 else "", words, ink)
    for at, blind in enumerate(coverage.get("blind_to", [])):
        lines += field("Blind to" if at == 0 else "", clean(blind, 300), ink)
    for title, is_hardware in (("Hardware", True), ("Benign", False)):
        notes = [
            note for note in verdict.get("annotations", []) if (note["kind"] == "hardware") is is_hardware
        ]
        for at, note in enumerate(notes[:_MAX_ROWS]):
            lines += field(title if at == 0 else "", annotation_words(note), ink)
    for at, note in enumerate(coverage.get("notes", [])[:_MAX_ROWS]):
        lines += field("Noted" if at == 0 else "", clean(note, 300), ink)
    lost = lost_words(coverage)
    return lines + (field("Records", lost, ink) if lost else [])


def _missing_words(missing: Sequence[Mapping[str, Any]], *, is_detailed: bool) -> list[str]:
    """Why checks did not run; of many, those that look at curves: a plain log cannot have the others."""
    named = [(clean(check["name"]), check.get("why")) for check in missing]
    told = [
        (name, why) for name, why in named if is_detailed or len(named) <= _MAX_REASONS or name in _OF_CURVES
    ]
    words = [f"{name}: {clean(why, 200)}" if why else name for name, why in told]
    others = [name for name, _ in named if name not in dict(told)]
    return [*words, f"{', '.join(others)} (why: --details)"] if others else words


def lost_words(coverage: Mapping[str, Any]) -> str:
    """What became of the records that no check saw; empty when all were used."""
    words = [f"{coverage.get('records', 0)} read"]
    named = {
        "rejected": "rejected",
        "late": "late",
        "conflicts": "told again with other values",
        "padding": "padding",
    }
    words += [f"{coverage[key]} {word}" for key, word in named.items() if coverage.get(key)]
    silent = coverage.get("silent_ranks") or []
    if silent:
        listed = rank_words(silent, int(coverage.get("silent_rank_count") or 0))
        since = coverage.get("silent_since") or []
        after = f" (the first after iteration {min(since)})" if since else ""
        words.append(f"silent at the end: rank {listed}{after}")
    return ", ".join(words) if len(words) > 1 else ""


def annotation_words(note: Mapping[str, Any]) -> str:
    """A benign event, and its first few numbers."""
    detail = note.get("detail") or {}
    if note["kind"] == "hardware":
        return clean(detail.get("what", ""), 300)
    extra = ", ".join(f"{clean(key, 24)} {value_words(value)}" for key, value in list(detail.items())[:3])
    words = f"{clean(str(note['kind']).replace('_', ' '))} at iteration {note['iteration']}"
    return f"{words} ({extra})" if extra else words


def measured_words(one: Mapping[str, Any]) -> tuple[str, str]:
    """Value and threshold of a piece of evidence; a value that is no number is shown itself, not counted."""
    seen = (one.get("detail") or {}).get("value")
    if one.get("detector") == "nonfinite" and isinstance(seen, str):
        return clean(seen, 20), "finite"
    return value_words(one.get("statistic")), value_words(one.get("threshold"))


def value_words(value: object) -> str:
    """A number of the evidence, as short as it gets."""
    if value == 0:
        return "0"  # -0 is 0
    return f"{value:.5g}" if isinstance(value, float) else clean("-" if value is None else value, 20)
