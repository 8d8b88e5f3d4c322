"""The plain report of ``firstfault replay``: a sentence, the reasons, a plot, what was checked.

80 columns, good to read without colour, and safe to paste into a ticket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .ink import WIDTH, Ink, clean, pad, table, wrap
from .plot import CurvePoint, Marks, draw
from .sentence import LABEL_WORDS, Incident, Verdict, headline, rank_words, root_incident, subject

_FIELD = 13
_MAX_ROWS = 8
"""Rows of a table in the report: what a person reads; the JSON has all."""
_SEVERITY = ("silent_drift", "nan", "gradient_explosion", "stall", "undetermined", "healthy")


@dataclass(frozen=True, slots=True)
class Judged:
    """One judged run: where it came from, its verdict as JSON, and its loss curve for the plot."""

    source: str
    verdict: Verdict
    curve: Sequence[CurvePoint] = ()


def report(judged: Sequence[Judged], ink: Ink) -> str:
    """All runs: a summary table when there are several, then each run, the worst first."""
    ordered = sorted(judged, key=_badness)
    parts = [summary_table(ordered, ink)] if len(ordered) > 1 else []
    parts += [run_report(one, ink) for one in ordered if len(ordered) == 1 or not is_healthy(one.verdict)]
    return "\n\n".join(parts) + "\n"


def is_healthy(verdict: Verdict) -> bool:
    """Whether the run's label is healthy."""
    return bool(verdict["label"] == "healthy")


def summary_table(judged: Sequence[Judged], ink: Ink) -> str:
    """One line a run: verdict, ranks, iteration."""
    bad = sum(1 for one in judged if has_confirmed_incident(one.verdict))
    unknown = sum(1 for one in judged if one.verdict["label"] == "undetermined")
    words = f"{len(judged)} runs: {bad} faulty, {len(judged) - bad - unknown} healthy"
    title = words + (f", {unknown} too little to judge" if unknown else "")
    rows: list[Sequence[str]] = [("run", "verdict", "ranks", "since", "judged to")]
    rows += [_summary_row(one.verdict) for one in judged]
    painted = [_label_style(one.verdict) for one in judged]
    return "\n".join([ink.paint(title, "bold"), "", *table(rows, ink, styles=painted)])


def run_report(judged: Judged, ink: Ink) -> str:
    """The whole report of one run."""
    verdict = judged.verdict
    lines = [ink.paint(line, "bold", *_label_style(verdict)) for line in wrap(headline(verdict))]
    root = root_incident(verdict)
    if root is not None:
        lines += ["", *_reasons(root, ink)]
    lines += _curve_lines(judged, root, ink)
    if root is not None:
        lines += ["", *_evidence_lines(verdict, root, ink)]
    lines += ["", *_coverage_lines(verdict, ink)]
    return "\n".join(line.rstrip() for line in lines)


def has_confirmed_incident(verdict: Verdict) -> bool:
    """Whether any incident is confirmed: what makes the exit status 1."""
    return any(incident["certainty"] == "confirmed" for incident in verdict["incidents"])


def _badness(judged: Judged) -> tuple[int, str, str]:
    label = str(judged.verdict["label"])
    rank = _SEVERITY.index(label) if label in _SEVERITY else len(_SEVERITY)
    return rank, str(judged.verdict["run"]), judged.source


def _summary_row(verdict: Verdict) -> tuple[str, ...]:
    root = root_incident(verdict) if has_confirmed_incident(verdict) else None
    ranks, since = "", ""
    if root is not None:
        first = root["first"]
        ranks = (
            rank_words(first["ranks"], int(first.get("rank_count") or 0), limit=3)
            if first.get("ranks")
            else "all"
        )
        if not first.get("ranks") and subject(first, verdict)[0] == "The run":
            ranks = "-"
        since = str(first["iteration"])
    label = LABEL_WORDS.get(str(verdict["label"]), str(verdict["label"]))
    judged_to = verdict.get("judged_to_iteration")
    return clean(verdict["run"], 28), label, ranks, since, "" if judged_to is None else str(judged_to)


