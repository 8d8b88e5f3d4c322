"""Where accepted bodies go: the telemetry topic, or the spool of a service without Kafka.

`send` returns when everything is durable, and blocks until then; it is called from worker threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ingest.errors import IngestError, SourceUnavailable
from ingest.kafka_clients import check_settings, close_now, make_client
from ingest.kafka_config import KafkaSourceConfig
from ingest.kafka_topics import create_topics, unreachable
from ingest.spool import Spool, SpoolConfig

from .intake_config import IntakeConfig
from .intake_lines import IntakeMessage

log = logging.getLogger(__name__)

_RETRY_S = 1.0
"""After a failed attempt the next is made this much later; requests in between fail at once."""
_PROBE_S = 2.0
"""Bound of a plain connection to see whether the broker is there."""
_CLOSE_S = 0.2
"""How long `close` waits for one who is connecting: a stopping service has five seconds in all."""
_OVERHEAD_BYTES = 64 << 10  # of a message beside its value: a key of 256 bytes, a header, framing


class SinkUnavailable(Exception):
    """Not everything could be handed on; ``acknowledged`` records were, the others perhaps."""

    def __init__(self, reason: str, acknowledged: int = 0) -> None:
        super().__init__(reason)
        self.acknowledged = acknowledged


class SinkRefused(SinkUnavailable):
    """A message that the broker will never take."""


class Sink(Protocol):
    """Takes messages for good."""

    def send(self, messages: Sequence[IntakeMessage]) -> None:
        """Hand all messages on and wait until they are durable.

        Raises:
            SinkUnavailable: not all of them are; sending all again does no harm.
        """
        ...

    def close(self) -> None:
        """Let go; a `send` that waits fails soon. Safe to call twice."""
        ...


class SpoolSink:
    """Appends to the spool, all messages of a body or none."""

    def __init__(self, data_dir: Path, config: SpoolConfig) -> None:
        """Open the spool.

        Raises:
            SpoolUnusable: damaged, of another program or a newer release, or not to be written.
        """
        self._spool, self._max_bytes = Spool(data_dir, config), config.max_bytes

    def fill(self) -> tuple[int, int]:
        """Bytes of bodies that are held, and how many there may be.

        Raises:
            IngestError: the spool cannot be read just now.
        """
        return self._spool.usage().bytes, self._max_bytes

    def send(self, messages: Sequence[IntakeMessage]) -> None:
        """Append in one transaction.

        Raises:
            SinkUnavailable: the spool or the disk is full, or the file is damaged; nothing was kept.
        """
        try:
            self._spool.append([(message.content_type, message.value) for message in messages])
        except IngestError as error:
            log.warning("spool takes nothing", extra={"reason": str(error)})
            raise SinkUnavailable(str(error)) from error

    def close(self) -> None:
        """Let go of the file; safe to call twice."""
        self._spool.close()


class KafkaSink:
    """Produces to the telemetry topic, keyed by run, and waits for all in-sync replicas.

    The producer is made by the first `send`, so that the service starts without a broker.
    """

    def __init__(self, kafka: KafkaSourceConfig, config: IntakeConfig) -> None:
        """Check the client's settings.

        Raises:
            UnreadableInput: a client setting that kafka-python does not know.
        """
        check_settings(kafka.client)
        self._kafka, self._config = kafka, config
        self._lock = threading.Lock()
        self._producer: Any = None
        self._is_closed = False
        self._away = ""
        self._retry_at_s = 0.0

    def send(self, messages: Sequence[IntakeMessage]) -> None:
        """Produce, and wait for the acknowledgements within the configured time.

        Raises:
            SinkUnavailable: the broker is away, the topic missing, or not all was acknowledged in time.
            SinkRefused: the broker takes no message of this size.
        """
        from kafka.errors import KafkaError

        producer = self._connected()
        give_up_s = time.monotonic() + self._config.ack_timeout_s
        waiting: list[tuple[IntakeMessage, Any]] = []
        acknowledged = 0
        failure: KafkaError | None = None
        try:
            waiting.extend((message, self._produce(producer, message)) for message in messages)
        except KafkaError as error:
            failure = error
        for message, future in waiting:
            try:
                future.get(timeout=max(0.0, give_up_s - time.monotonic()))
                acknowledged += message.records
            except KafkaError as error:
                failure = failure or error
        if failure is not None:
            self._fail(producer, failure, acknowledged)

    def close(self) -> None:
        """Drop the producer: who waits for it is told that it failed. Safe to call twice."""
        self._is_closed = True
        if not self._lock.acquire(timeout=_CLOSE_S):
            return  # somebody is connecting, and drops what comes of it
        try:
            producer, self._producer = self._producer, None
        finally:
            self._lock.release()
        if producer is not None:
            close_now(producer)

    def _produce(self, producer: Any, message: IntakeMessage) -> Any:
        headers = [("content-type", message.content_type.encode())] if message.content_type else []
        return producer.send(
            self._kafka.topics.telemetry, message.value, key=message.run.encode(), headers=headers
        )

    def _fail(self, producer: Any, error: Exception, acknowledged: int) -> None:
        from kafka.errors import MessageSizeTooLargeError

        reason = str(error) or type(error).__name__
        is_refused = isinstance(error, MessageSizeTooLargeError)
        # One that gave up a message fails later ones too: the next body gets a new producer.
        with self._lock:
            is_current = self._producer is producer
            if is_current:
                self._producer = None
            if is_current and not is_refused:
                self._note(unreachable(self._kafka.bootstrap, _PROBE_S) or reason)
        if is_current:
            close_now(producer)
        if is_refused:
            raise SinkRefused(f"the broker takes no message of this size: {reason}", acknowledged) from error
        raise SinkUnavailable(f"not acknowledged: {reason}", acknowledged) from error

    def _connected(self) -> Any:
        """The producer, made on the first call and after a failure."""
        from kafka import KafkaProducer
        from kafka.errors import KafkaError

        with self._lock:
            if self._is_closed:
                raise SinkUnavailable("the service is stopping")
            if self._producer is not None:
                return self._producer
            if time.monotonic() < self._retry_at_s:
                raise SinkUnavailable(self._away)
            kafka = self._kafka
            why = unreachable(kafka.bootstrap, _PROBE_S)
            try:
                if why is None and kafka.create_topics:
                    create_topics(kafka.bootstrap, kafka.topics, kafka.client, kafka.connect_timeout_s)
                if why is None:
                    self._producer = make_client(KafkaProducer, self._settings(), kafka.client)
                    return self._kept(self._producer)
            except (KafkaError, SourceUnavailable) as error:
                why = str(error)
            self._note(str(why))
            raise SinkUnavailable(self._away)

    def _kept(self, producer: Any) -> Any:
        """A new producer, unless the sink was closed while it was made."""
        if not self._is_closed:
            return producer
        self._producer = None
        close_now(producer)
        raise SinkUnavailable("the service is stopping")

    def _note(self, reason: str) -> None:
        self._away = f"Kafka is unavailable: {reason}"
        self._retry_at_s = time.monotonic() + _RETRY_S
        log.warning("telemetry cannot be handed on", extra={"reason": reason})

    def _settings(self) -> dict[str, Any]:
        ack_ms = int(self._config.ack_timeout_s * 1000)
        return {
            "bootstrap_servers": list(self._kafka.bootstrap),
            "acks": "all",
            "compression_type": "lz4",
            # A missing topic or a full buffer is known within this; the acknowledgement takes the rest.
            "max_block_ms": ack_ms // 2,
            "delivery_timeout_ms": ack_ms,
            "request_timeout_ms": max(1, ack_ms // 2),
            "bootstrap_timeout_ms": int(self._kafka.connect_timeout_s * 1000),
            "max_request_size": self._config.max_message_bytes + _OVERHEAD_BYTES,
            "allow_auto_create_topics": False,
            "reconnect_backoff_max_ms": 1_000,
        }
