"""The worker: telemetry from a topic, incidents into the store, the topic and the terminal.

    Source ─poll→ Pipeline ─verdicts→ Store ─changes→ Outlet, sentences

The only composition root: source, pipeline, store and outlet meet here and nowhere else.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from detectors.verdict import canonical_bytes, to_json
from ingest.blocks import RecordBatch, Rejected
from ingest.decode import Decoder
from ingest.errors import SourceUnavailable
from ingest.source import Source

from .config import Settings, WorkerConfig
from .pipeline import STATE_VERSION, Pipeline
from .rejects import reason_of
from .sentence import change_sentence
from .snapshot import SnapshotError
from .store import Checkpoint, Store

log = logging.getLogger(__name__)

_NOWHERE = (-1, -1)
_LAST_WORDS_S = 2.0
"""How long a stopping worker waits for the broker to take its last verdicts: it must end within 5 s."""


class Outlet(Protocol):
    """Where verdicts and rejected lines go; neither blocks nor raises."""

    def publish_verdict(self, incident_id: str, verdict: bytes) -> None:
        """Hand on a run's canonical verdict because of what changed about one of its incidents."""
        ...

    def dead_letters(self, rejected: Sequence[Rejected]) -> None:
        """Hand on records and values that were not understood."""
        ...


class Worker:
    """Judges what a source hands out, until it is told to stop."""

    def __init__(
        self,
        source: Source,
        pipeline: Pipeline,
        store: Store,
        *,
        name: str,
        config: WorkerConfig | None = None,
        outlet: Outlet | None = None,
        say: Callable[[str], None] = print,
        is_caught_up: Callable[[], bool] = lambda: True,
    ) -> None:
        """``name`` is that of the source in the store; ``say`` gets a sentence per new or worse incident.

        ``is_caught_up`` tells whether an empty poll means that nothing is there, and not that the
        source is away.
        """
        self._source, self._pipeline, self._store, self._name = source, pipeline, store, name
        self._config = config or WorkerConfig()
        self._outlet, self._say, self._is_caught_up = outlet, say, is_caught_up
        self._open = set(pipeline.runs)
        self._known = {one.run: _reach(json.loads(one.canonical)) for one in store.verdicts()}
        self._rejected: dict[str, tuple[int, bytes]] = {}
        self._records_unsaved = 0
        self._judged_at_s = self._saved_at_s = self._heard_at_s = time.monotonic()

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set, then judge and save once more."""
        while not stop.is_set():
            for batch in self._poll():
                self._take(batch)
            if time.monotonic() - self._judged_at_s >= self._config.judge_every_s:
                self._judge()
            if self._is_time_to_save():
                self._save()
        self._judge()
        self._save()

    def _poll(self) -> list[RecordBatch]:
        try:
            return self._source.poll(self._config.poll_timeout_s)
        except SourceUnavailable as error:
            log.warning("the source is away; trying again", extra={"reason": str(error)})
            return []

    def _take(self, batch: RecordBatch) -> None:
        self._pipeline.feed(batch)
        self._heard_at_s = time.monotonic()
        self._records_unsaved += len(batch) + len(batch.events) + len(batch.rejected)
        for one in batch.rejected:
            count, example = self._rejected.get(reason_of(one), (0, one.raw or one.value.encode()))
            self._rejected[reason_of(one)] = count + 1, example
        if self._outlet is not None and batch.rejected:
            self._outlet.dead_letters(batch.rejected)

    def _judge(self) -> None:
        """Judge the runs that have something new; all as if ended once nothing comes any more."""
        fresh = self._pipeline.dirty_runs()
        for run in fresh:
            self._store_verdict(run, ended=False)
        self._open.update(fresh)
        self._judged_at_s = time.monotonic()
        if self._judged_at_s - self._heard_at_s >= self._config.settle_after_s and self._is_caught_up():
            for run in sorted(self._open):
                self._store_verdict(run, ended=True)
            self._open.clear()

    def _store_verdict(self, run: str, *, ended: bool) -> None:
        verdict = self._pipeline.verdict(run, ended=ended)
        body = to_json(verdict)
        if not ended and _reach(body) < self._known.get(run, _NOWHERE):
            return  # read again after a restart: the store knows more of this run than we do yet
        self._known.pop(run, None)
        canonical = canonical_bytes(verdict)
        for change in self._store.save_verdict(body, canonical):
            if self._outlet is not None:
                self._outlet.publish_verdict(str(change.incident["id"]), canonical)
            sentence = change_sentence(change.kind, change.incident, change.before, body)
            if sentence:
                self._say(sentence)

    def _is_time_to_save(self) -> bool:
        if not self._records_unsaved:
            return False
        waited_s = time.monotonic() - self._saved_at_s
        is_much = self._records_unsaved >= self._config.checkpoint_every_records
        return is_much or waited_s >= self._config.checkpoint_every_s

    def _save(self) -> None:
        offsets = self._source.position()
        if self._records_unsaved and offsets:
            snapshot = self._pipeline.snapshot()
            checkpoint = Checkpoint(version=str(STATE_VERSION), offsets=offsets, snapshot=snapshot)
            self._store.save_checkpoint(self._name, checkpoint, self._rejected)
            log.info("checkpoint saved", extra={"records": self._records_unsaved, "bytes": len(snapshot)})
            self._rejected, self._records_unsaved = {}, 0
        self._saved_at_s = time.monotonic()


def _reach(verdict: Mapping[str, Any]) -> tuple[int, int]:
    """How far a run was judged: its last attempt and the iteration in it."""
    attempts = [
        (int(one["attempt"]), -1 if one["to"] is None else int(one["to"])) for one in verdict["attempts"]
    ]
    return max(attempts, default=_NOWHERE)


@dataclass(frozen=True, slots=True)
class Resumed:
    """A pipeline and the offsets it has seen."""

    pipeline: Pipeline
    offsets: Mapping[str, int]


def resume(store: Store, name: str, settings: Settings) -> Resumed:
    """The pipeline as of the last checkpoint of the source ``name``, a fresh one if there is none usable.

    A checkpoint of another release, or a damaged one, is put aside and the source is read again from
    its start: verdicts are a function of the records, so that costs time and nothing else.
    """
    checkpoint = store.load_checkpoint(name)
    pipeline = Pipeline(settings.pipeline, settings.detectors)
    if checkpoint is None:
        return Resumed(pipeline, {})
    try:
        pipeline.restore(checkpoint.snapshot)
    except (SnapshotError, ValueError) as error:
        log.warning("checkpoint not usable; reading from the start", extra={"reason": str(error)})
        store.forget_checkpoint(name)
        return Resumed(Pipeline(settings.pipeline, settings.detectors), {})
    log.info("resumed from the checkpoint", extra={"runs": len(pipeline.runs)})
    return Resumed(pipeline, checkpoint.offsets)


def work_on_kafka(
    settings: Settings, data_dir: Path, stop: threading.Event, say: Callable[[str], None]
) -> None:
    """Put a worker on the telemetry topic together, and run it until ``stop``.

    Raises:
        StoreError: the store cannot be used, or another worker has taken it over.
    """
    from ingest.kafka_source import KafkaSource

    from .publish import Publisher, PublisherConfig

    store = Store(data_dir, settings.store)
    try:
        name = f"kafka:{settings.kafka.topics.telemetry}"
        resumed = resume(store, name, settings)
        source = KafkaSource(settings.kafka, Decoder(settings.decode), resumed.offsets)
        kafka = settings.kafka
        outlet = Publisher(
            PublisherConfig(bootstrap=kafka.bootstrap, topics=kafka.topics, client=kafka.client)
        )

        def is_caught_up() -> bool:
            health = source.health()
            return health.unavailable_since is None and health.lag_messages in (None, 0)

        try:
            worker = Worker(
                source,
                resumed.pipeline,
                store,
                name=name,
                config=settings.worker,
                outlet=outlet,
                say=say,
                is_caught_up=is_caught_up,
            )
            log.info("worker started", extra={"source": name, "data": str(data_dir)})
            worker.run(stop)
        finally:
            outlet.close(_LAST_WORDS_S)
            source.close()
    finally:
        store.close()
    log.info("worker stopped")
