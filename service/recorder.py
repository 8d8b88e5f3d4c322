"""The worker's hand on telemetry history: when to write, show and freeze."""

from __future__ import annotations

import time

from .history_writer import HistoryWriter
from .incident_rows import IncidentChange
from .pipeline import Pipeline

_SHOW_EVERY_S = 2.0
"""Between two looks of history's readers at what has not settled of a live run: each is a file written."""


class Recorder:
    """Passes on to a history, or to none."""

    def __init__(self, history: HistoryWriter | None) -> None:
        self._history = history
        self._shown_at_s: dict[str, float] = {}

    def turn(self) -> None:
        """Write what has waited for long enough."""
        if self._history is not None:
            self._history.maybe_flush(time.monotonic())

    def flush(self) -> None:
        """Write all that waits."""
        if self._history is not None:
            self._history.flush()

    def freeze(self, run: str, change: IncidentChange) -> None:
        """Keep every rank's values around an incident."""
        if self._history is None or change.kind == "withdrawn":
            return
        first = change.incident["first"]
        low, high = first["interval"]
        begin = first["iteration"] if low is None else low
        self._history.freeze(str(change.incident["id"]), run, int(first["attempt"]), (begin, high + 1))

    def show(self, pipeline: Pipeline, run: str, *, is_quiet: bool) -> None:
        """Let readers see what has not settled: at once if nothing comes any more, else now and then."""
        if self._history is None:
            return
        now_s = time.monotonic()
        if is_quiet or now_s - self._shown_at_s.get(run, -_SHOW_EVERY_S) >= _SHOW_EVERY_S:
            self._shown_at_s[run] = now_s
            self._history.show_pending(pipeline.pending(run), is_quiet=is_quiet)
