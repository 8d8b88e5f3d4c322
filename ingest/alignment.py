"""From records of a run in any order to settled iterations × ranks, attempt by attempt.

Axes: N records.

Attempts settle on their own: each has its own counter of iterations, and records of an earlier one
are late once a later one is further than the lateness bound from its start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from firstfault.telemetry import Event

from .admission import AlignmentConfig
from .attempt_aligner import AttemptAligner
from .blocks import Ints, IterationBlock, RecordBatch

__all__ = ["AlignmentConfig", "AttemptAligner", "RunAligner"]


class RunAligner:
    """Aligns the records of one run: an `AttemptAligner` for each attempt, closed one after the other."""

    def __init__(self, run: str, config: AlignmentConfig | None = None) -> None:
        self.run = run
        self.config = config or AlignmentConfig()
        self.attempts: dict[int, AttemptAligner] = {}
        self.rejected: Counter[str] = Counter()

    def push(
        self, batch: RecordBatch, rows: Ints | None = None, events: list[tuple[int, Event]] | None = None
    ) -> list[IterationBlock]:
        """Take records of this run (``rows`` of ``batch``, all by default); give what has settled."""
        if rows is None:
            rows, events = np.arange(len(batch)), list(batch.events)
        blocks: list[IterationBlock] = []
        for attempt, part, among in _by_attempt(batch, rows, events or []):
            aligner = self._aligner(attempt)
            if aligner is None:
                self.rejected[f"attempt: at most {self.config.max_attempts} a run"] += len(part) + len(among)
                continue
            blocks += aligner.push(batch, part, among)
            blocks += self._close_before(aligner)
        return blocks

    def note_label(self, attempt: int, rank: int, iteration: int, name: str, text: str) -> None:
        """Remember the newest text of a rank's label; of two at one iteration the greater text."""
        aligner = self.attempts.get(attempt)
        if aligner is not None:
            names = aligner.labels.setdefault(rank, {})
            if name in names or len(names) < _MAX_LABELS:
                names[name] = max(names.get(name, (-1, "")), (iteration, text))

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        return {
            "attempts": [[attempt, aligner.snapshot()] for attempt, aligner in sorted(self.attempts.items())],
            "rejected": dict(self.rejected),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        self.rejected = Counter(state["rejected"])
        self.attempts = {}
        for attempt, saved in state["attempts"]:
            self.attempts[attempt] = AttemptAligner(self.run, attempt, self.config)
            self.attempts[attempt].restore(saved)

    def _aligner(self, attempt: int) -> AttemptAligner | None:
        aligner = self.attempts.get(attempt)
        if aligner is None and len(self.attempts) < self.config.max_attempts:
            aligner = self.attempts[attempt] = AttemptAligner(self.run, attempt, self.config)
        return aligner

    def _close_before(self, aligner: AttemptAligner) -> list[IterationBlock]:
        """Settle earlier attempts once this one is further than the lateness bound from its start."""
        if aligner.admission.first is None or aligner.admission.settled_before <= aligner.admission.first:
            return []
        earlier = [a for n, a in sorted(self.attempts.items()) if n < aligner.attempt and not a.is_closed]
        return [block for one in earlier for block in one.close()]


_MAX_LABELS = 16
"""Label names kept for a rank: host, device and a few more; text columns of a log are not metadata."""


def _by_attempt(
    batch: RecordBatch, rows: Ints, events: list[tuple[int, Event]]
) -> Iterator[tuple[int, Ints, list[tuple[int, Event]]]]:
    """``rows`` in stretches of one attempt, with the events among them, in arrival order."""
    attempt_N = batch.attempt_N[rows]
    is_one = not len(attempt_N) or bool((attempt_N == attempt_N[0]).all())
    if is_one and all(not len(rows) or event.attempt == attempt_N[0] for _, event in events):
        if len(rows):
            yield int(attempt_N[0]), rows, events
        else:
            for _, event in events:
                yield event.attempt, rows, [(0, event)]
        return
    edges = set((np.flatnonzero(np.diff(attempt_N)) + 1).tolist()) | {0, len(rows)}
    cuts = sorted(edges | {before for before, _ in events})
    waiting = list(events)
    for begin, stop in zip(cuts, [*cuts[1:], len(rows)], strict=True):
        while waiting and waiting[0][0] <= begin:
            _, event = waiting.pop(0)
            yield event.attempt, rows[:0], [(0, event)]
        if stop > begin:
            yield int(attempt_N[begin]), rows[begin:stop], []
