"""`firstfault replay --html`: one page with all runs that stands alone, to be forwarded and printed.

No script, nothing loaded from anywhere: its policy forbids both, so that a page out of a log of strangers
can be opened without a thought. Equal logs give equal bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources

from .html_cards import card, listing, sentences
from .html_markup import Markup, Part, data, join, tag
from .html_run import ShownRun, badge, run_part
from .ink import clean
from .place_words import place_words
from .sufficiency import headline, severity, tally

MAX_DETAILED = 24
"""Runs with a part of their own while healthy ones are among them; more of these are a line in the
table, so that the page of a folder stays a few MB."""


def html_report(runs: Sequence[ShownRun], *, command: str, unread: Sequence[str] = ()) -> str:
    """The page; ``command`` made it, ``unread`` says what could not be read."""
    ordered = sorted(runs, key=_badness)
    shown = [run for run in ordered if run.standing != "good"]
    shown += [run for run in ordered if run.standing == "good"][
        : max(1 if not shown else 0, MAX_DETAILED - len(shown))
    ]
    numbers = {id(run): number for number, run in enumerate(shown, 1)}
    # many faulty runs: one chart each, so that the page can still be opened
    charts = 4 if len(shown) <= 8 else 2 if len(shown) <= 24 else 1
    body = [
        _index(ordered, numbers) if len(ordered) > 1 else None,
        None if ordered else tag("h1", _tally(ordered)),
        _unread(unread),
        *(_part(run, numbers[id(run)], charts, is_alone=len(ordered) == 1) for run in shown),
    ]
    return _document(_title(ordered), body, command)


def _part(run: ShownRun, number: int, charts: int, *, is_alone: bool) -> Markup:
    """A run's part: among others a healthy one is shown in short."""
    is_short = run.standing == "good" and not is_alone
    return run_part(run, number, most_charts=1 if is_short else charts, is_alone=is_alone)


def _badness(run: ShownRun) -> tuple[int, str]:
    return severity(run.verdict, run.notes), str(run.verdict["run"])


def _title(runs: Sequence[ShownRun]) -> str:
    if len(runs) == 1:
        return headline(runs[0].verdict, runs[0].notes)
    return _tally(runs)


def _tally(runs: Sequence[ShownRun]) -> str:
    if not runs:
        return "No run could be judged"
    return tally([(run.verdict, run.notes) for run in runs])


def _index(runs: Sequence[ShownRun], numbers: dict[int, int]) -> Markup:
    names = ("run", "verdict", "what happened", "rank", "since", "judged to")
    rows = [_index_row(run, numbers.get(id(run))) for run in runs]
    return tag(
        "nav",
        tag("h1", _tally(runs)),
        listing(names, rows, "Runs", ("", "", "what", "", "", "")),
        aria_label="Runs",
    )


def _index_row(run: ShownRun, number: int | None) -> tuple[Part, ...]:
    verdict = run.verdict
    ranks, since = place_words(verdict)
    name = data(verdict["run"], 80)
    judged = verdict.get("judged_to_iteration")
    return (
        tag("a", name, href=f"#run{number}") if number is not None else name,
        badge(run),
        run.happened,
        ranks,
        since,
        "" if judged is None else str(judged),
    )


def _unread(given: Sequence[str]) -> Markup | None:
    if not given:
        return None
    return card("What could not be read", sentences(given), kind="unread")


def _document(title: str, body: Sequence[Part], command: str) -> str:
    from importlib.metadata import version

    style = resources.files(__package__).joinpath("report.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("meta", name="generator", content=f"firstfault {version('firstfault')}"),
        tag("title", clean(title, 300)),
        tag("style", Markup(style)),
    )
    footer = tag(
        "footer",
        tag("p", f"Made by firstfault {version('firstfault')} with ", tag("code", clean(command, 400)), "."),
        tag(
            "p",
            "A verdict says what the telemetry given can show, up to the iteration it was judged to.",
        ),
    )
    return (
        "<!DOCTYPE html>\n"
        + tag("html", head, tag("body", tag("main", join(*body)), footer), lang="en")
        + "\n"
    )
