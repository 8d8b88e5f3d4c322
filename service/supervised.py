"""The child's side of the supervisor: it ends when its parent does, however that ended."""

from __future__ import annotations

import logging
import os
import threading

log = logging.getLogger(__name__)

_GRACE_S = 10.0
"""Time to save what is known after the parent is gone; then the process ends all the same."""
_FAILED = 3


def end_with_parent(stop: threading.Event, grace_s: float = _GRACE_S) -> None:
    """Set ``stop`` when standard input, a pipe held by the parent, comes to its end.

    A pipe and not a signal at the parent's death: it works the same on every system, and there is no
    moment at which the parent could die unnoticed.
    """
    threading.Thread(target=_watch, args=(stop, grace_s), name="parent-watch", daemon=True).start()


def _watch(stop: threading.Event, grace_s: float) -> None:
    while _read():
        pass
    if not stop.is_set():
        log.warning("the parent process is gone; ending")
        stop.set()
    # the wait of a thread that nobody wakes: the process ends sooner, or now
    threading.Event().wait(grace_s)
    os._exit(_FAILED)


def _read() -> bytes:
    try:
        return os.read(0, 4096)
    except OSError:
        return b""  # no standard input at all is the end of it too