def _label_style(verdict: Verdict) -> tuple[str, ...]:
    if has_confirmed_incident(verdict):
        return ("red",)
    return ("green",) if is_healthy(verdict) else ("yellow",)


def _field(name: str, text: str, ink: Ink) -> list[str]:
    """A name and its text, wrapped beside it."""
    lines = wrap(text, first="  " + pad(name, _FIELD), rest=" " * (_FIELD + 2))
    lines[0] = "  " + ink.paint(pad(name, _FIELD), "dim") + lines[0][_FIELD + 2 :]
    return lines


def _reasons(root: Incident, ink: Ink) -> list[str]:
    lines: list[str] = []
    for at, cause in enumerate(root.get("causes", [])[:3]):
        lines += _field("Cause" if at == 0 else "or", _cause_words(cause), ink)
    lines += _field("Certainty", _certainty_words(root), ink)
    lines += _victim_lines(root, ink)
    chain = list(root.get("chain", [])[1:])
    if chain:
        text = ", ".join(
            f"{LABEL_WORDS.get(link['label'], link['label'])} at iteration {link['iteration']}"
            for link in chain
        )
        lines += _field("Then", text, ink)
    lines += _field("Last good", _last_good_words(root.get("last_good")), ink)
    cost = _cost_words(root.get("cost") or {})
    lines += _field("Cost", cost, ink) if cost else []
    for at, advice in enumerate(root.get("advice", [])):
        lines += _advice_lines(advice, ink, is_first=at == 0)
    return lines


def _certainty_words(root: Incident) -> str:
    return f"{root['certainty']}, first alarm at iteration {root.get('detected_at_iteration')}"


def _victim_lines(root: Incident, ink: Ink) -> list[str]:
    suspects = [s for s in root["first"].get("suspects", []) if s.get("why")]
    lines: list[str] = []
    for at, suspect in enumerate(suspects[:3]):
        lines += _field(
            "Why" if at == 0 else "", f"rank {suspect['rank']}: {clean(suspect['why'], 400)}", ink
        )
    victims = [int(v["rank"]) if isinstance(v, Mapping) else int(v) for v in root["first"].get("victims", [])]
    if victims:
        lines += _field(
            "Victims", f"rank {rank_words(sorted(victims), len(victims))} turned bad after it", ink
        )
    return lines


def _cause_words(cause: Mapping[str, Any]) -> str:
    words = clean(str(cause["kind"]).replace("_", " "))
    if cause.get("stage"):
        words += f", {clean(str(cause['stage']).replace('_', ' '))}"
    if cause.get("confidence") is not None:
        words += f" (confidence {float(cause['confidence']):.0%})"
    because = "; ".join(clean(reason, 300) for reason in cause.get("because", []))
    return f"{words}: {because}" if because else words


def _last_good_words(last_good: Mapping[str, Any] | None) -> str:
    if not last_good or last_good.get("iteration") is None:
        return "unknown: no iteration is known to be clean"
    words = f"iteration {last_good['iteration']}"
    if last_good.get("basis"):
        words += f" ({clean(str(last_good['basis']).replace('_', ' '))})"
    checkpoint = last_good.get("checkpoint")
    return (
        f"{words}; restore {clean(checkpoint, 200)}"
        if checkpoint
        else f"{words}; no checkpoint was reported before it"
    )


def _cost_words(cost: Mapping[str, Any]) -> str:
    words = []
    onset = cost.get("iterations_since_onset")
    if onset:
        low, high = (onset[0], onset[-1]) if isinstance(onset, Sequence) else (onset, onset)
        words.append(f"{low if low == high else f'{low} to {high}'} iterations since the onset")
    if cost.get("iterations_to_redo") is not None:
        words.append(f"{cost['iterations_to_redo']} to redo")
    if cost.get("device_hours") is not None:
        words.append(
            f"{cost['device_hours']:.3g} device hours"
            if isinstance(cost["device_hours"], float)
            else f"{cost['device_hours']} device hours"
        )
    return ", ".join(words)


