"""Lines that wait on disk while their sink is away: bounded, in order, and still there after a restart.

    <base>/<sink>/<run and rank>/lock, 00000001.jsonl, 00000002.jsonl, …

A folder belongs to whoever holds the lock on it. What a process left behind is taken over by the next one of
the same run and rank, or by local rank 0 of any later job with the same sink on this host. Part of a file may
be sent twice after a restart, which does no harm.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections import deque
from collections.abc import Sequence
from pathlib import Path

SEGMENT_BYTES = 1 << 20
"""Size of one file: what is sent twice at most, and what is dropped at once when there is no room."""
_NAME_DIGITS = 8


class Spill:
    """The waiting lines of one process. For one thread at a time.

    Raises:
        OSError: the folder cannot be made or written, or belongs to somebody else.
    """

    def __init__(self, base: Path | None, sink: str, owner: str, max_bytes: int, *, adopts: bool) -> None:
        self._max_bytes = max_bytes
        shelf = base_folder(base) / _digest(sink)
        self.folder, self._lock = _claimed(shelf, _digest(owner))
        self._segments: deque[Path] = deque(_segments(self.folder))
        self._next_number = 1 + max((int(path.stem) for path in self._segments), default=0)
        self._lines: deque[bytes] = deque()
        """What is left of the oldest file."""
        self._file: int | None = None
        self.dropped = 0
        """Lines that were dropped to make room, that a crash cut off, or that a disk damaged."""
        if adopts:
            self._adopt(shelf)
        self._bytes = sum(path.stat().st_size for path in self._segments)
        """Of all files; too many where somebody else removed one, which only drops lines earlier."""

    def __bool__(self) -> bool:
        """Whether any line waits."""
        return bool(self._segments)

    def append(self, lines: Sequence[bytes]) -> None:
        """Let ``lines`` wait, all or none; the oldest make room.

        Raises:
            OSError: the disk is full.
        """
        data = b"".join(line + b"\n" for line in lines)
        if self._file is not None and not os.fstat(self._file).st_nlink:
            self._shut()  # somebody cleaned up, and what is written now would be gone with the file
        if self._file is None:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.folder / f"{self._next_number:0{_NAME_DIGITS}d}.jsonl"
            self._file = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600
            )
            self._segments.append(path)
            self._next_number += 1
        before = os.fstat(self._file).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._file, view) :]
        except OSError:
            os.ftruncate(self._file, before)
            if before == 0:
                self._shut()
                self._segments.pop().unlink(missing_ok=True)
            raise
        self._bytes += len(data)
        if before + len(data) >= SEGMENT_BYTES:
            self._shut()
        while self._bytes > self._max_bytes and len(self._segments) > 1:
            self.dropped += len(self._oldest())
            self._forget_oldest()

    def peek(self) -> list[bytes]:
        """The lines of the oldest file that were not sent yet."""
        return list(self._oldest())

    def advance(self, lines: int) -> None:
        """The first ``lines`` of `peek` need not wait any more."""
        oldest = self._oldest()
        for _ in range(min(lines, len(oldest))):
            oldest.popleft()
        if not oldest:
            self._forget_oldest()

    def close(self) -> None:
        """Let go of the folder, which goes when nothing waits in it."""
        self._shut()
        if not self._segments:
            (self.folder / "lock").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody else was faster, or still needs it
                self.folder.rmdir()
        os.close(self._lock)

    def _oldest(self) -> deque[bytes]:
        while self._segments and not self._lines:
            if len(self._segments) == 1:
                self._shut()  # what is read is not written to any more
            try:
                *whole, torn = self._segments[0].read_bytes().split(b"\n")
            except OSError:  # somebody cleaned up: how many lines it held, nobody knows
                whole, torn = [], b"?"
            self._lines = deque(line for line in whole if _is_ours(line))
            self.dropped += len(whole) - len(self._lines) + bool(torn)
            if not self._lines:
                self._forget_oldest()
        return self._lines

    def _forget_oldest(self) -> None:
        if self._segments:
            path = self._segments.popleft()
            with contextlib.suppress(OSError):
                self._bytes -= path.stat().st_size
                path.unlink()
        self._lines.clear()

    def _shut(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _adopt(self, shelf: Path) -> None:
        """Take over what processes that are gone left behind."""
        for folder in sorted(shelf.iterdir()):
            lock = _try_lock(folder) if folder != self.folder and folder.is_dir() else None
            if lock is None:
                continue
            for path in _segments(folder):
                target = self.folder / f"{self._next_number:0{_NAME_DIGITS}d}.jsonl"
                path.rename(target)
                self._segments.append(target)
                self._next_number += 1
            (folder / "lock").unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # somebody else was faster, or still needs it
                folder.rmdir()
            os.close(lock)


def base_folder(base: Path | None) -> Path:
    """The folder under which everything waits, made where it is missing.

    Raises:
        OSError: it cannot be made, or somebody else made it: temporary folders are shared.
    """
    if base is None:
        named = os.environ.get("FIRSTFAULT_SPILL")
        base = Path(named) if named else Path(tempfile.gettempdir()) / f"firstfault-{os.getuid()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    if base.is_symlink() or base.stat().st_uid != os.getuid():
        raise PermissionError(f"{base} must be a folder of this user")
    return base


def _segments(folder: Path) -> list[Path]:
    """Our files in ``folder``, the oldest first; what somebody else put there stays there."""
    named = (path for path in folder.glob("*.jsonl") if path.stem.isascii() and path.stem.isdigit())
    return sorted(path for path in named if path.is_file() and not path.is_symlink())


def _is_ours(line: bytes) -> bool:
    """Whether a line may be one that we wrote: what a loss of power left in a file is never understood, and
    would hold up all that waits behind it."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _claimed(shelf: Path, name: str) -> tuple[Path, int]:
    """A folder of our own and the lock on it; another name where a process of the same rank lives."""
    for attempt in (name, *(f"{name}-{os.getpid()}-{number}" for number in range(100))):
        folder = shelf / attempt
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _try_lock(folder)
        if lock is not None:
            return folder, lock
    raise BlockingIOError(f"{shelf / name} is locked")


def _try_lock(folder: Path) -> int | None:
    """The lock on ``folder``, None where another process has it or is removing it."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(lock).st_nlink:
            return lock
    except OSError:
        pass
    os.close(lock)
    return None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()
