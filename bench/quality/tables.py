"""Figures as Markdown tables, from the JSON alone: the page of all of them, and the section of the README."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .case import Tier
from .comparison import FOUND
from .floor import Holds
from .scores import LABELS

Plain = Mapping[str, Any]
_SAID = (*LABELS, "stall", "undetermined")


def page(plain: Plain) -> str:
    """Everything that was measured."""
    parts = [
        f"# How right the verdicts are ({plain['mode']}: {plain['cases']} cases)",
        "Every figure with its 95 % interval and the number of cases. Made by `make bench-quality`.",
        "## What must hold",
        table(_FLOOR_HEAD, _floor_lines(plain["floors"])),
        "## Labels",
        confusion_table(plain["labels"]["confusion"]),
        table(("label", "precision", "recall", "F1"), _label_lines(plain["labels"])),
        "## By telemetry",
        "Delays and onset errors in logged points, of faults that mattered and show.",
        table(("", *(tier.value for tier in Tier)), _tier_lines(plain["tiers"])),
        "## By what became of the fault (rig)",
        table(_MATTER_HEAD, _matter_lines(plain["mattered"])),
        "## Cause",
        cause_table(plain["causes"]),
        "## One rank among its peers: found, by size of the fault",
        table(_OUTLIER_HEAD, _outlier_lines(plain["outliers"])),
        "## The same curves through other methods",
        contender_table(plain["contenders"]),
        _lost(plain),
        "## The same ranks through the published rule (rig, per-rank telemetry alone)",
        table(_RANK_HEAD, _rank_lines(plain["rank_contenders"])),
        "## By kind of case",
        "Share of labels that are right.",
        table(("case", *(tier.value for tier in Tier)), _family_lines(plain["families"])),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def section(plain: Plain) -> str:
    """What the README says: the labels, the floors, the comparison, and where we do not win."""
    labels = plain["labels"]
    parts = [
        _introduction(plain),
        confusion_table(labels["confusion"]),
        f"Macro-F1 {_value(labels['macro_f1'])}, in brackets the 95 % interval.",
        _standing(plain["floors"]),
        folded("What must hold, one by one", table(_FLOOR_HEAD, _floor_lines(plain["floors"]))),
        "The same curves through rules that people write first, and through other tools at their defaults:",
        contender_table(plain["contenders"]),
        _lost(plain),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _introduction(plain: Plain) -> str:
    return wrapped(
        f"`make bench-quality` ({plain['mode']}: {plain['cases']} runs with a known fault, or none, "
        "from seeds on which nothing was tuned) replays each as `firstfault replay` does. All figures are in "
        "[bench/results/quality.md](bench/results/quality.md). Rows are what is true, columns what was said:"
    )


def wrapped(text: str) -> str:
    """Prose in lines as long as those around it."""
    return textwrap.fill(text, 116, break_long_words=False, break_on_hyphens=False)


def table(head: Sequence[str], lines: Iterator[Sequence[str]]) -> str:
    """A table of Markdown.

    >>> print(table(("a", "b"), iter([("1", "2")])))
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def folded(summary: str, text: str) -> str:
    """A part that opens at a click."""
    return f"<details><summary>{summary}</summary>\n\n{text}\n\n</details>"


def confusion_table(counts: Mapping[str, Mapping[str, int]]) -> str:
    """True labels by row, said ones by column; labels that never occur are left out."""
    said = [label for label in _SAID if any(label in row for row in counts.values())]
    true = [label for label in _SAID if label in counts]
    lines = ([label, *(str(counts[label].get(column, 0)) for column in said)] for label in true)
    return table(("", *said), lines)


def cause_table(counts: Mapping[str, Mapping[str, int]]) -> str:
    """True kinds of cause by row, named ones by column."""
    if not counts:
        return ""
    said = sorted({kind for row in counts.values() for kind in row})
    lines = ([true, *(str(counts[true].get(kind, 0)) for kind in said)] for true in sorted(counts))
    return table(("true \\ said", *said), lines)


def contender_table(contenders: Sequence[Plain]) -> str:
    """One line for each method."""
    if not contenders:
        return ""
    cases = [f"{contenders[0]['found'][label]['cases']}" for label in FOUND]
    head = (
        "",
        *(f"{label} found (of {count})" for label, count in zip(FOUND, cases, strict=True)),
        "onset within 5",
        "ours of the same faults",
        f"healthy curves alarmed (of {contenders[0]['alarmed']['cases']})",
        "false alarms / 100 000",
    )
    lines = (
        [
            one["name"],
            *(_value(one["found"][label]) for label in FOUND),
            _value(one["near"]),
            _value(one["near_ours"]) if one.get("near_ours") else "–",
            _value(one["alarmed"]),
            _value(one["rate"]),
        ]
        for one in contenders
    )
    return table(head, lines)


def _lost(plain: Plain) -> str:
    lost = [f"* {line}" for line in plain["lost"]]
    missing = [f"* not installed: {line}" for line in plain["missing_peers"]]
    words = (
        ["Where another method has the better figure:", *lost]
        if lost
        else ["No other method is better in a column."]
    )
    return "\n".join([*words, *missing])


