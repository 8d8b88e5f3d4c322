"""Puts a worker together: settings become store, source, history, outlet and worker."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.decode import Decoder
from ingest.spool import Spool
from ingest.spool_source import PART, SpoolSource

from .alerts.links import link_base
from .alerts.sender import Sender
from .alerts.trial import check_channels
from .config import Settings
from .folder_lock import FolderLock
from .history_writer import HistoryWriter
from .pipeline import Pipeline
from .retention import Pruner
from .store import Store
from .warm_up import Compiler, load
from .worker import Worker

if TYPE_CHECKING:
    from ingest.kafka_source import KafkaHealth

    from .publish import PublisherCounts

log = logging.getLogger(__name__)

HISTORY = "history"
"""Folder of telemetry history inside the data folder."""


def work_on_kafka(
    settings: Settings, data_dir: Path, stop: threading.Event, say: Callable[[str], None]
) -> None:
    """Put a worker on the telemetry topic, and run it until ``stop``.

    Raises:
        StoreError: the store cannot be used, or others keep taking over what this worker holds.
        UnreadableInput: a client setting that kafka-python does not know.
    """
    from ingest.kafka_source import KafkaSource

    from .publish import Publisher, PublisherConfig

    kafka = settings.kafka
    with ExitStack() as stack:
        store, history, make = _kept(settings, data_dir, stack)
        outlet = Publisher(
            PublisherConfig(bootstrap=kafka.bootstrap, topics=kafka.topics, client=kafka.client)
        )
        stack.callback(outlet.close, 0.0)

        def is_caught_up() -> bool:
            now = source.health()
            return now.unavailable_since is None and now.lag_messages in (None, 0)

        worker = Worker(
            store,
            make,
            name=f"kafka:{kafka.topics.telemetry}",
            config=settings.worker,
            outlet=outlet,
            say=say,
            is_caught_up=is_caught_up,
            health=lambda: _kafka_health(source.health(), outlet.counts, history),
            history=history,
        )
        source = KafkaSource(kafka, Decoder(settings.decode), worker.claim)
        stack.callback(source.close)
        log.info("worker started", extra={"source": kafka.topics.telemetry, "store": store.database.place})
        worker.run(source, stop)
    log.info("worker stopped")


def _kafka_health(now: KafkaHealth, sent: PublisherCounts, history: HistoryWriter) -> Mapping[str, Any]:
    return {
        "unavailable_since": now.unavailable_since,
        "reason": now.reason,
        "lag_messages": now.lag_messages,
        "lag_by_part": now.lag_by_part,
        "polled_at": now.polled_at,
        "skipped_messages": now.skipped_messages,
        "starved": list(now.starved),
        "published": sent.sent,
        "dropped_verdicts": sent.dropped_verdicts,
        "dropped_dead_letters": sent.dropped_dead_letters,
        "history": dict(history.health()),
    }


def work_on_spool(
    settings: Settings, data_dir: Path, stop: threading.Event, say: Callable[[str], None]
) -> None:
    """Put a worker on the spool of the data folder, and run it until ``stop``.

    Raises:
        AlreadyRunning: another worker reads this spool.
        StoreError: the store cannot be used.
        IngestError: the spool cannot be used.
    """
    with ExitStack() as stack:
        stack.callback(FolderLock(data_dir, "worker").release)
        store, history, make = _kept(settings, data_dir, stack)
        spool = Spool(data_dir, settings.spool)
        stack.callback(spool.close)

        def health() -> Mapping[str, Any]:
            lag = source.lag_bodies()
            return {
                "unavailable_since": None,
                "reason": "",
                "lag_messages": lag,
                "lag_by_part": {PART: lag},
                "polled_at": time.time(),
                "skipped_messages": 0,
                "starved": [],
                "history": dict(history.health()),
            }

        worker = Worker(
            store,
            make,
            name="spool",
            config=settings.worker,
            say=say,
            health=health,
            history=history,
            on_checkpoint=lambda position: _prune(source, position.get(PART)),
        )
        source = SpoolSource(spool, Decoder(settings.decode), worker.claim)
        log.info("worker started", extra={"source": "spool", "store": store.database.place})
        worker.run(source, stop)
    log.info("worker stopped")


def _kept(
    settings: Settings, data_dir: Path, stack: ExitStack
) -> tuple[Store, HistoryWriter, Callable[[], Pipeline]]:
    """What a worker keeps on the disk, and how it makes a pipeline that writes history."""
    check_channels(settings.alerts)
    load()
    if settings.worker.compiles_beforehand:
        stack.callback(Compiler().close)
    store = Store(data_dir, settings.store, alerts=settings.alerts)
    stack.callback(store.close)
    sender = Sender(store.database, settings.alerts, link_base(settings.alerts, settings.serve))
    sender.start()
    stack.callback(sender.close)
    store.on_alert = sender.wake
    store.prune_health()
    stack.callback(Pruner(store.database, settings.retention, data_dir / HISTORY).close)
    history = HistoryWriter(data_dir / HISTORY, settings.history, is_open=store.is_open)
    stack.callback(history.close)
    return store, history, lambda: Pipeline(settings.pipeline, settings.detectors, on_block=history.update)


def _prune(source: SpoolSource, before: int | None) -> None:
    if before is not None:
        source.prune(before)
