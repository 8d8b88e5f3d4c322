"""The worker's hand on telemetry history: when to write, show and freeze."""

from __future__ import annotations

import time

from .history_writer import HistoryWriter
from .incident_rows import IncidentChange
from .pipeline import Pipeline

_SHOW_EVERY_S = 2.0
"""Between two looks of history's readers at what has not settled of a live run: each is a file written."""
_SHOW_AT_MOST_S = 0.5
"""How long the files of one run may take at a time: two for each attempt, each synced to the disk."""


class Recorder:
    """Passes on to a history, or to none."""

    def __init__(self, history: HistoryWriter | None) -> None:
        self._history = history
        self.begin()

    def begin(self) -> None:
        """Nothing is known of what was shown: the attempts are others, or counted anew."""
        self._shown_at_s: dict[str, float] = {}
        self._shown: dict[str, dict[int, tuple[int, bool]]] = {}
        """Per run and attempt the state that was shown last, and whether as that of a quiet run."""

    def forget(self, run: str) -> None:
        """The run is held no longer."""
        self._shown_at_s.pop(run, None)
        self._shown.pop(run, None)

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

    def show(self, pipeline: Pipeline, run: str, *, is_quiet: bool) -> bool:
        """Let readers see what has not settled: at once if nothing comes any more, else now and then.

        Whether that was all of it: attempts that have not changed are not written again, and of very many
        that have some are left for the next call.
        """
        now_s = time.monotonic()
        is_due = is_quiet or now_s - self._shown_at_s.get(run, -_SHOW_EVERY_S) >= _SHOW_EVERY_S
        if self._history is None or not is_due:
            return True
        self._shown_at_s[run] = now_s
        shown, is_late = self._shown.setdefault(run, {}), False
        for aligner in pipeline.aligners(run):
            changes, was_quiet = shown.get(aligner.attempt, (-1, False))
            if changes == aligner.changes and was_quiet >= is_quiet:
                continue
            if is_late:
                return False
            self._history.show_pending(aligner.pending(), is_quiet=is_quiet)
            shown[aligner.attempt] = aligner.changes, is_quiet
            is_late = time.monotonic() - now_s > _SHOW_AT_MOST_S
        return True
