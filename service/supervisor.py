"""Keeps one child process alive: started again when it ends, with growing pauses; ended with its parent.

    parent ──pipe to standard input──> child: the end of the pipe is the end of the parent, however it came

Nothing here knows what the child does.
"""

from __future__ import annotations

import logging
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .serve_config import ServeConfig

log = logging.getLogger(__name__)

_LOOK_S = 0.05
"""Between two looks at the child and at the end of the service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildState:
    """How the child is."""

    pid: int | None
    """None while it is not there."""
    restarts: int
    early_deaths: int
    """Times in a row that it ended soon after it was started."""
    last_end: str
    """How it ended last, in words; empty if it never did."""
    is_crash_looping: bool


class Supervisor:
    """Runs ``command`` from `start` to `stop`, or until ``is_stopping`` says that the service ends."""

    def __init__(
        self,
        command: Sequence[str],
        config: ServeConfig,
        *,
        rng: random.Random | None = None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._command, self._config = list(command), config
        self._rng, self._is_stopping = rng or random.Random(), is_stopping
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._restarts = self._early_deaths = 0
        self._last_end = ""
        self._began_s = 0.0
        self._thread = threading.Thread(target=self._run, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start the child; call once."""
        self._thread.start()

    def state(self) -> ChildState:
        """How the child is at the moment."""
        with self._lock:
            child = self._child
            is_steady = child is not None and time.monotonic() - self._began_s >= self._config.steady_after_s
            return ChildState(
                pid=None if child is None else child.pid,
                restarts=self._restarts,
                early_deaths=self._early_deaths,
                last_end=self._last_end,
                is_crash_looping=not is_steady and self._early_deaths >= self._config.crash_loop_after,
            )

    def stop(self) -> None:
        """End the child and wait for it: SIGTERM, and SIGKILL when it takes too long. Safe to call twice."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._has_ended():
            self._began_s = time.monotonic()
            child = self._spawn()
            if child is not None:
                self._watch(child)
            if not self._has_ended():
                self._pause(time.monotonic() - self._began_s)

    def _spawn(self) -> subprocess.Popen[bytes] | None:
        try:
            # A group of its own: Ctrl-C is for the parent, which then ends the child in order.
            child = subprocess.Popen(self._command, stdin=subprocess.PIPE, process_group=0)
        except OSError as error:
            self._last_end = f"not started: {error}"
            log.error("worker cannot be started", extra={"reason": str(error)})
            return None
        with self._lock:
            self._child = child
        log.info("worker process started", extra={"pid": child.pid})
        return child

    def _watch(self, child: subprocess.Popen[bytes]) -> None:
        """Until the child has ended, by itself or because the service ends."""
        while child.poll() is None:
            if self._has_ended():
                self._end(child)
                break
            self._stop.wait(_LOOK_S)
        assert child.stdin is not None
        child.stdin.close()
        with self._lock:
            self._child = None
            self._last_end = _words_of(child.returncode)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        child.terminate()
        try:
            child.wait(self._config.worker_stop_s)
        except subprocess.TimeoutExpired:
            log.warning("worker did not end in time and is killed", extra={"pid": child.pid})
            child.kill()
            child.wait()

    def _pause(self, lived_s: float) -> None:
        config = self._config
        is_early = lived_s < config.steady_after_s
        with self._lock:
            self._restarts += 1
            self._early_deaths = self._early_deaths + 1 if is_early else 0
            doublings = min(max(0, self._early_deaths - 1), 32)
        longest_s = min(config.restart_max_s, config.restart_after_s * 2.0**doublings)
        pause_s = self._rng.uniform(longest_s / 2, longest_s)
        log.error(
            "worker ended and is started again",
            extra={"end": self._last_end, "lived_s": round(lived_s, 3), "pause_s": round(pause_s, 3)},
        )
        give_up_s = time.monotonic() + pause_s
        while not self._has_ended() and time.monotonic() < give_up_s:
            self._stop.wait(min(_LOOK_S, pause_s))

    def _has_ended(self) -> bool:
        return self._stop.is_set() or self._is_stopping()


def _words_of(status: int) -> str:
    """How a process ended.

    >>> _words_of(3), _words_of(-9)
    ('status 3', 'signal SIGKILL')
    """
    if status >= 0:
        return f"status {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
