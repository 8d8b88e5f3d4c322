"""The worker's end of history: takes settled blocks, writes them now and then, freezes incidents.

    history = HistoryWriter(data_dir / "history", settings.history, is_open=store.is_open)
    pipeline = Pipeline(settings.pipeline, settings.detectors, on_block=history.update)
    ...                                     # each turn of the worker's loop
    history.maybe_flush(time.monotonic())
    history.show_pending(aligner.pending())                  # now and then, for each attempt with news
    history.show_pending(aligner.pending(), is_quiet=True)   # once it is judged as if ended
    history.flush()                         # before each checkpoint: what it settled is never read again
    history.freeze(incident_id, run, attempt, (last_clean, first_bad + 1))      # as an incident is stored

Nothing here is part of a checkpoint. After a crash the records since the last one are read again and settle
as before; what is on disk already is then left out. Nothing here stops judging either: a disk that is full or
broken costs history, which is counted (`HistoryWriter.health`), and no verdict.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from ingest.blocks import IterationBlock

from .history_budget import Budget
from .history_config import HistoryConfig
from .history_names import attempt_folder, check_incident_id
from .history_segments import AttemptSegments
from .history_windows import Windows
from .run_id import run_id_of

log = logging.getLogger(__name__)

_IDLE_ATTEMPTS = 256
"""Attempts remembered with nothing to write: what is known of one can be listed again."""


class HistoryWriter:
    """Writes the history of any number of runs into one folder; use from one thread."""

    def __init__(
        self,
        folder: Path,
        config: HistoryConfig | None = None,
        *,
        is_open: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """``is_open`` tells whether an incident is still open: its window goes last when room is short.

        Raises:
            OSError: the folder cannot be made or read.
        """
        self._folder, self._config = folder, config or HistoryConfig()
        self._budget = Budget(folder, self._config, is_open)
        self._windows = Windows(folder, self._config, self._budget)
        self._attempts: dict[tuple[str, int], AttemptSegments] = {}
        self._pending_bytes = 0
        self._counts: Counter[str] = Counter()

    def update(self, block: IterationBlock) -> None:
        """Take the next settled block; cheap, save when much has gathered."""
        attempt = self._attempt(run_id_of(block.run), block.attempt)
        before = attempt.pending.bytes
        attempt.add(block)
        self._pending_bytes += attempt.pending.bytes - before
        if self._pending_bytes > self._config.pending_bytes:
            largest = max(self._attempts, key=lambda key: self._attempts[key].pending.bytes)
            if not self._write(largest):
                self._drop(largest)

    def maybe_flush(self, now_s: float) -> None:
        """Write what has waited for long enough; ``now_s`` is any clock that goes forward."""
        for key, attempt in list(self._attempts.items()):
            if not attempt.pending.blocks:
                continue
            if attempt.waiting_since_s is None:
                attempt.waiting_since_s = now_s
            elif now_s - attempt.waiting_since_s >= self._config.flush_every_s:
                attempt.waiting_since_s = now_s  # should it fail, it is tried again after as long
                self._write(key)
        self._forget_idle()

    def flush(self) -> bool:
        """Write all that waits; whether all could be. What could not is kept while memory allows."""
        waiting = [key for key, attempt in self._attempts.items() if attempt.pending.blocks]
        return len(waiting) == sum(self._write(key) for key in waiting)

    def show_pending(self, blocks: Sequence[IterationBlock], *, is_quiet: bool = False) -> None:
        """Show readers what has not settled yet, `AttemptAligner.pending`; written at once, not kept.

        The last iterations of a run that died settle only with its next attempt, and they are those that
        matter. Call it now and then while a run lives, and with ``is_quiet`` once nothing comes any more:
        then values of every rank are shown too, and windows frozen from them.
        """
        for key, same in groupby(blocks, key=lambda block: (run_id_of(block.run), block.attempt)):
            attempt = self._attempt(*key)
            held = attempt.pending.bytes
            try:
                attempt.show(list(same), with_values=is_quiet)
                if is_quiet:
                    self._windows.refresh(*key)
            except OSError as error:
                self._failed("history could not be written", error)
            self._pending_bytes -= held - attempt.pending.bytes

    def freeze(self, incident_id: str, run: str, attempt: int, interval: tuple[int, int]) -> bool:
        """Freeze what every rank reported in ``interval``, half-open, and around it; whether there was any.

        Asked again for an incident that moved, the window moves too. What has yet to settle is added later.
        """
        check_incident_id(incident_id)
        key = run_id_of(run), attempt
        if key in self._attempts and self._attempts[key].pending.blocks:
            self._write(key)
        is_frozen = False
        try:
            is_frozen = self._windows.freeze(incident_id, *key, *interval)
        except OSError as error:
            self._failed("a window could not be frozen", error)
        self._counts["unfrozen_windows"] += not is_frozen
        return is_frozen

    def health(self) -> Mapping[str, int]:
        """Bytes on disk and waiting, what was lost, and files pruned by kind."""
        pruned = {f"pruned_{kind}": count for kind, count in sorted(self._budget.counts.items())}
        return {
            "used_bytes": self._budget.used_bytes,
            "pending_bytes": self._pending_bytes,
            "failed_writes": self._counts["failed_writes"],
            "dropped_iterations": self._counts["dropped_iterations"],
            "unfrozen_windows": self._counts["unfrozen_windows"],
            **pruned,
        }

    def close(self) -> None:
        """Write all that waits, and unfinished windows as far as they go."""
        self.flush()
        try:
            self._windows.refresh()
        except OSError as error:
            self._failed("a window could not be frozen", error)

    def _attempt(self, run_id: str, attempt: int) -> AttemptSegments:
        found = self._attempts.get((run_id, attempt))
        if found is None:
            folder = attempt_folder(self._folder, run_id, attempt)
            assert folder is not None, f"attempt {attempt} passed alignment"
            found = self._attempts[run_id, attempt] = AttemptSegments(folder, self._config, self._budget)
        return found

    def _write(self, key: tuple[str, int]) -> bool:
        attempt = self._attempts[key]
        held = attempt.pending.bytes
        try:
            attempt.write()
            self._windows.grow(*key, attempt.recorded_to)
        except OSError as error:
            self._failed("history could not be written", error)
        self._pending_bytes -= held - attempt.pending.bytes
        return not attempt.pending.blocks

    def _drop(self, key: tuple[str, int]) -> None:
        pending = self._attempts[key].pending
        self._counts["dropped_iterations"] += pending.iterations
        self._pending_bytes -= pending.bytes
        pending.clear()

    def _failed(self, what: str, error: OSError) -> None:
        if not self._counts["failed_writes"] % 100:  # a full disk fails every few seconds
            log.warning(what, extra={"reason": str(error), "failed": self._counts["failed_writes"] + 1})
        self._counts["failed_writes"] += 1

    def _forget_idle(self) -> None:
        idle = [key for key, attempt in self._attempts.items() if not attempt.pending.blocks]
        for key in idle[: max(0, len(self._attempts) - _IDLE_ATTEMPTS)]:
            del self._attempts[key]
