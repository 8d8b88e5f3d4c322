"""`firstfault alerts`: who is told of incidents, and whether a message gets through."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .edge import Exit, outer_edge, say

if TYPE_CHECKING:
    from .alerts.reading import ChannelStand
    from .config import Settings

app = typer.Typer(help="List the channels that people are told through, and try them.", no_args_is_help=True)

ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings as TOML.")]


@app.command("list")
def list_all(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One channel a line, as JSON.")] = False,
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The service's data folder.")] = Path(
        "firstfault-data"
    ),
    config: ConfigFile = None,
) -> None:
    """Name the channels: what they hear of, and what became of their last messages.

    Examples:

      firstfault alerts list --config firstfault.toml
    """
    with outer_edge():
        from .alerts.reading import ChannelStand
        from .config import load_settings

        settings = load_settings(config)
        found = _stands(data, settings)
        for name in settings.alerts.channels:
            row = _row(name, settings, found.get(name, ChannelStand()))
            typer.echo(json.dumps(row) if as_json else _line(row))
        if not settings.alerts.channels and not as_json:
            say("there is no channel: nobody is told; see docs/alerts.md")


@app.command("test")
def test(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="Its name in the settings.")],
    *,
    config: ConfigFile = None,
) -> None:
    """Send a message that says that it is a test, now and from here, and say what became of it.

    Needs no service. Exit status: 0 if the receiver took it, 2 if there is no
    such channel or a secret of it is missing, 3 if it was not taken.

    Examples:

      firstfault alerts test oncall --config firstfault.toml
    """
    with outer_edge():
        from .alerts.trial import send_test
        from .config import load_settings
        from .ink import clean

        outcome = send_test(load_settings(config), channel, time.time())
        say(f"{channel}: {clean(outcome.detail, 300)}")
        if not outcome.is_sent:
            raise typer.Exit(Exit.FAILED)


def _stands(data: Path, settings: Settings) -> dict[str, ChannelStand]:
    """What the store says of the channels; nothing where there is no store yet."""
    from .alerts.reading import stands
    from .database import Database
    from .errors import StoreError
    from .migrations import check_schema

    database = Database(data, settings.store, read_only=True)
    try:
        check_schema(database)
        with database.read() as db:
            return stands(db, time.time())
    except StoreError:
        return {}
    finally:
        database.close()


def _row(name: str, settings: Settings, stand: ChannelStand) -> dict[str, Any]:
    from .alerts.secrets import shown_address

    channel = settings.alerts.channels[name]
    return {
        "name": name,
        "kind": channel.kind.value,
        "target": shown_address(name, channel),
        "min_severity": channel.min_severity.value,
        "min_certainty": channel.min_certainty.value,
        "labels": [label.value for label in channel.labels],
        "runs": channel.runs,
        "waiting": stand.waiting,
        "results": {one.result: one.messages for one in stand.results},
        "failing": stand.why,
    }


def _line(row: dict[str, Any]) -> str:
    hears = f"{row['min_severity']} and {row['min_certainty']} or more"
    labels = ", ".join(row["labels"]) or "all labels"
    results = ", ".join(f"{result} {count}" for result, count in row["results"].items()) or "nothing sent yet"
    stand = f"; {row['failing']}" if row["failing"] else ""
    told = f"{row['kind']} {row['target']}  {hears}, {labels}, runs {row['runs']}"
    return f"{row['name']}  {told}  {results}, {row['waiting']} waiting{stand}"
