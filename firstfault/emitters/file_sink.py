"""Lines into a file: ``.jsonl``, or packed as ``.jsonl.gz``; whole lines or none.

Ranks write a file each, told apart by the rank in its name, as `firstfault replay` joins them. Processes that
nobody told apart share one: each appends under a lock, so that none takes back or continues the line of
another.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
from collections.abc import Iterator, Sequence
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

    def send(self, lines: Sequence[bytes], timeout_s: float) -> int:  # noqa: ARG002 (a file has no timeout)
        """Append ``lines``."""
        data = b"".join(line + b"\n" for line in lines)
        try:
            data = gzip.compress(data, 6, mtime=0) if self._is_packed else data
            file = self._opened()
            with _alone_in(file):
                self._append(file, data)
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
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        return self._file

    def _append(self, file: int, data: bytes) -> None:
        before = os.fstat(file).st_size
        # a process that was killed may have left half a line, which must not swallow the next one
        if not self._is_packed and before > 0 and os.pread(file, 1, before - 1) != b"\n":
            data = b"\n" + data
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(file, view) :]
        except OSError:
            if len(view) < len(data):
                os.ftruncate(file, before)
            raise


@contextlib.contextmanager
def _alone_in(file: int) -> Iterator[None]:
    """While no other process of ours appends; on a file system without locks as if there were none."""
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
