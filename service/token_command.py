"""`firstfault token`: make, list, rotate and revoke what opens the API to others than this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .edge import Exit, outer_edge, say

if TYPE_CHECKING:
    from .access import Token
    from .database import Database

app = typer.Typer(help="Make, list, rotate and revoke access tokens.", no_args_is_help=True)

Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="The service's data folder.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Settings as TOML.")]
_DEFAULT_DATA = Path("firstfault-data")


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is, for lists and logs.")],
    *,
    scopes: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="S", help="read, write or ingest; more than one may be given."),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="Such as 12h, 90d or 4w; never without.")
    ] = None,
    data: Data = _DEFAULT_DATA,
    config: ConfigFile = None,
) -> None:
    """Print a new token: the only time that it is seen.

    read asks, write sets states of incidents, ingest sends telemetry; none
    includes another. Once there is a token the API serves whoever has one,
    and nobody else.

    Examples:

      firstfault token create grafana --scope read --expires 90d

      firstfault token create trainer --scope ingest
    """
    with outer_edge(), _database(data, config) as database:
        from .access import create_token
        from .lifetimes import lifetime_s

        lasts_s = None if expires is None else lifetime_s("--expires", expires)
        with database.write() as db:
            token = create_token(db, name, tuple(scopes or ("read",)), time.time(), lasts_s)
        typer.echo(token)
        say("keep it now: the store holds its hash alone")


@app.command("list")
def list_all(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One token a line, as JSON.")] = False,
    data: Data = _DEFAULT_DATA,
    config: ConfigFile = None,
) -> None:
    """Name the tokens: what they allow, until when, and when they were last used."""
    with outer_edge(), _database(data, config) as database:
        from .access import list_tokens

        with database.read() as db:
            tokens = list_tokens(db)
        for token in tokens:
            typer.echo(json.dumps(_fields(token)) if as_json else _line(token))
        if not tokens and not as_json:
            say("there is no token: the API serves this machine alone")


@app.command("revoke")
def revoke(
    which: Annotated[
        str | None, typer.Argument(metavar="ID", help="Id or prefix, as `list` gives it.")
    ] = None,
    *,
    is_all: Annotated[
        bool, typer.Option("--all", help="Remove every token: the API then serves this machine alone.")
    ] = False,
    data: Data = _DEFAULT_DATA,
    config: ConfigFile = None,
) -> None:
    """End a token at once.

    Examples:

      firstfault token revoke ff_Xk29sQ1m

      firstfault token revoke --all
    """
    with outer_edge(), _database(data, config) as database:
        from .access import forget_tokens, revoke_token
        from .errors import ConfigError

        if (which is None) != is_all:
            raise ConfigError("give the id or prefix of one token, or --all")
        with database.write() as db:
            ended = revoke_token(db, which, time.time()) if which is not None else forget_tokens(db)
        if which is not None and not ended:
            say(f"no valid token is called {which!r}; `firstfault token list` names them")
            raise typer.Exit(Exit.UNUSABLE)
        say(f"revoked: {len(ended)}")


@app.command("rotate")
def rotate(
    which: Annotated[str, typer.Argument(metavar="TOKEN", help="Id or prefix, as `list` names them.")],
    *,
    overlap: Annotated[
        str | None,
        typer.Option(
            "--overlap", metavar="TIME", help="How long the old one still works; not at all without."
        ),
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="As for `create`; as the old one without.")
    ] = None,
    data: Data = _DEFAULT_DATA,
    config: ConfigFile = None,
) -> None:
    """Print a new token in place of an old one, of the same name and scopes.

    Examples:

      firstfault token rotate ff_Xk29sQ1m --overlap 24h
    """
    with outer_edge(), _database(data, config) as database:
        from .access import rotate_token
        from .lifetimes import lifetime_s

        lasts_s = None if expires is None else lifetime_s("--expires", expires)
        overlap_s = 0.0 if overlap is None else lifetime_s("--overlap", overlap)
        with database.write() as db:
            token = rotate_token(db, which, time.time(), lasts_s, overlap_s)
        if token is None:
            say(f"no valid token is called {which!r}; `firstfault token list` names them")
            raise typer.Exit(Exit.UNUSABLE)
        typer.echo(token)
        say(f"keep it now; the old one ends {f'in {overlap}' if overlap else 'now'}")


@contextmanager
def _database(data: Path, config: Path | None) -> Iterator[Database]:
    """The store, made if there is none yet: tokens may come before the first start."""
    from .config import load_settings
    from .database import Database
    from .migrations import migrate

    database = Database(data, load_settings(config).store)
    try:
        migrate(database)
        yield database
    finally:
        database.close()


def _fields(token: Token) -> dict[str, object]:
    return {
        "id": token.id,
        "name": token.name,
        "prefix": token.prefix,
        "scopes": list(token.scopes),
        "created_at": _when(token.created_at),
        "expires_at": _when(token.expires_at),
        "last_used_at": _when(token.last_used_at),
        "is_valid": token.is_valid(time.time()),
    }


def _line(token: Token) -> str:
    until = "never expires" if token.expires_at is None else f"expires {_when(token.expires_at)}"
    if not token.is_valid(time.time()):
        until = f"ended {_when(token.expires_at)}"
    used = "never used" if token.last_used_at is None else f"used {_when(token.last_used_at)}"
    return f"{token.id}  {token.prefix}…  {','.join(token.scopes)}  {until}  {used}  {token.name}"


def _when(seconds: float | None) -> str | None:
    from datetime import UTC, datetime

    return None if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
