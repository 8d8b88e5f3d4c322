"""`firstfault mute` and `firstfault feedback`: the service asked from a terminal."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from .edge import asked, outer_edge, say
from .ink import clean
from .lifetimes import lifetime_s

app = typer.Typer(help="Mute what matches, until an end; list and end such rules.", no_args_is_help=True)

Url = Annotated[
    str, typer.Option("--url", metavar="URL", envvar="FIRSTFAULT_URL", help="Address of the service.")
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar="FIRSTFAULT_TOKEN",
        help="Where the service wants one; better given by the environment.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One a line, as JSON.")]
DEFAULT_URL = "http://127.0.0.1:8000"


@app.command("add")
def add(
    *,
    until: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 12h, 3d or 2w.")],
    comment: Annotated[str, typer.Option("--comment", metavar="WHY", help="Why; shown with what it mutes.")],
    run: Annotated[str | None, typer.Option("--run", metavar="GLOB", help="Names of runs.")] = None,
    host: Annotated[str | None, typer.Option("--host", metavar="GLOB", help="Every suspect's host.")] = None,
    label: Annotated[str | None, typer.Option("--label", metavar="L", help="nan, silent_drift, …")] = None,
    pattern: Annotated[str | None, typer.Option("--pattern", metavar="P", help="runaway, stuck, …")] = None,
    detector: Annotated[
        str | None, typer.Option("--detector", metavar="D", help="All evidence is by this one.")
    ] = None,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Send no alert of what matches all that is given; print the rule's id.

    Examples:

      firstfault mute add --host 'node-0?' --for 12h --comment "rack 7 is being rewired"

      firstfault mute add --detector stall --run 'debug-*' --for 2w --comment "stopped by hand"
    """
    given = {"run": run, "host": host, "label": label, "pattern": pattern, "detector": detector}
    with outer_edge(), asked(url, token) as client:
        end = datetime.now(UTC) + timedelta(seconds=lifetime_s("--for", until))
        matchers = {name: value for name, value in given.items() if value is not None}
        typer.echo(client.mute(until=end, comment=comment, **matchers)["id"])


@app.command("list")
def list_all(
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """Name the rules: what they match, until when, by whom and why."""
    with outer_edge(), asked(url, token) as client:
        rules = [one for one in client.mutes().to_dicts() if is_all or one["active"]]
        for rule in rules:
            typer.echo(json.dumps(rule, default=_text) if as_json else _rule_line(rule))
        if not rules and not as_json:
            say("no rule mutes anything")


@app.command("end")
def end(
    mute_id: Annotated[str, typer.Argument(metavar="ID", help="As `list` gives it.")],
    *,
    url: Url = DEFAULT_URL,
    token: Token = None,
) -> None:
    """End a rule before its time; it stays to be read."""
    with outer_edge(), asked(url, token) as client:
        rule = client.end_mute(mute_id)
        say(f"ended by {rule['ended_by']}" if rule["ended_by"] else "it was over already")


def feedback(*, as_json: AsJson = False, url: Url = DEFAULT_URL, token: Token = None) -> None:
    """Tell of each detector what it fired, and what people said: how many were real, how many false alarms.

    The precision is the share of judged alarms that were real, with an interval
    of 95 %. Nothing is retuned by it.

    Examples:

      firstfault feedback

      firstfault feedback --json --url https://firstfault.example --token "$TOKEN"
    """
    with outer_edge(), asked(url, token) as client:
        rows = client.detectors().to_dicts()
        if as_json:
            for row in rows:
                typer.echo(json.dumps(row))
        elif not rows:
            say("no detector has fired yet")
        else:
            typer.echo(_table(rows))


def _rule_line(rule: dict[str, Any]) -> str:
    names = ("run", "host", "label", "pattern", "detector")
    matched = " ".join(f"{name}={clean(rule[name])}" for name in names if rule[name])
    state = "until" if rule["active"] else "over since"
    moment = rule["ended_at"] or rule["until"]
    said = f"{clean(rule['who'])}: {clean(rule['comment'], 200)}"
    return f"{rule['id']}  {matched}  {state} {_text(moment)}  {said}"


def _table(rows: list[dict[str, Any]]) -> str:
    head = ("detector", "pattern", "fired", "confirmed", "withdrawn", "real", "false", "precision")
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    names = ("fired", "confirmed", "withdrawn", "judged_real", "false_alarms")
    precision = "nobody judged any"
    if row["judged"]:
        precision = f"{row['estimate']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
    return clean(row["detector"]), clean(row["pattern"]), *(str(row[name]) for name in names), precision


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
