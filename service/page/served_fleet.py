"""The runs as a list in the document itself, the worst first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode

from service import reading
from service.api.context import Context
from service.api.pages import from_cursor, to_cursor
from service.api.problems import ProblemError
from service.api.run_summary import summaries
from service.html_markup import Markup, data, tag
from service.ink import clean
from service.rank_words import rank_words
from service.reading import RunQuery
from service.sentence import LABEL_WORDS

_SHOWN = 50
"""Runs of a page: a screen or two; the list with scripts has more at once."""
_SHAPES: Mapping[str, str] = {"critical": "◆", "warning": "▲", "info": "●", "none": "○"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFilter:
    """Which runs; what is no word of the API's filters nothing."""

    label: str | None = None
    severity: str | None = None
    state: str | None = None
    text: str | None = None
    page: str | None = None


def fleet_part(context: Context, wanted: FleetFilter) -> Markup:
    """The list, and where it goes on."""
    query = RunQuery(
        label=wanted.label or None,
        severity=wanted.severity or None,
        text=wanted.text or None,
        state=wanted.state or None,
        order="severity",
        after=_place(wanted.page),
        limit=_SHOWN + 1,
    )
    with context.database.read() as db:
        rows = reading.list_runs(db, query, context.clock())
        items = summaries(db, rows[:_SHOWN], context.clock())
    if not items:
        words = (
            "No run matches."
            if wanted != FleetFilter(page=wanted.page)
            else "No run yet. To see a fault found:"
        )
        return tag("section", tag("h1", "Runs"), tag("p", f"{words} "), tag("code", "firstfault demo"))
    more = None
    if len(rows) > _SHOWN:
        place = to_cursor("runs/severity", reading.place_of_run(rows[_SHOWN - 1], "severity"))
        given = {**asdict(wanted), "page": place}
        query_text = urlencode({key: value for key, value in given.items() if value})
        more = tag("p", tag("a", "More runs", href=f"/?{query_text}"))
    listed = tag("ol", *(_item(one) for one in items), class_="runs-list")
    return tag("section", tag("h1", "Runs"), listed, more, class_="served")


def _item(run: Mapping[str, Any]) -> Markup:
    is_bad = run["severity"] != "none"
    way = f"/?incident={run['incident_id']}" if is_bad and run["incident_id"] else f"/?run={run['run_id']}"
    label = LABEL_WORDS.get(run["label"], run["label"])
    word = f"{run['severity']}, {label}" if is_bad else label
    mark = tag("span", f"{_SHAPES[run['severity']]} {word}", class_=f"mark {run['severity']}")
    facts = [_first(run) if is_bad else "", f"judged to {run['judged_to_iteration']}", _covered(run)]
    facts += [
        f"{count} {state.replace('_', ' ')}"
        for state, count in run["incident_states"].items()
        if state != "open" or count > 1
    ]
    return tag(
        "li",
        tag("a", data(run["run"]), href=way),
        " ",
        mark,
        tag("span", clean(run["sentence"], 400), class_="what"),
        tag("span", "; ".join(one for one in facts if one), class_="since"),
    )


def _first(run: Mapping[str, Any]) -> str:
    first = run["first"]
    if first is None:
        return ""
    ranks, hosts = first.ranks, first.hosts
    who = f"rank {rank_words(ranks, first.rank_count, limit=4)}" if ranks else "no single rank"
    where = f" on {clean(hosts[0], 80)}" if hosts else ""
    return f"{who}{where}, iteration {first.iteration}"


def _covered(run: Mapping[str, Any]) -> str:
    covered = run["coverage"]
    return f"{covered.checks_run} of {covered.checks_run + covered.checks_not_run} checks"


def _place(cursor: str | None) -> tuple[Any, ...] | None:
    try:
        return from_cursor("runs/severity", cursor, (int, float, str))
    except ProblemError:
        return None  # of another list, or cut: the page begins anew
