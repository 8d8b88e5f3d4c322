"""What the probe says by itself, and how: events and records that carry who speaks.

The sending thread asks for news at each round: where the trainer is, and what was lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .launch import Launch
from .telemetry import WHOLE_ITERATION, Event, EventKind, Phase, Record

DROPPED, ERRORS = "probe_dropped", "probe_errors"
"""Metrics: records and events lost, and failures inside the probe, so far in this attempt."""
Place = tuple[int, str]
"""(iteration, phase)"""


class News:
    """Speaks for one rank."""

    def __init__(self, launch: Launch, heartbeat_s: float, losses: Callable[[], tuple[int, int]]) -> None:
        self.place: Place = (0, Phase.GATHER.label)
        """Where the trainer is; one attribute, so that a thread never reads half of it."""
        self.last_logged: int | None = None
        """The newest iteration that was logged."""
        self._is_over = False
        self._run_end: int | None = None
        self._launch, self._heartbeat_s, self._losses = launch, heartbeat_s, losses
        self._beat_s: float | None = None
        self._told = (0, 0)

    def record(self, iteration: int, microbatch: int | None, metrics: Mapping[str, Any]) -> Record:
        """A record of this rank, now."""
        self.last_logged = iteration
        return Record(
            run=self._launch.run,
            rank=self._launch.rank,
            iteration=iteration,
            attempt=self._launch.attempt,
            microbatch=WHOLE_ITERATION if microbatch is None else microbatch,
            time=time.time(),
            metrics=metrics,
        )

    def event(self, kind: EventKind, iteration: int, details: Mapping[str, object]) -> Event:
        """An event of this rank, now."""
        return Event(
            kind=kind,
            run=self._launch.run,
            rank=self._launch.rank,
            iteration=iteration,
            attempt=self._launch.attempt,
            time=time.time(),
            fields=details,
        )

    def each_round(self) -> Iterator[Record | Event]:
        """A heartbeat where it is time for one, and losses where there are new ones."""
        if self._is_over:
            return
        now_s = time.monotonic()
        if self._beat_s is None or now_s - self._beat_s >= self._heartbeat_s:
            self._beat_s = now_s
            iteration, phase = self.place
            yield self.event(EventKind.HEARTBEAT, iteration, {"phase": phase})
        yield from self._losses_so_far()

    def end(self, iteration: int, *, is_whole: bool) -> None:
        """Nothing is said by itself any more, but that the run ended, if it did so as a whole."""
        self._is_over = True
        self._run_end = iteration if is_whole else None

    def last(self) -> Iterator[Record | Event]:
        """What is said at the very end."""
        yield from self._losses_so_far()
        if self._run_end is not None:
            yield self.event(EventKind.RUN_END, self._run_end, {})

    def _losses_so_far(self) -> Iterator[Record]:
        """What was lost so far, if that is more than was told; it goes with the newest iteration logged."""
        losses = self._losses()
        if losses != self._told and self.last_logged is not None:
            self._told = losses
            yield self.record(self.last_logged, None, dict(zip((DROPPED, ERRORS), losses, strict=True)))
