"""What a process says as it dies: of an exception that nobody caught, and of SIGTERM.

Hooks call those that were there before. A SIGTERM handler is only installed where the signal would end the
process anyway: it lets out what waits, then lets the signal do what it does. A handler in Python only runs
once the main thread comes back to Python, which one that hangs in a collective never does; so the sending
thread looks for the signal too, and ends the process if the main thread does not.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any

from . import forks
from .probe_edge import text_of

Say = Callable[[str, BaseException | None, str], None]
"""Told the kind (``exception``, ``signal``), the exception, and in which thread or by which signal."""
_GRACE_S = 2.0
"""How long the main thread may take for a SIGTERM before the sending thread ends the process."""


def ending(kind: str, error: BaseException | None, where: str, phase: str, rank: int) -> dict[str, object]:
    """The fields of the event that says how this process, or a thread of it, ended."""
    name = where if error is None else type(error).__name__
    thread = f" in thread {where}" if where and error is not None else ""
    told = "" if error is None else text_of(error).partition("\n")[0]
    text = f"rank {rank} was ended by {name}{thread} in {phase}{': ' if told else ''}{told}"
    ended = kind == "signal" or not where
    return {"kind": kind, "code": name, "phase": phase, "text": text[:300], "ended": ended}


def is_on_purpose(error: BaseException | None) -> bool:
    """Whether nothing went wrong: no exception, or one by which a program leaves."""
    return (
        error is None
        or isinstance(error, GeneratorExit)
        or (isinstance(error, SystemExit) and not error.code)
    )


def on_its_way(since: BaseException | None = None) -> BaseException | None:
    """What was raised and is perhaps caught by nobody, where this is called in ``finally``.

    Not what leaves on purpose, nor what was on its way before (``since``).
    """
    error = sys.exc_info()[1]
    return None if error is since or is_on_purpose(error) else error


class ExceptionHooks:
    """Tells of exceptions that end the process, or a thread of it."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self._before, self._thread_before = sys.excepthook, threading.excepthook
        self._mine, self._thread_mine = self._on_exception, self._on_thread_exception
        sys.excepthook, threading.excepthook = self._mine, self._thread_mine

    def remove(self) -> None:
        """As it was, unless somebody else hooked in since; then ours stays and is silent."""
        self._say = lambda *_: None
        if sys.excepthook is self._mine:
            sys.excepthook = self._before
        if threading.excepthook is self._thread_mine:
            threading.excepthook = self._thread_before

    def _on_exception(
        self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(Exception):
            self._say("exception", error, "")
        self._before(kind, error, trace)

    def _on_thread_exception(self, told: threading.ExceptHookArgs) -> None:
        with contextlib.suppress(Exception):
            self._say("exception", told.exc_value, told.thread.name if told.thread else "a thread")
        self._thread_before(told)


class SigtermHandler:
    """Lets out what waits when SIGTERM comes; see the module."""

    def __init__(self, on_term: Callable[[], None], libc: Any, pipe: tuple[int, int]) -> None:
        self._on_term, self._libc = on_term, libc
        self._read, self._write = pipe
        self._seen_s: float | None = None
        self._mine = self._handle
        signal.signal(signal.SIGTERM, self._mine)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        forks.remember(self)

    @classmethod
    def install(cls, on_term: Callable[[], None]) -> SigtermHandler | None:
        """Installed, or None where the signal, or the way of noticing it, is somebody else's."""
        if threading.current_thread() is not threading.main_thread():
            return None
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return None
        others = signal.set_wakeup_fd(-1)
        if others != -1:
            signal.set_wakeup_fd(others)
            return None
        try:
            libc = import_module("ctypes").CDLL(None)
        except (ImportError, OSError):
            return None
        read, write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        return cls(on_term, libc, (read, write))

    def look(self) -> None:
        """Called often by the sending thread: ends the process if the main thread does not."""
        with contextlib.suppress(OSError):
            if signal.SIGTERM in os.read(self._read, 4096) and self._seen_s is None:
                self._seen_s = time.monotonic()
        if signal.getsignal(signal.SIGTERM) is not self._mine:
            self._seen_s = None  # somebody else handles it now
        if self._seen_s is not None and time.monotonic() - self._seen_s > _GRACE_S:
            self._libc.signal(int(signal.SIGTERM), 0)  # SIG_DFL: signal.signal is the main thread's
            os.kill(os.getpid(), signal.SIGTERM)

    def remove(self) -> None:
        """As it was, as far as it is still ours and the calling thread may."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is self._mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        others = signal.set_wakeup_fd(-1)
        if others not in (-1, self._write):
            signal.set_wakeup_fd(others)

    def become_child(self) -> None:
        """A forked child is ended by SIGTERM as it would be without us, and wakes nobody in its parent."""
        with contextlib.suppress(ValueError):  # a fork by another thread than the main one
            if signal.getsignal(signal.SIGTERM) is self._mine:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.set_wakeup_fd(-1)

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 (what a handler is given)
        with contextlib.suppress(Exception):
            self._on_term()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
