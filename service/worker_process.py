"""Puts a worker together: settings become store, source, outlet and worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ingest.decode import Decoder

from .config import Settings
from .pipeline import Pipeline
from .store import Store
from .worker import Worker

log = logging.getLogger(__name__)

_LAST_WORDS_S = 2.0
"""How long a stopping worker waits for the broker to take its last verdicts: it must end within 5 s."""


def work_on_kafka(
    settings: Settings, data_dir: Path, stop: threading.Event, say: Callable[[str], None]
) -> None:
    """Put a worker on the telemetry topic, and run it until ``stop``.

    Raises:
        StoreError: the store cannot be used, or others keep taking over what this worker holds.
    """
    from ingest.kafka_source import KafkaSource

    from .publish import Publisher, PublisherConfig

    kafka = settings.kafka
    name = f"kafka:{kafka.topics.telemetry}"
    store = Store(data_dir, settings.store)
    outlet = Publisher(PublisherConfig(bootstrap=kafka.bootstrap, topics=kafka.topics, client=kafka.client))
    try:

        def is_caught_up() -> bool:
            health = source.health()
            return health.unavailable_since is None and health.lag_messages in (None, 0)

        def health() -> Mapping[str, Any]:
            now = source.health()
            return {
                "unavailable_since": now.unavailable_since,
                "reason": now.reason,
                "lag_messages": now.lag_messages,
                "skipped_messages": now.skipped_messages,
                "starved": list(now.starved),
                "published": outlet.counts.sent,
                "dropped_verdicts": outlet.counts.dropped_verdicts,
                "dropped_dead_letters": outlet.counts.dropped_dead_letters,
            }

        worker = Worker(
            store,
            lambda: Pipeline(settings.pipeline, settings.detectors),
            name=name,
            config=settings.worker,
            outlet=outlet,
            say=say,
            is_caught_up=is_caught_up,
            health=health,
        )
        source = KafkaSource(kafka, Decoder(settings.decode), worker.claim)
        try:
            log.info("worker started", extra={"source": name, "store": store.database.place})
            worker.run(source, stop)
        finally:
            outlet.close(_LAST_WORDS_S)
            source.close()
    finally:
        store.close()
    log.info("worker stopped")
