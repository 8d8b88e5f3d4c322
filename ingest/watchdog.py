"""Ends the process when one call does not return: a supervisor's restart is better than silence.

kafka-python's `poll` can spin for ever on a batch it cannot read. No exception comes out of that, and
a thread cannot be stopped from outside, so the only cure is to say where it hangs and to exit.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

STUCK_STATUS = 3
"""Exit status of a service that could not do its work."""


def dump_and_exit() -> None:
    """Write the stacks of all threads to standard error and end the process with `STUCK_STATUS`."""
    stream = sys.__stderr__ or sys.stderr
    stream.write("the source is stuck in one call; the stacks of all threads follow\n")
    stream.flush()
    faulthandler.dump_traceback(file=stream, all_threads=True)
    os._exit(STUCK_STATUS)


class Watchdog:
    """Calls ``on_stuck`` once when the same `watching` block lasts longer than ``limit_s`` seconds.

    Time is counted in ticks of its own thread, not by a clock: a process that was suspended, or a
    machine that slept, is not stuck.
    """

    TICKS = 8
    """Ticks to the limit: stuck is noticed at most an eighth late, and waking costs nothing."""

    def __init__(self, limit_s: float, on_stuck: Callable[[], None] = dump_and_exit) -> None:
        self._tick_s = limit_s / self.TICKS
        self._on_stuck = on_stuck
        self._entries = 0
        self._is_inside = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._thread.start()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The block that must end in time."""
        self._entries += 1
        self._is_inside = True
        try:
            yield
        finally:
            self._is_inside = False

    def stop(self) -> None:
        """End the watching thread; safe to call twice."""
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        seen, ticks = -1, 0
        while not self._stop.wait(self._tick_s):
            if not self._is_inside or self._entries != seen:
                seen, ticks = self._entries, 0
                continue
            ticks += 1
            if ticks >= self.TICKS:
                self._on_stuck()
                return
