"""`firstfault backup`, `restore` and `prune` as the command line has them: options and help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .edge import outer_edge

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings as TOML; see `config show`.")
]
DataFolder = Annotated[Path, typer.Option("--data", metavar="DIR", help="The service's data folder.")]


def backup(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, such as monday.tar.gz.")],
    *,
    data: DataFolder = Path("firstfault-data"),
    config: ConfigFile = None,
) -> None:
    """Copy a data folder into one file, while the service runs: store, spool and history.

    The copy is of one moment: put back elsewhere it goes on where it was, and
    nothing is lost or counted twice. A store in PostgreSQL is backed up with
    pg_dump; the error says how.

    Examples:

      firstfault backup /backups/firstfault-$(date +%F).tar.gz --data /var/lib/firstfault
    """
    with outer_edge():
        from .backup_command import run_backup

        run_backup(target, data, config)


def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What `backup` wrote.")],
    *,
    data: DataFolder = Path("firstfault-data"),
    config: ConfigFile = None,
) -> None:
    """Put a backup into an empty folder, after checking every byte of it.

    Examples:

      firstfault restore /backups/firstfault-2026-11-30.tar.gz --data /var/lib/firstfault
    """
    with outer_edge():
        from .backup_command import run_restore

        run_restore(source, data, config)


def prune(
    *,
    is_dry: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The numbers as one JSON object.")] = False,
    data: DataFolder = Path("firstfault-data"),
    config: ConfigFile = None,
) -> None:
    """Remove now what the settings `retention` call old; the worker does so bit by bit.

    Examples:

      firstfault prune --dry-run --data /var/lib/firstfault
    """
    with outer_edge():
        from .prune_command import PruneRequest, run_prune

        run_prune(PruneRequest(data=data, config=config, is_dry=is_dry, as_json=as_json))
