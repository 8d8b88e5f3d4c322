"""A run or an incident as the document holds it: the parts of the static report, with one curve.

Axes: B rows of a curve.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sqlalchemy import Connection

from firstfault.telemetry import Kind, contract_of
from service import reading
from service.api.context import Context
from service.api.values import timestamp
from service.history_curve import Curve
from service.html_cards import card
from service.html_markup import Markup, data, tag
from service.html_run import ShownRun, run_part
from service.ink import clean
from service.picture import AttemptPicture
from service.picture_curve import CurveBucket
from service.reading import IncidentRow
from service.sentence import Verdict, incident_sentence, root_incident

_POINTS = 480
"""Rows of the curve: what a chart that is drawn on the server can show."""
_CURVES = ("loss", "global_loss", "grad_norm", "local_grad_norm")
_OTHERS = 20
"""Further incidents that are linked."""


def run_part_of(context: Context, run_id: str) -> tuple[str, Markup] | None:
    """Name and markup of a run; None if there is none such."""
    with context.database.read() as db:
        body = reading.verdict_bytes(db, run_id)
    if body is None:
        return None
    verdict = json.loads(body)
    others = [one for one in verdict["incidents"] if one is not root_incident(verdict)]
    return verdict["run"], _drawn(context, run_id, verdict, [], others)


def incident_part(context: Context, incident_id: str) -> tuple[str, Markup] | None:
    """Name of the run and markup of one of its incidents; None if there is none such."""
    with context.database.read() as db:
        row = reading.find_incident(db, incident_id, context.clock())
        body = None if row is None else reading.verdict_bytes(db, row.run_id)
        if row is None or body is None:
            return None
        said = _said(db, row)
    verdict = json.loads(body)
    others = [one for one in verdict["incidents"] if one["id"] != incident_id]
    # the sentence and the numbers of the page are those of the incident that was asked for
    shown = {**verdict, "incidents": [json.loads(row.body)]}
    return row.run, _drawn(context, row.run_id, shown, [said], others)


def _drawn(
    context: Context, run_id: str, verdict: Verdict, further: Sequence[Markup], others: Sequence[Any]
) -> Markup:
    pictures = _pictures(context, run_id, verdict)
    part = run_part(ShownRun(verdict=verdict, pictures=pictures), 1, most_charts=1, is_alone=True)
    way = tag("nav", tag("a", "← All runs", href="/"), aria_label="Where you are")
    return tag("div", way, part, *further, _linked(others, verdict), class_="served")


def _said(db: Connection, row: IncidentRow) -> Markup:
    """What people made of an incident."""
    until = f" until {timestamp(row.muted_until)}" if row.muted_until is not None else ""
    state = "withdrawn: later records explain it" if row.is_withdrawn else row.state.replace("_", " ")
    entries = [
        tag(
            "li",
            tag("b", entry.state.replace("_", " ")),
            " by ",
            data(entry.who, 80),
            f" at {timestamp(entry.at)}",
            f": {clean(entry.note, 400)}" if entry.note else "",
        )
        for entry in reading.incident_history(db, row.id)
    ]
    opened = f"{state}{until}; stored {timestamp(row.opened_at)}"
    return card("What people made of it", tag("p", opened), tag("ul", *entries) if entries else None)


def _linked(others: Sequence[Any], verdict: Verdict) -> Markup | None:
    items = [
        tag("li", tag("a", incident_sentence(one, verdict), href=f"/?incident={one['id']}"), f" ({word})")
        for one in others[:_OTHERS]
        for word in [one["certainty"]]
    ]
    left = len(others) - len(items)
    more = tag("p", f"and {left} more", class_="soft") if left > 0 else None
    return card("Incidents beside it", tag("ul", *items), more) if items else None


def _pictures(context: Context, run_id: str, verdict: Verdict) -> list[AttemptPicture]:
    """The curve in which it is seen, or the loss, of the incident's attempt or the last."""
    history = context.history
    attempts = [] if history is None else history.attempts(run_id)
    if history is None or not attempts:
        return []
    root = root_incident(verdict)
    wanted = attempts[-1] if root is None else int(root["first"].get("attempt") or 0)
    attempt = wanted if wanted in attempts else attempts[-1]
    for metric in _chosen(verdict, root):
        buckets = buckets_of(history.curve(run_id, attempt, metric, points=_POINTS))
        if buckets:
            return [AttemptPicture(attempt, {metric: buckets}, {})]
    return []


def _chosen(verdict: Verdict, root: Mapping[str, Any] | None) -> list[str]:
    known = verdict["coverage"]["metrics"]
    first = "" if root is None else str(root["first"].get("metric") or "")
    curves = [name for name in known if contract_of(name).kind in (Kind.CURVE, Kind.AGREED)]
    named = [first] if first in curves else []
    return list(dict.fromkeys([*named, *(one for one in _CURVES if one in known), *curves]))[:4]


def buckets_of(curve: Curve) -> list[CurveBucket]:
    """The rows of a curve as what a chart is drawn from: the line is the median, the band every rank.

    A row of several positions has the median of its last; the extremes of all of them are in the band.
    """
    names = ("iteration", "last_iteration", "median", "min", "max", "nan", "posinf", "neginf")
    columns = [np.asarray(curve.columns[name]).tolist() for name in names]
    found = []
    for first, last, *values, nan, posinf, neginf in zip(*columns, strict=True):
        middle, low, high = (value if np.isfinite(value) else None for value in values)
        line = (middle, middle, middle, middle)
        found.append(CurveBucket(first, last, *line, low, high, nan, posinf, neginf))
    return found