def _advice_lines(advice: Mapping[str, Any], ink: Ink, *, is_first: bool) -> list[str]:
    action = clean(str(advice["action"]).replace("_", " "), 200)
    target = f" {clean(advice['target'], 120)}" if advice.get("target") else ""
    lines = _field("What to do" if is_first else "", f"{ink.either('•', '-')} {action}{target}", ink)
    if advice.get("command"):
        lines += [ink.paint(line, "cyan") for line in _command_lines(clean(advice["command"], 400))]
    return lines


def _command_lines(command: str) -> list[str]:
    """A command to copy: broken with a backslash, and not at all where a break could fall into quotes."""
    start, rest = " " * (_FIELD + 4) + "$ ", " " * (_FIELD + 8)
    if "'" in command or '"' in command or "\\" in command:
        return [start + command]
    lines = wrap(command, first=start, rest=rest, width=WIDTH - 2)
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]


def _curve_lines(judged: Judged, root: Incident | None, ink: Ink) -> list[str]:
    if len(judged.curve) < 2:
        return []
    ranks = judged.verdict["coverage"].get("ranks") or 0
    title = f"loss, median of {ranks} ranks" if isinstance(ranks, int) and ranks > 1 else "loss"
    marks = Marks()
    if root is not None:
        first, good = root["first"], root.get("last_good") or {}
        marks = Marks(
            onset=first["iteration"],
            last_clean=(first.get("interval") or [None])[0],
            last_good=good.get("iteration"),
        )
    return ["", *draw(judged.curve, marks, ink, title=title, width=WIDTH - 2)]


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
        _value(one.get("statistic")),
        _value(one.get("threshold")),
    )


def _other_row(incident: Incident, verdict: Verdict) -> tuple[str, ...]:
    who = subject(incident["first"], verdict)[0].removeprefix("Ranks ").removeprefix("Rank ")
    label = LABEL_WORDS.get(incident["label"], incident["label"])
    return label, str(incident["certainty"]), clean(who, 26), str(incident["first"]["iteration"])


def _coverage_lines(verdict: Verdict, ink: Ink) -> list[str]:
    coverage = verdict["coverage"]
    ran = [clean(check["name"]) for check in coverage["checks"] if check["state"] == "ran"]
    lines = _field(
        "Checked", f"{', '.join(ran) or 'nothing'}; to iteration {verdict.get('judged_to_iteration')}", ink
    )
    missing = [check for check in coverage["checks"] if check["state"] != "ran"]
    for at, check in enumerate(missing):
        why = f": {clean(check['why'], 200)}" if check.get("why") else ""
        lines += _field("Not checked" if at == 0 else "", f"{clean(check['name'])}{why}", ink)
    for at, blind in enumerate(coverage.get("blind_to", [])):
        lines += _field("Blind to" if at == 0 else "", clean(blind, 300), ink)
    for at, note in enumerate(verdict.get("annotations", [])[:_MAX_ROWS]):
        lines += _field("Benign" if at == 0 else "", _annotation_words(note), ink)
    if coverage.get("rejected"):
        lines += _field("Rejected", f"{coverage['rejected']} records or values, see the notes above", ink)
    return lines


def _annotation_words(note: Mapping[str, Any]) -> str:
    detail = note.get("detail") or {}
    extra = ", ".join(f"{clean(key, 24)} {_value(value)}" for key, value in list(detail.items())[:3])
    words = f"{clean(str(note['kind']).replace('_', ' '))} at iteration {note['iteration']}"
    return f"{words} ({extra})" if extra else words


def _value(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, float) else clean("-" if value is None else value, 20)
