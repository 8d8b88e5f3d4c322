"""Lines into a file of our own: ``.jsonl``, or packed as ``.jsonl.gz``; whole lines or none.

Ranks write a file each, told apart by the rank in its name, as `firstfault replay` joins them.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from pathlib import Path

from .sink import SinkAway

ENDINGS = (".jsonl", ".jsonl.gz")


def path_of_rank(path: Path, rank: int, world_size: int | None) -> Path:
    """Where ``rank`` of a job writes: ``run.jsonl`` becomes ``run-rank3.jsonl`` where there are several.

    >>> path_of_rank(Path("logs/run.jsonl.gz"), 3, 8).as_posix()
    'logs/run-rank3.jsonl.gz'
    """
    if "{rank}" in path.name:
        return path.with_name(path.name.replace("{rank}", str(rank)))
    if (world_size or 1) <= 1 and rank == 0:
        return path
    ending = next((one for one in reversed(ENDINGS) if path.name.endswith(one)), path.suffix)
    return path.with_name(f"{path.name[: len(path.name) - len(ending)]}-rank{rank}{ending}")


class FileSink:
    """Appends to one file; what a full disk cut off is taken back."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._is_packed = path.name.endswith(".gz")
        self._file: int | None = None
        self._is_torn = False

    def send(self, lines: Sequence[bytes], timeout_s: float) -> int:  # noqa: ARG002 (a file has no timeout)
        """Append ``lines``."""
        data = b"".join(line + b"\n" for line in lines)
        try:
            file = self._opened()
            if self._is_torn:
                data = b"\n" + data
            self._append(file, gzip.compress(data, 6, mtime=0) if self._is_packed else data)
            self._is_torn = False
        except OSError as error:
            raise SinkAway(f"{self.name}: {error.strerror or error}") from error
        return 0

    def interrupt(self) -> None:
        """A write to a file cannot be interrupted."""

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _opened(self) -> int:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._file = file
            size = os.fstat(file).st_size
            # a process that was killed may have left half a line, which must not swallow the next one
            self._is_torn = not self._is_packed and size > 0 and os.pread(file, 1, size - 1) != b"\n"
        return self._file

    def _append(self, file: int, data: bytes) -> None:
        before = os.fstat(file).st_size
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(file, view) :]
        except OSError:
            if len(view) < len(data):
                os.ftruncate(file, before)
            raise
