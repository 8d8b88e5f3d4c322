"""Why a verdict is believed, and how far it reaches: the evidence, other incidents, what was checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .html_cards import card, facts, listing, sentences
from .html_markup import Markup, Part, data, tag
from .ink import clean
from .rank_words import rank_words
from .report import annotation_words, lost_words, measured_words, value_words
from .sentence import LABEL_WORDS, Incident, Verdict, subject

_MAX_ROWS = 50
_MAX_DETAILS = 8
_DETAIL_LIMIT = 160
"""Characters of one detail: a sentence, not a dump."""


def evidence_card(root: Incident) -> Markup | None:
    """What the detectors saw, with the numbers that decided."""
    evidence = root.get("evidence", [])
    if not evidence:
        return None
    names = ("detector", "metric", "ranks", "iteration", "value", "threshold", "detail")
    left = max(int(root.get("evidence_count") or 0), len(evidence)) - min(len(evidence), _MAX_ROWS)
    return card(
        "Evidence",
        listing(names, map(_evidence_row, evidence[:_MAX_ROWS]), "Evidence", ("",) * 6 + ("detail",)),
        tag("p", f"and {left} more, in the verdict's JSON", class_="soft") if left > 0 else None,
        kind="evidence",
    )


def others_card(root: Incident, verdict: Verdict) -> Markup | None:
    """The incidents beside the root."""
    others = [incident for incident in verdict["incidents"] if incident is not root]
    if not others:
        return None
    rows = [
        (
            LABEL_WORDS.get(one["label"], one["label"]),
            str(one["certainty"]),
            subject(one, verdict)[0],
            str(one["first"]["iteration"]),
        )
        for one in others[:_MAX_ROWS]
    ]
    left = len(others) - len(rows)
    return card(
        "Other incidents",
        listing(("label", "certainty", "where", "since"), rows, "Other incidents"),
        tag("p", f"and {left} more, in the verdict's JSON", class_="soft") if left else None,
        kind="others",
    )


def coverage_card(verdict: Verdict) -> Markup:
    """The checks that ran, those that could not and why, and what the telemetry can never show."""
    coverage = verdict["coverage"]
    ran = [_name(check) for check in coverage["checks"] if check["state"] == "ran"]
    missing = [
        f"{_name(check)}: {check['why']}" if check.get("why") else _name(check)
        for check in coverage["checks"]
        if check["state"] != "ran"
    ]
    return card(
        "What was checked, and what was not",
        facts(
            (
                ("Checked", ", ".join(ran) or "nothing"),
                ("Not checked", sentences(missing)),
                ("Blind to", sentences(coverage.get("blind_to", []))),
                ("Hardware", sentences(_notes(verdict, are_of_hardware=True))),
                ("Benign", sentences(_notes(verdict, are_of_hardware=False))),
                ("Noted", sentences(coverage.get("notes", []))),
                ("Records", lost_words(coverage)),
            )
        ),
    )


def _notes(verdict: Mapping[str, Any], *, are_of_hardware: bool) -> list[str]:
    """Annotations in words: a failing device is none of the benign ones."""
    return [
        annotation_words(note)
        for note in verdict.get("annotations", [])
        if (note["kind"] == "hardware") is are_of_hardware
    ]


def _name(check: Mapping[str, Any]) -> str:
    return clean(str(check["name"]).replace("_", " "), 40)


def _evidence_row(one: Mapping[str, Any]) -> tuple[Part, ...]:
    ranks = [int(rank) for rank in one.get("ranks", [])]
    low, high = one.get("interval") or [None, None]
    span = f" (after {low})" if low is not None and high is not None and high - low > 1 else ""
    return (
        data(str(one["detector"]).replace("_", " "), 40),
        data(one["metric"], 80),
        rank_words(ranks, int(one.get("rank_count") or len(ranks)), limit=3) if ranks else "–",
        f"{one['iteration']}{span}",
        *measured_words(one),
        "; ".join(_details(one.get("detail") or {})),
    )


def _details(detail: Mapping[str, Any]) -> Iterator[str]:
    for key, value in list(detail.items())[:_MAX_DETAILS]:
        yield f"{clean(str(key).replace('_', ' '), 40)} {_short(value)}"


def _short(value: object) -> str:
    if isinstance(value, list):
        return f"{', '.join(_short(one) for one in value[:6])}{', …' if len(value) > 6 else ''}" or "none"
    if isinstance(value, Mapping):
        listed = list(value.items())
        words = ", ".join(f"{clean(str(key), 40)} {_short(one)}" for key, one in listed[:6])
        return words + (", …" if len(listed) > 6 else "")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean(value, _DETAIL_LIMIT) if isinstance(value, str) else value_words(value)