_FLOOR_HEAD = ("demand", "bound", "measured", "cases", "")


def _standing(floors: Sequence[Plain]) -> str:
    """How many floors hold, and which do not."""
    asked = [one for one in floors if one["bound"] is not None]
    counts = Counter(one["holds"] for one in asked)
    lost = [f"* {_floor_name(one)}: {_value(one)}" for one in asked if one["holds"] == Holds.NO]
    open_ones = len(asked) - counts[Holds.YES] - counts[Holds.NO]
    said = (
        f"Of {len(asked)} demands {counts[Holds.YES]} hold and {counts[Holds.NO]} do not; for {open_ones} "
        "these are too few cases to tell (`FULL=1` has ten times as many and more)."
    )
    return "\n".join([said, *(["Not held:", "", *lost] if lost else [])])


def _floor_name(one: Plain) -> str:
    return f"{one['name']} ({one['note']})" if one["note"] else str(one["name"])


def _floor_lines(floors: Sequence[Plain]) -> Iterator[list[str]]:
    for one in floors:
        yield [_floor_name(one), _bound(one), _value(one), str(one["cases"]), str(one["holds"])]


def _bound(one: Plain) -> str:
    if one["bound"] is None:
        return "–"
    if one["bound"] == 1.0 and not one["is_ceiling"]:
        return "all"
    return f"{'≤' if one['is_ceiling'] else '≥'} {one['bound']:g}"


def _label_lines(labels: Plain) -> Iterator[list[str]]:
    for label, figures in labels["each"].items():
        yield [label, *(_value(figures[name]) for name in ("precision", "recall", "f1"))]


_MATTER_HEAD = ("tier", "faults that", "label right", "any incident confirmed", "cases")
_OF_TIER = {
    "macro-F1": "macro_f1",
    "label right": "recall",
    "onset error, median": "onset_median",
    "onset error, 90 %": "onset_90",
    "interval covers the onset": "covered",
    "suspected": "suspected",
    "delay to it, median": "suspected_delay",
    "delay to it, 90 %": "suspected_delay_90",
    "confirmed": "confirmed",
    "delay to that, median": "confirmed_delay",
    "delay to that, 90 %": "confirmed_delay_90",
    "stage right": "stage",
    "false alarms / 100 000": "false_alarms",
}


def _tier_lines(tiers: Plain) -> Iterator[list[str]]:
    for name, key in _OF_TIER.items():
        yield [name, *(_value(tiers[tier.value][key], with_cases=True) for tier in Tier)]
    for kind in ("exact", "tie", "none", "wrong"):
        yield [f"rank {kind}", *(_value(tiers[tier.value]["ranks"][kind], with_cases=True) for tier in Tier)]


def _matter_lines(mattered: Plain) -> Iterator[list[str]]:
    for tier, kinds in mattered.items():
        for name, one in kinds.items():
            yield [tier, name, _value(one["right"]), _value(one["confirmed"]), str(one["right"]["cases"])]


_RANK_HEAD = (
    "",
    "fault of one rank that mattered, found on it",
    "harmless one that shows, found on it",
    "healthy runs alarmed",
    "false alarms / 100 000",
)


def _rank_lines(contenders: Sequence[Plain]) -> Iterator[list[str]]:
    for one in contenders:
        figures = (one[name] for name in ("found", "harmless", "alarmed", "rate"))
        yield [one["name"], *(_value(figure, with_cases=True) for figure in figures)]


_OUTLIER_HEAD = ("noise", "fault", "ours", "leave-one-out rule at 0.01 % a step", "cases")


def _outlier_lines(outliers: Sequence[Plain]) -> Iterator[list[str]]:
    for one in outliers:
        how = "for good, within 100" if one["is_lasting"] else "one step"
        what = f"{one['sigmas']:g} sigma, {how}" if one["sigmas"] else "none: share of steps alarmed"
        yield [one["noise"], what, _value(one["ours"]), _value(one["rule"]), str(one["ours"]["cases"])]


def _family_lines(families: Plain) -> Iterator[list[str]]:
    for name, tiers in families.items():
        shares = [tiers.get(tier.value) for tier in Tier]
        yield [name, *("" if one is None else _value(one, with_cases=True) for one in shares)]


def _value(figure: Plain, *, with_cases: bool = False) -> str:
    """A figure with its interval; a dash of no cases."""
    if not figure["cases"] or figure["value"] == "nan":
        return "–"
    text = f"{_short(figure['value'])} [{_short(figure['low'])}, {_short(figure['high'])}]"
    return f"{text} of {figure['cases']}" if with_cases else text


def _short(value: float | str) -> str:
    """Three digits, or two that matter.

    >>> _short(0.98765), _short(12.0), _short(0.000167), _short("inf")
    ('0.988', '12', '0.00017', '∞')
    """
    if isinstance(value, str):
        return "∞" if value == "inf" else value
    if abs(value) >= 10:
        return f"{value:.0f}"
    if 0 < abs(value) < 0.01:
        return f"{value:.2g}"
    return f"{value:.3f}".rstrip("0").rstrip(".")
