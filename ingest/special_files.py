"""Paths that are no files: pipes, which may have no writer, and devices, which may never end."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory

from .errors import UnreadableInput

WRITER_WITHIN_S = 10.0
"""Seconds in which somebody must open a pipe for writing: a shell does so at once, and a person who forgot it
should be told before they wonder."""
_POLL_S = 0.05
_PIECE_BYTES = 1 << 20


class Special(Enum):
    """What a path is that is no file."""

    NONE = "a file"
    PIPE = "a pipe"
    DEVICE = "a device"
    SOCKET = "a socket"


def kind_of(path: Path) -> Special:
    """What a path is; what cannot be looked at is taken for a file, which says so when it is opened."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return Special.NONE
    if stat.S_ISFIFO(mode):
        return Special.PIPE
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
        return Special.DEVICE
    return Special.SOCKET if stat.S_ISSOCK(mode) else Special.NONE


@contextmanager
def readable_copy(path: Path, within_s: float = WRITER_WITHIN_S) -> Iterator[Path]:
    """What is written to the pipe ``path`` until its writers close it, in a file of that name.

    Raises:
        UnreadableInput: nobody opens it for writing, or it is no pipe.
    """
    kind = kind_of(path)
    if kind is not Special.PIPE:
        raise UnreadableInput(f"{path}: must be a file, a folder or -, but it is {kind.value}")
    with TemporaryDirectory(prefix="firstfault-pipe-") as folder:
        copy = Path(folder) / path.name
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            with copy.open("wb") as file:
                file.write(_first_bytes(descriptor, path, within_s))
                os.set_blocking(descriptor, True)
                while piece := os.read(descriptor, _PIECE_BYTES):
                    file.write(piece)
        finally:
            os.close(descriptor)
        yield copy


def _first_bytes(descriptor: int, path: Path, within_s: float) -> bytes:
    """The first bytes, or none once a writer is there: a pipe without one reads as ended."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            if piece := os.read(descriptor, _PIECE_BYTES):
                return piece
        except BlockingIOError:  # a writer that has not written yet
            return b""
        if time.monotonic() >= deadline:
            raise UnreadableInput(f"{path}: a pipe that nobody wrote to within {within_s:g} s")
        time.sleep(_POLL_S)
