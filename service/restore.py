"""Puts a backup back into an empty folder: unpacked beside it, checked byte for byte, then renamed.

A backup is data of strangers: only names that a backup can have are unpacked, and nothing but plain files.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sqlite3
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import IO, Any

from ingest.spool import SPOOL

from .backup import FORMAT, MANIFEST, BackupError
from .migrations import NEWEST
from .store_config import DATABASE

_NAME = re.compile(rf"{DATABASE}|{SPOOL}|{MANIFEST}|history(/[0-9A-Za-z][0-9A-Za-z._-]{{0,200}}){{1,3}}")
_MAX_MANIFEST_BYTES = 1 << 28
"""A hundred bytes for each of two million files."""
_CHUNK = 1 << 20


def restore(source: Path, data_dir: Path) -> dict[str, Any]:
    """Fill a folder that is empty or missing from a backup, wholly or not at all; gives the manifest.

    Raises:
        BackupError: not a whole backup, of a newer release, or the folder holds something.
    """
    if data_dir.exists() and (not data_dir.is_dir() or any(data_dir.iterdir())):
        raise BackupError(f"{data_dir} must be an empty folder, or none: nothing is written over")
    unfinished = data_dir.with_name(f".{data_dir.name}.restoring")
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True)
        found, manifest = _unpack(source, unfinished)
        _check(source, manifest, found)
        _make_ready(source, unfinished / DATABASE)
        if data_dir.exists():
            data_dir.rmdir()
        unfinished.replace(data_dir)
    except (OSError, EOFError, zlib.error, tarfile.TarError, sqlite3.Error) as error:
        raise BackupError(f"{source}: cannot be restored: {error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return manifest


def _unpack(source: Path, folder: Path) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """What was unpacked, with its size and checksum, and the manifest."""
    found: dict[str, dict[str, Any]] = {}
    manifest: dict[str, Any] | None = None
    with tarfile.open(source, "r|gz") as tar:
        for member in tar:
            stream = tar.extractfile(member) if member.isreg() else None
            if stream is None or not _NAME.fullmatch(member.name) or ".." in member.name:
                raise BackupError(f"{source}: holds {member.name!r}, which no backup does")
            if member.name == MANIFEST:
                manifest = _read_manifest(source, stream)
                break
            found[member.name] = _copy(stream, folder / member.name)
    if manifest is None:
        raise BackupError(f"{source}: its manifest is missing: the file was cut off, or is no backup")
    return found, manifest


def _read_manifest(source: Path, stream: IO[bytes]) -> dict[str, Any]:
    try:
        manifest = json.loads(stream.read(_MAX_MANIFEST_BYTES))
        made = manifest["format"], manifest["files"], manifest["made_by"]
    except (ValueError, KeyError, TypeError) as error:
        raise BackupError(f"{source}: its manifest cannot be read: {error!r}") from error
    if made[0] != FORMAT:
        raise BackupError(f"{source}: has format {made[0]!r}, this release knows {FORMAT}: update firstfault")
    return dict(manifest)


def _copy(stream: IO[bytes], path: Path) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    digest, size = hashlib.sha256(), 0
    with path.open("xb") as file:
        while data := stream.read(_CHUNK):
            digest.update(data)
            size += len(data)
            file.write(data)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _check(source: Path, manifest: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    wanted = manifest["files"]
    wrong = sorted(name for name in {*wanted, *found} if wanted.get(name) != found.get(name))
    if wrong:
        raise BackupError(f"{source}: {wrong[0]!r} is not what was backed up ({len(wrong)} files differ)")
    if DATABASE not in found:
        raise BackupError(f"{source}: holds no store")


def _make_ready(source: Path, path: Path) -> None:
    """Check the store, and let go of what the workers of the old folder held."""
    with closing(sqlite3.connect(path)) as db:
        (schema,) = db.execute("PRAGMA user_version").fetchone()
        if not 1 <= schema <= NEWEST:
            raise BackupError(
                f"{source}: the store has schema {schema}, this release knows {NEWEST}: update firstfault"
            )
        (state,) = db.execute("PRAGMA quick_check").fetchone()
        if state != "ok":
            raise BackupError(f"{source}: the store is damaged: {state}")
        if schema >= 2:  # schema 1 had neither
            with db:
                db.execute("UPDATE partitions SET owner = NULL")
                db.execute("DELETE FROM health")
