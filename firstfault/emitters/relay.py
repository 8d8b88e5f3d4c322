"""One process sends for its host: local rank 0 takes the lines of the others over a Unix socket.

    frame  = 4 bytes of length, big-endian, and so many bytes of lines
    answer = one byte, once they are sent or on disk

The socket lies in a folder of this user. Where nobody answers (local rank 0 is gone, or has another file
system) a process sends for itself, and asks again later: what was not acknowledged may be sent twice, which
does no harm.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .. import forks
from ..launch import Launch
from .sink import Sink
from .spill import base_folder

_LENGTH = struct.Struct(">I")
_TAKEN = b"+"
MAX_FRAME_BYTES = 16 << 20
"""More is no frame of ours: a batch has half a megabyte."""
_ASK_AGAIN_S = 5.0
"""How long a process sends for itself before it looks for local rank 0 again, which may just have started."""
_MAX_PATH_BYTES = 100
"""Of a socket's path: the kernel has room for 108. A longer one is reached through its folder, held open."""
_HELD_FOLDERS = Path("/proc/self/fd")
Take = Callable[[list[bytes], Callable[[], None]], None]
"""Given the lines and what to call once they are sent or on disk."""


def socket_path(launch: Launch, sink: str) -> Path | None:
    """Where the processes of one job on this host meet; None where there is no place."""
    environ = os.environ
    job = [environ.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT", "SLURM_JOB_ID")]
    name = "\n".join([launch.run, str(launch.attempt), sink, *job])
    digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).hexdigest()
    try:
        path = base_folder(None) / f"relay-{digest}.sock"
    except OSError:
        return None
    is_reached = len(os.fsencode(path)) <= _MAX_PATH_BYTES or _HELD_FOLDERS.is_dir()
    return path if is_reached else None


class RelaySink:
    """Hands lines to local rank 0, or sends them itself by ``direct``."""

    def __init__(self, path: Path, direct: Sink) -> None:
        self._path, self._direct = path, direct
        self._socket: socket.socket | None = None
        self._ask_s = 0.0

    def send(self, lines: Sequence[bytes], timeout_s: float) -> int:
        """By local rank 0 if it answers; in half of the time, so that the other half is left."""
        if self._socket is not None or time.monotonic() >= self._ask_s:
            try:
                self._relayed(lines, timeout_s / 2)
            except OSError:
                self._let_go()
                self._ask_s = time.monotonic() + _ASK_AGAIN_S
            else:
                return 0
        return self._direct.send(lines, timeout_s / 2)

    def interrupt(self) -> None:
        """Make a `send` of another thread end soon."""
        with contextlib.suppress(OSError):
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
        self._direct.interrupt()

    def close(self) -> None:
        """Let go of both ways."""
        self._let_go()
        self._direct.close()

    def _relayed(self, lines: Sequence[bytes], timeout_s: float) -> None:
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(timeout_s)
            with _short(self._path) as address:
                self._socket.connect(address)
        self._socket.settimeout(timeout_s)
        data = b"\n".join(lines)
        self._socket.sendall(_LENGTH.pack(len(data)) + data)
        if self._socket.recv(1) != _TAKEN:
            raise ConnectionResetError("local rank 0 is gone")

    def _let_go(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class RelayServer:
    """Takes the lines of the other processes of this host; on local rank 0.

    Raises:
        OSError: the socket cannot be made, or another process of the same job has it.
    """

    def __init__(self, path: Path, take: Take) -> None:
        self._path, self._take = path, take
        self._selector = selectors.DefaultSelector()
        self._buffers: dict[socket.socket, bytearray] = {}
        self._is_closing = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        _clear(path)
        with _short(path) as address:
            self._listener.bind(address)
        path.chmod(0o600)
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="firstfault-relay", daemon=True)
        self._thread.start()
        forks.remember(self)

    def stop(self) -> None:
        """Take no more; what was taken may still be acknowledged until `close`."""
        self._is_closing = True
        with contextlib.suppress(OSError):
            self._path.unlink()

    def close(self) -> None:
        """Let go of every connection: who waits for an answer sends for itself."""
        self.stop()
        for one in (*self._buffers, self._listener):
            with contextlib.suppress(OSError):
                one.close()

    def become_child(self) -> None:
        """In a forked child: the parent goes on alone."""
        self._is_closing = True
        for one in (*self._buffers, self._listener):
            with contextlib.suppress(OSError):
                one.close()
        self._buffers.clear()

    def _run(self) -> None:
        while not self._is_closing:
            with contextlib.suppress(OSError, ValueError):  # a socket that is closed while it is looked at
                for key, _ in self._selector.select(timeout=0.2):
                    self._look(key.fileobj)

    def _look(self, ready: Any) -> None:
        if ready is self._listener:
            peer, _ = self._listener.accept()
            peer.setblocking(False)
            self._buffers[peer] = bytearray()
            self._selector.register(peer, selectors.EVENT_READ)
            return
        try:
            data = ready.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        buffer = self._buffers[ready]
        buffer += data
        if not data or not self._take_frames(ready, buffer):
            self._selector.unregister(ready)
            del self._buffers[ready]
            ready.close()

    def _take_frames(self, peer: socket.socket, buffer: bytearray) -> bool:
        """Take what is whole; whether the peer speaks as ours do."""
        while len(buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(buffer)
            if size > MAX_FRAME_BYTES:
                return False
            if len(buffer) < _LENGTH.size + size:
                return True
            lines = bytes(buffer[_LENGTH.size : _LENGTH.size + size]).split(b"\n")
            del buffer[: _LENGTH.size + size]

            def acknowledge() -> None:
                with contextlib.suppress(OSError):
                    peer.send(_TAKEN)

            self._take([line for line in lines if line], acknowledge)
        return True


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name of a socket that the kernel has room for: its own, or one that goes by its folder, held open.

    Raises:
        OSError: the folder cannot be opened.
    """
    if len(os.fsencode(path)) <= _MAX_PATH_BYTES:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield str(_HELD_FOLDERS / str(folder) / path.name)
    finally:
        os.close(folder)


def _clear(path: Path) -> None:
    """Remove a socket that nobody listens at any more.

    Raises:
        OSError: somebody does.
    """
    if not path.exists():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        try:
            with _short(path) as address:
                probe.connect(address)
        except OSError:
            path.unlink(missing_ok=True)
        else:
            raise BlockingIOError(f"{path}: another process relays for this job")
