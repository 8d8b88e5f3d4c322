"""What a worker says of itself, and what it owes to the live clock: health, quiet runs.

No verdict depends on any of it. The worker's row in ``health`` is how the API sees that the broker is
away, a partition is starved, the worker is behind or dead (its row grows old), or the store is full.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from ingest.blocks import RecordBatch

from .checkpoints import Checkpoint, Tenure
from .config import WorkerConfig
from .errors import OwnershipLost, StoreError
from .latency import Latency
from .pipeline import Pipeline
from .rejects import FURTHER_REASONS, reason_of
from .store import Store

log = logging.getLogger(__name__)

_MAX_REASONS = 100
_MAX_SPLIT_RUNS = 100
_LATENCIES = 512
"""Judgements remembered for the latency that is told: a few minutes of them."""


class Journal:
    """Collects what happened and writes it into the store about once a second."""

    def __init__(
        self, store: Store, name: str, config: WorkerConfig, health: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._store, self._name, self._config, self._health = store, name, config, health
        self.now: Callable[[], float] = time.time
        """The live clock, seconds since 1970."""
        self._started_at = time.time()
        self._said_at_s = 0.0
        self._counts: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self._heard_of: dict[str, float] = {}
        self._quiet: set[str] = set()
        self._split: dict[str, str] = {}
        self._latencies_s: deque[float] = deque(maxlen=_LATENCIES)
        self._arrived_at: dict[str, float] = {}
        """Of each run, when the first record came that no stored verdict counts."""
        self._detection = Latency()
        self._store_failure = ""
        self._said: dict[str, Any] = {}
        self._lost_in_a_row = 0
        self._checkpoint_at: float | None = None
        self._checkpoint_bytes = 0

    @property
    def component(self) -> str:
        """The name of the row: one for each worker process of a host."""
        return f"worker:{os.uname().nodename}:{os.getpid()}"

    def heard(self, batch: RecordBatch) -> None:
        """A batch came."""
        now = self.now()
        self._lost_in_a_row = 0
        self._counts.update(records=len(batch), events=len(batch.events))
        self._counts["rejected_records"] += sum(one.whole for one in batch.rejected)
        self._counts["rejected_values"] += sum(not one.whole for one in batch.rejected)
        for one in batch.rejected:
            reason = reason_of(one)
            is_known = reason in self._rejected or len(self._rejected) < _MAX_REASONS
            self._rejected[reason if is_known else FURTHER_REASONS] += 1
        for run in batch.runs:
            self._heard_of[run] = now
            self._arrived_at.setdefault(run, now)

    def silent_runs(self, pipeline: Pipeline, busy: AbstractSet[str]) -> list[str]:
        """Runs of which nothing came for long and of which the store has all that is known."""
        now = self.now()
        waiting = busy | {*pipeline.dirty_runs(), *pipeline.unsaved_runs()}
        return [
            run
            for run in pipeline.runs
            if run not in waiting and now - self._heard_of.setdefault(run, now) >= self._config.retire_after_s
        ]

    def judged(self, run: str, took_s: float) -> None:
        """A verdict was made."""
        self._counts["verdicts"] += 1
        self._latencies_s.append(took_s)
        self._split.pop(run, None)

    def stored(self, run: str) -> None:
        """A verdict of all that came of a run is in the store."""
        arrived_at = self._arrived_at.pop(run, None)
        if arrived_at is not None:
            self._detection.add(self.now() - arrived_at)

    def split(self, run: str, error: StoreError) -> None:
        """Another worker judges this run from other partitions."""
        if run not in self._split:
            log.warning("run on two workers", extra={"run": run, "reason": str(error)})
        if len(self._split) < _MAX_SPLIT_RUNS:
            self._split[run] = str(error)

    def saved(self, checkpoint: Checkpoint, records: int) -> None:
        """A checkpoint is in the store, so many records after the one before."""
        self._counts["checkpoints"] += 1
        size = sum(len(state.snapshot) for state in checkpoint.states)
        log.info("checkpoint saved", extra={"records": records, "bytes": size})
        self._checkpoint_at, self._checkpoint_bytes = time.time(), size

    def store_failed(self, reason: str) -> None:
        """The store took nothing; the worker waits."""
        if not self._store_failure:
            log.warning("the store takes nothing; waiting", extra={"reason": reason})
        self._store_failure = reason
        self._counts["store_failures"] += 1
        if self._said:
            # Replacing a row of the same size often works where nothing else does.
            with contextlib.suppress(StoreError):
                self._store.say_health(self.component, {**self._said, "store_failure": reason})

    def store_works(self) -> None:
        """What was owed to the store is in it."""
        if self._store_failure:
            log.info("the store takes writes again")
        self._store_failure = ""

    def lost(self, error: OwnershipLost) -> None:
        """Another worker has taken over our parts.

        Raises:
            StoreError: it happens again and again: somebody else works on the same parts all the time.
        """
        self._counts["parts_lost"] += 1
        self._lost_in_a_row += 1
        if self._lost_in_a_row > self._config.max_losses:
            raise StoreError(
                f"{error}; stop one of the workers, or give both the same kafka.group"
            ) from error

    def note(self, pipeline: Pipeline, tenure: Tenure | None, *, is_due: bool = False) -> None:
        """Say how things are, if it is time or ``is_due``."""
        now_s = time.monotonic()
        if not is_due and now_s - self._said_at_s < self._config.health_every_s:
            return
        self._said_at_s = now_s
        self._note_quiet(pipeline)
        self._said = self._body(pipeline, tenure)
        self._store.say_health(self.component, self._said)

    def _body(self, pipeline: Pipeline, tenure: Tenure | None) -> dict[str, Any]:
        spans = sorted(self._latencies_s)
        return {
            "source": self._name,
            "pid": os.getpid(),
            "started_at": self._started_at,
            "parts": sorted(tenure.parts) if tenure is not None else [],
            "runs": len(pipeline.runs),
            "counts": dict(self._counts),
            "late_records": pipeline.late_records(),
            "rejected": dict(self._rejected),
            "split_runs": dict(self._split),
            "store_failure": self._store_failure,
            "checkpoint_at": self._checkpoint_at,
            "checkpoint_bytes": self._checkpoint_bytes,
            "verdict_seconds": {
                "median": spans[len(spans) // 2] if spans else None,
                "longest": spans[-1] if spans else None,
            },
            "detection": self._detection.body(),
            "newest_record_at": max(filter(None, map(pipeline.newest_time, pipeline.runs)), default=None),
            **self._health(),
        }

    def _note_quiet(self, pipeline: Pipeline) -> None:
        """Runs of which the live clock has seen nothing for long, though the source is there."""
        now, patience_s = self.now(), self._config.quiet_after_s
        if len(self._heard_of) > len(pipeline.runs):  # of runs that were let go, or never let in
            held = set(pipeline.runs)
            self._heard_of = {run: at for run, at in self._heard_of.items() if run in held}
            self._arrived_at = {run: at for run, at in self._arrived_at.items() if run in held}
            self._quiet &= held
        changed: dict[str, float | None] = {}
        for run in pipeline.runs:
            since = self._heard_of.setdefault(run, now)
            is_quiet = now - since >= patience_s and not pipeline.has_ended(run)
            if is_quiet and run not in self._quiet:
                changed[run] = since
            elif not is_quiet and run in self._quiet:
                changed[run] = None
        if changed:
            self._store.note_quiet(changed)
            self._quiet ^= changed.keys()  # only now: what the store did not take is noted again
