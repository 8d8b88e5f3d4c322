"""The plain report of ``firstfault compare``: a sentence, what differs first, the windows. 80 columns.

Works on the JSON of the comparison, so that both outputs say the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firstfault.telemetry import UNNAMED_RANK

from .ink import Ink, clean, table, wrap
from .rank_words import rank_words
from .reasons import field

# Any: the JSON of a comparison, as `compare_command.to_plain` gives it.
Plain = Mapping[str, Any]

_MAX_ROWS = 8
_STYLES = {"same": "green", "differs": "red", "unknown": "yellow"}


def compare_report(compared: Plain, ink: Ink) -> str:
    """The whole report."""
    style = _STYLES[str(compared["outcome"])]
    lines = [ink.paint(line, "bold", style) for line in wrap(headline(compared))]
    lines += ["", *field("First", clean(compared["first"], 200), ink)]
    lines += field("Second", clean(compared["second"], 200), ink)
    lines += _exact_lines(compared, ink)
    # of runs that are bit-equal windows have nothing to add
    windows = [] if compared["outcome"] == "same" and compared["basis"] == "bits" else compared["windows"]
    rows = [_window_row(one) for one in windows]
    if rows:
        header = ("curve", "points", "windows", "worst", "at", "threshold", "verdict")
        lines += ["", *table([header, *rows], ink)]
    for one in windows:
        if one["why"]:
            lines += field(clean(one["metric"], 12), clean(one["why"], 200), ink)
    return "\n".join(line.rstrip() for line in lines) + "\n"


def headline(compared: Plain) -> str:
    """One sentence: the same or not, by what, and where the difference begins."""
    exact, outcome, basis = compared["exact"], compared["outcome"], compared["basis"]
    if outcome == "unknown":
        return f"Not to be told: {clean(compared['why'], 300)}.{_bits_words(exact)}"
    if outcome == "same" and basis == "bits":
        how = "as printed" if exact["is_printed"] else "bit for bit"
        return (
            f"The same, {how}: {exact['values']} values of {len(exact['metrics'])} metrics at"
            f" {exact['positions']} common positions, iterations {exact['first_iteration']} to"
            f" {exact['last_iteration']}."
        )
    if outcome == "same":
        told = [one for one in compared["windows"] if one["verdict"] == "same"]
        figures = ", ".join(f"{clean(one['metric'])} {_percent(one['worst'])}" for one in told)
        return f"The same within noise: the windows that differ most are {figures} apart.{_bits_words(exact)}"
    if basis == "bits":
        return f"They differ: {_difference_words(exact['difference'])}.{_noise_words(compared['windows'])}"
    first = next(one for one in compared["windows"] if one["verdict"] == "differs")
    span = f"iterations {first['first_from']} to {first['first_to']}"
    if first["threshold"] is None:
        words = f"They differ: {clean(first['metric'])}: {clean(first['why'], 120)}, first in {span}."
        return words + _bits_words(exact)
    return (
        f"They differ beyond noise: the mean {clean(first['metric'])} is {_percent(first['worst'])} apart at"
        f" worst, where {_percent(first['threshold'])} is noise; first in {span}.{_bits_words(exact)}"
    )


def _noise_words(windows: Sequence[Plain]) -> str:
    """Since when the difference is more than noise, beside an answer that rests on bits."""
    for one in windows:
        if one["verdict"] == "differs" and one["first_from"] is not None:
            span = f"iterations {one['first_from']} to {one['first_to']}"
            return f" Beyond noise they differ first in {span} ({clean(one['metric'])})."
    told = [one for one in windows if one["verdict"] == "same"]
    return " Within windows of iterations that is no more than noise." if told else ""


def _bits_words(exact: Plain) -> str:
    """Where the first bit differs, beside an answer that rests on windows."""
    one = exact["difference"]
    if one is None:
        return ""
    how = "As printed" if exact["is_printed"] else "Bit for bit"
    ranks = [int(rank) for rank in one["ranks"] if rank != UNNAMED_RANK]
    few = 0 < len(ranks) < one["compared_ranks"]
    who = f", rank{'s' if len(ranks) > 1 else ''} {rank_words(ranks, len(ranks), limit=3)}" if few else ""
    return f" {how} they differ since iteration {one['iteration']}{who} ({clean(one['metric'])})."


def _difference_words(one: Plain) -> str:
    ranks = [int(rank) for rank in one["ranks"] if rank != UNNAMED_RANK]
    who = ""
    if ranks and len(ranks) < one["compared_ranks"]:
        who = f" of rank{'s' if len(ranks) > 1 else ''} {rank_words(ranks, len(ranks))}"
    elif len(ranks) > 1:
        who = f" of all {len(ranks)} ranks"
    since = "" if one["last_equal"] is None else f" (equal until {one['last_equal']})"
    words = f"{clean(one['metric'])}{who} is the first that is not the same, at iteration {one['iteration']}"
    return f"{words}{since}, phase {one['phase']}: {clean(one['first'])} and {clean(one['second'])}"


def _exact_lines(compared: Plain, ink: Ink) -> list[str]:
    exact = compared["exact"]
    alike = "equal as printed" if exact["is_printed"] else "bit-equal"
    share = f"{exact['equal_values']} of {exact['values']} values are {alike}"
    before = f", {exact['equal_positions']} of {exact['positions']} positions before the first difference"
    lines = field("Bits", share + (before if exact["difference"] else ""), ink)
    for at, printed in enumerate(exact["printed"][:_MAX_ROWS] if exact["is_printed"] else []):
        lines += field("Printed" if at == 0 else "", _precision_words(*printed), ink)
    lines += _stride_lines(compared, ink)
    if compared["is_deterministic"]:
        never = "" if exact["equal_positions"] else ", but were never equal: another seed, or other data"
        lines += field("", f"both say that they are deterministic{never}", ink)
    if exact["passed_over"]:
        names: Sequence[str] = exact["passed_over"]
        more = f" and {len(names) - _MAX_ROWS} more" if len(names) > _MAX_ROWS else ""
        shown = ", ".join(clean(name, 30) for name in names[:_MAX_ROWS])
        lines += field("Not compared", f"{shown}{more}: nothing says that they must be equal", ink)
    if len(exact["differences"]) > 1:
        header = ("differs first", "iteration", "phase", "ranks", "first", "second")
        rows = [_difference_row(one) for one in exact["differences"][:_MAX_ROWS]]
        lines += ["", *table([header, *rows], ink)]
        if len(exact["differences"]) > _MAX_ROWS:
            lines.append(f"  and {len(exact['differences']) - _MAX_ROWS} more, in --json")
    return lines


def _precision_words(metric: str, one: str, two: str) -> str:
    """How both logs print a metric, and what equal means where that is not the same."""
    first, second = (words if words.startswith("in ") else f"with {words}" for words in (one, two))
    if one == two:
        return f"{clean(metric, 30)} {first}"
    both = f"{clean(metric, 30)} {first} in the first, {second} in the second"
    return f"{both}: equal where both can be roundings of one number"


def _stride_lines(compared: Plain, ink: Ink) -> list[str]:
    """How often each of the two reports, where that is not the same."""
    one, two = compared["strides"]
    if one == two or None in (one, two):
        return []
    return field("Counters", f"every {one} iterations in the first, every {two} in the second", ink)


def _difference_row(one: Plain) -> tuple[str, ...]:
    ranks = [int(rank) for rank in one["ranks"] if rank != UNNAMED_RANK]
    return (
        clean(one["metric"], 20),
        str(one["iteration"]),
        str(one["phase"]),
        rank_words(ranks, len(ranks), limit=2) if ranks else "-",
        clean(one["first"], 12),
        clean(one["second"], 12),
    )


def _window_row(one: Plain) -> tuple[str, ...]:
    has_worst = one["worst_from"] is not None
    return (
        clean(one["metric"], 16),
        str(one["points"]),
        f"{one['windows']} x {one['window_points']}",
        _percent(one["worst"]),
        f"{one['worst_from']}-{one['worst_to']}" if has_worst else "-",
        _percent(one["threshold"]),
        str(one["verdict"]).replace("_", " "),
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
