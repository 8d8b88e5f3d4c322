"""The worker: telemetry from a source, incidents into the store, the topic and the terminal.

    Source ─poll→ Pipeline ─verdicts→ Store ─changes→ Outlet, sentences

Source, pipeline, store and outlet meet here and nowhere else. The order in which things become durable:
a verdict with its incidents and the outbox at once, then the outside is told; a checkpoint every so many
records. A crash repeats work since the checkpoint, and the ids absorb it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from detectors.verdict import canonical_bytes, to_json
from ingest.blocks import RecordBatch
from ingest.errors import SourceUnavailable
from ingest.source import Source

from .checkpoints import Checkpoint, Tenure
from .config import WorkerConfig
from .crash_points import CrashPoint, reach
from .docket import Docket
from .errors import OwnershipLost, SplitRun, StoreError
from .history_writer import HistoryWriter
from .journal import Journal
from .outlet import Outlet
from .pipeline import Pipeline
from .recorder import Recorder
from .rejects import count_by_reason
from .resumption import Reaches, publish_unsent, resume, states_of
from .run_hosts import hosts_of
from .sentence import change_sentence
from .store import Store

log = logging.getLogger(__name__)

_LAST_VERDICTS_S = 1.5
"""How long a stopping worker judges what is new; the checkpoint says of the rest that it is to be judged."""
_LAST_WORDS_S = 2.0
"""How long a stopping worker waits for the broker to take its last verdicts: it must end within 5 s."""


class Worker:
    """Judges what a source hands out, until it is told to stop."""

    def __init__(
        self,
        store: Store,
        new_pipeline: Callable[[], Pipeline] = Pipeline,
        *,
        name: str,
        config: WorkerConfig | None = None,
        outlet: Outlet | None = None,
        say: Callable[[str], None] = print,
        is_caught_up: Callable[[], bool] = lambda: True,
        health: Callable[[], Mapping[str, Any]] = dict,
        on_checkpoint: Callable[[Mapping[str, int]], None] | None = None,
        history: HistoryWriter | None = None,
    ) -> None:
        """``name`` is that of the source in the store; ``say`` gets a sentence per new or worse incident.

        ``is_caught_up`` tells whether an empty poll means that nothing is there, and not that the
        source is away; ``health`` is what the source says of itself; ``on_checkpoint`` is told the offsets
        before which nothing will be asked for again; ``history`` keeps what the pipeline settles.
        """
        self._on_checkpoint, self._recorder = on_checkpoint, Recorder(history)
        self._store, self._new_pipeline, self._name = store, new_pipeline, name
        self._config, self._retire_at_s = config or WorkerConfig(), 0.0
        self._outlet, self._say, self._is_caught_up = outlet, say, is_caught_up
        self._tenure: Tenure | None = None
        self._offsets: dict[str, int] = {}
        """Where each part stood at the last checkpoint."""
        self._handed_out: deque[RecordBatch] = deque()
        self._journal = Journal(store, name, self._config, health)
        self._begin(new_pipeline())

    # -- claims: called by the source, on this thread

    def claim(self, parts: frozenset[str]) -> Mapping[str, int] | None:
        """These parts are ours from now on: go on from their checkpoint. None: our state is still good."""
        claim = self._store.claim(self._name, parts, self._tenure)
        if claim.is_kept:
            return None
        self._tenure = claim.tenure
        pipeline, offsets = resume(self._store, claim, self._new_pipeline)
        self._begin(pipeline)
        self._offsets = dict(offsets)
        if self._outlet is not None:
            publish_unsent(self._store, self._outlet)
        log.info("parts claimed", extra={"parts": ",".join(sorted(parts)), "runs": len(pipeline.runs)})
        reach(CrashPoint.AFTER_CLAIM)
        return offsets

    def _begin(self, pipeline: Pipeline) -> None:
        """Start from this state: nothing is known beyond it."""
        self._pipeline, self._offsets = pipeline, {}
        self._docket = Docket(pipeline.dirty_runs())
        self._recorder.begin()
        self._reaches = Reaches(self._store)
        self._handed_out.clear()
        self._counted: dict[str, tuple[int, bytes]] = {}
        self._records_unsaved = 0
        self._judged_at_s = self._saved_at_s = self._heard_at_s = time.monotonic()

    # -- the loop

    def run(self, source: Source, stop: threading.Event) -> None:
        """Work until ``stop`` is set, then judge and save once more.

        Raises:
            StoreError: the store cannot be used, or others keep taking over what this worker holds.
        """
        is_blocked = False
        while not stop.is_set():
            try:
                self._turn(source, is_blocked=is_blocked)
                is_blocked = False
            except OwnershipLost as error:
                self._lose(source, error)
            except StoreError as error:
                if not error.retriable:
                    raise
                is_blocked = True
                self._journal.store_failed(str(error))
                stop.wait(self._config.store_retry_s)
        self._end(source)

    def _turn(self, source: Source, *, is_blocked: bool) -> None:
        if is_blocked:
            # Nothing new is taken in before what is owed to the store is there.
            self._take_all()
            self._judge(self._config.judge_at_most_s)
            self._save(source)
            self._journal.store_works()
        self._handed_out.extend(self._poll(source))
        self._take_all()
        is_time = time.monotonic() - self._judged_at_s >= self._config.judge_every_s
        if is_time or self._docket.urgency.is_ripe(self._pipeline.aligners):
            self._judge(self._config.judge_at_most_s)
        if self._is_time_to_save():
            self._save(source)
        self._hear_of_the_outside()
        self._retire()
        self._recorder.turn()
        self._journal.note(self._pipeline, self._tenure)

    def _end(self, source: Source) -> None:
        try:
            self._take_all()
            self._judge(_LAST_VERDICTS_S)
            if self._outlet is not None:
                self._outlet.flush(_LAST_WORDS_S)
            if not self._has_letters_on_the_way():  # else they are read, and sent, again
                self._save(source)
            self._hear_of_the_outside()
            if self._tenure is not None:
                self._store.release(self._tenure)
        except OwnershipLost as error:
            log.warning("another worker goes on", extra={"reason": str(error)})

    def _lose(self, source: Source, error: OwnershipLost) -> None:
        """Others go on with our parts: drop what we know, and wait for an assignment."""
        log.warning("parts lost; waiting to be assigned anew", extra={"reason": str(error)})
        self._tenure = None
        self._begin(self._new_pipeline())
        self._journal.lost(error)
        source.disown()

    def _poll(self, source: Source) -> list[RecordBatch]:
        try:
            return source.poll(self._config.poll_timeout_s)
        except SourceUnavailable as error:
            log.warning("the source is away; trying again", extra={"reason": str(error)})
            return []

    def _take_all(self) -> None:
        """Take in what was handed out: it counts as read, so what the store holds up must not be lost."""
        while self._handed_out:
            reach(CrashPoint.AFTER_POLL)
            self._take(self._handed_out[0])
            self._handed_out.popleft()

    def _take(self, batch: RecordBatch) -> None:
        self._pipeline.feed(batch)
        self._heard_at_s = time.monotonic()
        self._records_unsaved += len(batch) + len(batch.events) + len(batch.rejected)
        self._journal.heard(batch)
        self._docket.urgency.hear(batch)
        count_by_reason(self._counted, batch.rejected)
        if self._outlet is not None and batch.rejected:
            self._outlet.dead_letters(batch.rejected)
        reach(CrashPoint.AFTER_FEED)

    # -- verdicts

    def _judge(self, at_most_s: float) -> None:
        """Judge the runs that have something new; all as if ended once nothing comes any more."""
        if self._tenure is None:
            return
        until_s = time.monotonic() + at_most_s
        self._docket.add(self._pipeline.dirty_runs())
        for run in self._docket.due(until_s):
            self._store_verdict(run, ended=False)
            self._recorder.show(self._pipeline, run, is_quiet=False)
            self._docket.judged(run)
        self._judged_at_s = time.monotonic()
        is_silent = self._judged_at_s - self._heard_at_s >= self._config.settle_after_s
        if is_silent and not self._docket.has_due and self._is_caught_up():
            for run in self._docket.open(until_s):
                self._store_verdict(run, ended=True)
                if self._recorder.show(self._pipeline, run, is_quiet=True):
                    self._docket.settled(run)
                self._records_unsaved = max(self._records_unsaved, 1)  # that it is settled is news
                self._pipeline.mark_unsaved(run)

    def _store_verdict(self, run: str, *, ended: bool) -> None:
        assert self._tenure is not None
        began_s = time.monotonic()
        verdict = self._pipeline.verdict(run, ended=ended)
        body = to_json(verdict)
        if not ended and self._reaches.is_behind(run, body):
            return
        canonical = canonical_bytes(verdict)
        self._journal.judged(run, time.monotonic() - began_s)
        reach(CrashPoint.BEFORE_VERDICT)
        try:
            parts, newest = self._pipeline.parts_of(run), self._pipeline.newest_time(run)
            hosts = hosts_of(self._pipeline.aligners(run))
            changes = self._store.save_verdict(self._tenure, parts, body, canonical, newest, hosts=hosts)
        except SplitRun as error:
            self._journal.split(run, error)
            return
        self._reaches.told(run)
        self._journal.stored(run)
        reach(CrashPoint.AFTER_VERDICT)
        for change in changes:
            self._recorder.freeze(run, change)
            if self._outlet is not None:
                self._outlet.publish_verdict(change.seq, str(change.incident["id"]), canonical)
                reach(CrashPoint.AFTER_PUBLISH)
            if sentence := change_sentence(change.kind, change.incident, change.before, body):
                self._say(sentence)

    def _hear_of_the_outside(self) -> None:
        if self._outlet is not None and (done := self._outlet.acknowledged()):
            self._store.mark_sent(done)

    # -- checkpoints

    def _retire(self) -> None:
        now_s = time.monotonic()
        if self._tenure is None or now_s < self._retire_at_s:
            return
        self._retire_at_s = now_s + min(60.0, self._config.retire_after_s)
        silent = self._journal.silent_runs(self._pipeline, self._docket.runs)
        if silent:
            self._store.retire(self._tenure, silent)
            for run in silent:
                self._pipeline.let_go(run)
                self._recorder.forget(run)
                self._reaches.forget(run)

    def _is_time_to_save(self) -> bool:
        if not self._records_unsaved:
            return False
        waited_s = time.monotonic() - self._saved_at_s
        if self._has_letters_on_the_way() and waited_s < self._config.hold_for_letters_s:
            return False
        is_much = self._records_unsaved >= self._config.checkpoint_every_records
        return is_much or waited_s >= self._config.checkpoint_every_s

    def _has_letters_on_the_way(self) -> bool:
        return self._outlet is not None and self._outlet.waiting_letters > 0

    def _save(self, source: Source) -> None:
        position = source.position()
        if self._tenure is None or not self._records_unsaved or not position:
            self._saved_at_s = time.monotonic()
            return
        checkpoint = Checkpoint(
            offsets={part: (self._offsets.get(part), end) for part, end in position.items()},
            states=states_of(self._pipeline, self._docket.runs),
            rejected=self._pipeline.rejected,
            counted=self._counted,
        )
        self._recorder.flush()  # what it settled is never read again
        reach(CrashPoint.BEFORE_CHECKPOINT)
        self._store.save_checkpoint(self._tenure, checkpoint)
        reach(CrashPoint.AFTER_CHECKPOINT)
        self._journal.saved(checkpoint, self._records_unsaved)
        self._pipeline.mark_saved()
        self._offsets, self._counted, self._records_unsaved = dict(position), {}, 0
        self._saved_at_s = time.monotonic()
        if self._on_checkpoint is not None:
            self._on_checkpoint(position)
