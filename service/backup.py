"""A copy of a data folder that is whole, taken while the service runs: one compressed tar file.

    firstfault.sqlite3   the store as of one moment
    spool.sqlite3        what came over HTTP: everything that the store has yet to read is in it
    history/…            curves and windows
    manifest.json        last, so that a file that was cut off is told: sizes and checksums of all others

The store is copied first, and the spool after it: what the store says that it has read up to is then in the
spool's copy or before it, and nothing is lost or read twice where they are put back. History comes last: it
is written before the store says so.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import sqlite3
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

from ingest.spool import SPOOL
from ingest.spool_source import PART

from .errors import ServiceError
from .store_config import DATABASE
from .worker_process import HISTORY

FORMAT = 1
MANIFEST = "manifest.json"
_TRIES = 5
"""Copies of store and spool before it is given up that the worker prunes in between: it does so once in ten
seconds, and keeps what fits into `spool.keep_bytes`."""
_COMPRESSION = 1
"""Most of it is Parquet, which is packed already."""


class BackupError(ServiceError):
    """A backup could not be made, or is none."""


def back_up(data_dir: Path, target: Path) -> dict[str, Any]:
    """Write the backup of a data folder, whole or not at all; gives its manifest.

    Raises:
        BackupError: no store is there, the target exists, or something cannot be read or written.
    """
    if not (data_dir / DATABASE).exists():
        raise BackupError(f"{data_dir}: there is no store here")
    if target.exists():
        raise BackupError(f"{target} exists: a backup never writes over another file")
    unfinished = target.with_name(f"{target.name}.tmp")
    try:
        with tempfile.TemporaryDirectory(prefix=".firstfault-backup-", dir=target.parent) as folder:
            _copy_databases(data_dir, Path(folder))
            with open(unfinished, "wb", opener=_private) as file:
                manifest = _write(file, data_dir, Path(folder))
                file.flush()
                os.fsync(file.fileno())
        unfinished.replace(target)
    except (OSError, sqlite3.Error, tarfile.TarError) as error:
        raise BackupError(f"{target}: the backup could not be written: {error}") from error
    finally:
        unfinished.unlink(missing_ok=True)
    return manifest


def _private(path: str, flags: int) -> int:
    """Opened for nobody else: it holds the names of runs and hosts, and the hashes of tokens."""
    return os.open(path, flags, 0o600)


def _copy_databases(data_dir: Path, folder: Path) -> None:
    for _ in range(_TRIES):
        _copy(data_dir / DATABASE, folder / DATABASE)
        if not (data_dir / SPOOL).exists():
            return
        _copy(data_dir / SPOOL, folder / SPOOL)
        if _spool_reaches_back(folder):
            return
    raise BackupError(
        f"{data_dir}: the worker removes from the spool what the copy of the store has yet to read;"
        " try again, or raise spool.keep_bytes"
    )


def _copy(source: Path, target: Path) -> None:
    """A copy as of one moment: in one step, during which writers go on in the write-ahead log."""
    target.unlink(missing_ok=True)
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
        new.execute("PRAGMA journal_mode = DELETE")  # one file, without a log beside it
        (found,) = new.execute("PRAGMA quick_check").fetchone()
    if found != "ok":
        raise BackupError(f"{source}: damaged: {found}")


def _spool_reaches_back(folder: Path) -> bool:
    """Whether the spool holds all that the store has yet to read of it."""
    with closing(sqlite3.connect(folder / DATABASE)) as store:
        row = store.execute("SELECT next_offset FROM partitions WHERE part = ?", (PART,)).fetchone()
    with closing(sqlite3.connect(folder / SPOOL)) as spool:
        (first,) = spool.execute("SELECT min(seq) FROM bodies").fetchone()
        (gone,) = spool.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence").fetchone()
    begins = gone + 1 if first is None else first
    return bool(begins <= (1 if row is None or row[0] is None else row[0]))


def _write(file: IO[bytes], data_dir: Path, folder: Path) -> dict[str, Any]:
    files: dict[str, dict[str, Any]] = {}
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=_COMPRESSION) as tar:
        for name, path in _members(data_dir, folder):
            told = _add(tar, name, path)
            if told is not None:
                files[name] = told
        manifest = {
            "format": FORMAT,
            "made_by": f"firstfault {version('firstfault')}",
            "made_at": time.time(),
            "files": files,
        }
        body = json.dumps(manifest, sort_keys=True).encode()
        info = tarfile.TarInfo(MANIFEST)
        info.size = len(body)
        tar.addfile(info, io.BytesIO(body))
    return manifest


def _members(data_dir: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    for name in (DATABASE, SPOOL):
        if (folder / name).exists():
            yield name, folder / name
    history = data_dir / HISTORY
    for path in sorted(history.rglob("*")):
        # hidden ones are being written, and get their names once they are whole
        if path.is_file() and not path.name.startswith("."):
            yield path.relative_to(data_dir).as_posix(), path


def _add(tar: tarfile.TarFile, name: str, path: Path) -> dict[str, Any] | None:
    """Size and checksum of what was added; None for a file that vanished: history is joined and pruned."""
    try:
        opened = path.open("rb")
    except FileNotFoundError:
        return None
    with opened as file:
        info = tar.gettarinfo(arcname=name, fileobj=file)
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        hashing = _Hashing(file)
        tar.addfile(info, hashing)
    return {"bytes": info.size, "sha256": hashing.digest.hexdigest()}


class _Hashing(io.RawIOBase):
    """Reads a file and hashes what was read."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__()
        self._file, self.digest = file, hashlib.sha256()

    def readable(self) -> bool:
        """Yes."""
        return True

    def read(self, size: int = -1) -> bytes:
        """The next bytes."""
        data = self._file.read(size)
        self.digest.update(data)
        return data
