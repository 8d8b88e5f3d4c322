"""One process of a kind on a data folder, held by the system: a killed one leaves no lock behind."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from .errors import AlreadyRunning, StoreError


class FolderLock:
    """Held from construction until `release`, or the end of the process however it ends."""

    def __init__(self, data_dir: Path, kind: str) -> None:
        """Take the lock of ``kind`` in the folder, which is made where it is missing.

        Raises:
            AlreadyRunning: another process holds it; names the process.
            StoreError: the folder cannot be written.
        """
        path = data_dir / f"{kind}.lock"
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}") from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(self._file, 32).decode(errors="replace").strip()
            os.close(self._file)
            raise AlreadyRunning(
                f"{data_dir} is used by another firstfault {kind} (process {holder or 'unknown'}):"
                " stop it, or give another --data"
            ) from None
        except OSError as error:
            os.close(self._file)
            raise StoreError(f"{path}: cannot be locked: {error.strerror}") from error
        os.truncate(self._file, 0)
        os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Let others take it; safe to call twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
