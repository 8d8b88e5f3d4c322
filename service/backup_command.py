"""`firstfault backup` and `firstfault restore`: what the command line asks for."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from .config import Settings, load_settings
from .edge import say
from .errors import ConfigError
from .store_config import masked


def run_backup(target: Path, data: Path, config: Path | None) -> None:
    """Back up a data folder, beside a service that runs.

    Raises:
        ConfigError: the store is a PostgreSQL; names the command that backs it up.
        BackupError: it could not be made.
    """
    from .backup import back_up

    _refuse_postgres(load_settings(config), f"pg_dump --format=custom --file {shlex.quote(str(target))}")
    manifest = back_up(data, target)
    say(f"{target}: {_told(manifest)}; `firstfault restore` checks it and puts it back")


def run_restore(source: Path, data: Path, config: Path | None) -> None:
    """Put a backup into an empty folder.

    Raises:
        ConfigError: the store is a PostgreSQL; names the command that restores it.
        BackupError: it is no whole backup, or the folder is not empty.
    """
    from .restore import restore

    command = f"pg_restore --clean --if-exists {shlex.quote(str(source))} --dbname"
    _refuse_postgres(load_settings(config), command)
    manifest = restore(source, data)
    start = f"firstfault serve --data {shlex.quote(str(data))}"
    say(f"{data}: {_told(manifest)}, checked; start it with: {start}")


def _refuse_postgres(settings: Settings, command: str) -> None:
    if settings.store.url:
        address = shlex.quote(masked(settings.store.url).replace(":***", ""))
        raise ConfigError(
            f"store.url: this store is a PostgreSQL, which has tools of its own: {command} {address}"
            " (it asks for the password); copy the folder `history` of each worker beside it"
        )


def _told(manifest: dict[str, Any]) -> str:
    files = manifest["files"]
    size = sum(one["bytes"] for one in files.values())
    return f"{len(files)} files, {size / 1e6:.1f} MB, made by {manifest['made_by']}"
