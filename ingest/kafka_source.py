"""Telemetry from Apache Kafka behind the `Source` protocol.

The offsets are ours: they come from the store, are sought after each assignment, and are what
`position` gives. What is committed to Kafka is for its lag display only. No deserializer is set, since
one that raises wedges kafka-python for good; bytes go to the decoder as they are, a whole poll at once.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np

from .blocks import RecordBatch, Rejected
from .decode import Decoder, RawMessage
from .errors import SourceUnavailable
from .kafka_assignment import Assignment, part_name
from .kafka_codecs import bound_codecs
from .kafka_config import KafkaSourceConfig
from .kafka_damage import Damage, damaged_batch, describe, missing_range
from .kafka_topics import create_topics, unreachable
from .watchdog import Watchdog

__all__ = ["KafkaHealth", "KafkaSource", "KafkaSourceConfig"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaHealth:
    """How the source stands. ``reason`` is empty when nothing is wrong."""

    unavailable_since: float | None
    """Seconds since 1970 at which the broker was first found away; None while it answers."""
    reason: str
    partitions: tuple[str, ...]
    lag_messages: int | None
    """Messages not yet handed out, as of the last probe; None before it."""
    skipped_messages: int
    """Offsets passed over because they could not be read or were gone."""


class KafkaSource:
    """Hands out what is in the telemetry topic from ``positions`` on, earliest where there is none.

    ``positions`` maps "topic:partition" to the next offset; it is read anew at each assignment, so
    it may be a live view of the store. All calls belong to one thread.
    """

    def __init__(self, config: KafkaSourceConfig, decoder: Decoder, positions: Mapping[str, int]) -> None:
        self._config = config
        self._decoder = decoder
        self._assignment = Assignment(positions)
        self._consumer: Any = None
        self._watchdog = Watchdog(config.watchdog_s)
        self._jitter = random.Random()
        self._attempts = 0
        self._retry_at_s = 0.0
        self._probe_at_s = 0.0
        self._commit_at_s = 0.0
        self._away_since: float | None = None
        self._reason = ""
        self._lag_messages: int | None = None
        self._skipped_messages = 0
        bound_codecs(config.max_batch_bytes)

    def poll(self, timeout_s: float) -> list[RecordBatch]:
        """The next batches; empty when none came or while waiting to connect again.

        Raises:
            SourceUnavailable: an attempt to connect failed just now; the next poll goes on.
        """
        if self._consumer is None and not self._may_connect(timeout_s):
            return []
        with self._watchdog.watching():
            if self._consumer is None:
                self._connect()
            polled, lost = self._read(timeout_s)
            if not polled:
                self._probe_if_due()
            self._commit_if_due()
        return self._decode(polled, lost)

    def position(self) -> Mapping[str, int]:
        """Next offset of each partition that is assigned to us now."""
        return self._assignment.position()

    @property
    def is_exhausted(self) -> bool:
        """Never: a topic can always grow."""
        return False

    def health(self) -> KafkaHealth:
        """How the source stands, without asking the broker."""
        return KafkaHealth(
            unavailable_since=self._away_since,
            reason=self._reason,
            partitions=tuple(sorted(self._assignment.position())),
            lag_messages=self._lag_messages,
            skipped_messages=self._skipped_messages,
        )

    def close(self) -> None:
        """Leave the group and stop the watchdog; safe to call twice."""
        self._watchdog.stop()
        self._drop_consumer()

    # -- reading

    def _read(self, timeout_s: float) -> tuple[dict[Any, list[Any]], list[Rejected]]:
        """Messages per partition, and what had to be passed over; partitions new to us are placed."""
        from kafka.errors import KafkaError, NoOffsetForPartitionError

        polled: dict[Any, list[Any]] = {}
        damages: list[Damage] = []
        try:
            polled = self._consumer.poll(int(timeout_s * 1000), max_records=self._config.max_poll_messages)
        except NoOffsetForPartitionError:
            pass  # a partition that was just assigned: `place` gives it its first position
        except Exception as error:
            damages = missing_range(error)
            batch = damaged_batch(error, self._consumer)
            damages += [batch] if batch is not None else []
            if not damages:
                if not isinstance(error, KafkaError):
                    raise
                self._fail(describe(error), error)
        timeout_ms = int(self._config.connect_timeout_s * 1000)
        try:
            lost = [self._pass_over(damage, timeout_ms) for damage in damages]
            placed = self._assignment.place(self._consumer, timeout_ms)
        except KafkaError as error:
            self._fail(describe(error), error)
        return {partition: messages for partition, messages in polled.items() if partition in placed}, lost

    def _pass_over(self, damage: Damage, timeout_ms: int) -> Rejected:
        name = part_name(damage.partition)
        start, stop = self._assignment.pass_over(self._consumer, damage, timeout_ms)
        self._skipped_messages += max(0, stop - start)
        last = (
            f"offsets {start} to {stop - 1}" if stop > start else f"offset {start}, now reading from {stop}"
        )
        log.warning("messages passed over", extra={"source": name, "start": start, "stop": stop})
        rule = f"must be readable: {damage.reason}"
        return Rejected(field="message", rule=rule, value=last, whole=True, source=name, offset=start)

    def _decode(self, polled: Mapping[Any, Iterable[Any]], lost: list[Rejected]) -> list[RecordBatch]:
        messages: list[RawMessage] = []
        for partition, came in polled.items():
            name, last = part_name(partition), -1
            for message in came:
                last = message.offset
                refusal = self._refusal(message, name)
                if refusal is not None:
                    lost.append(refusal)
                    continue
                messages.append(RawMessage(name, last, message.value, _content_type(message.headers)))
            self._assignment.advance(partition, last + 1)
        if messages:
            batch = self._decoder.decode(messages)
            return [replace(batch, rejected=(*lost, *batch.rejected)) if lost else batch]
        return [_only_rejected(lost)] if lost else []

    def _refusal(self, message: Any, source: str) -> Rejected | None:
        if message.value is None:
            return Rejected("message", "must have a value", "none", True, source, message.offset)
        size, limit = len(message.value), self._config.max_value_bytes
        if size > limit:
            rule = f"must have at most {limit} bytes"
            return Rejected("message", rule, f"{size} bytes", True, source, message.offset, message.value)
        return None

    # -- the connection

    def _may_connect(self, timeout_s: float) -> bool:
        """Whether the back-off is over; sleeps towards its end, at most ``timeout_s``."""
        wait_s = self._retry_at_s - time.monotonic()
        if wait_s > 0:
            time.sleep(min(wait_s, timeout_s))
        return time.monotonic() >= self._retry_at_s

    def _connect(self) -> None:
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError

        config = self._config
        why = unreachable(config.bootstrap, config.connect_timeout_s)
        if why is not None:
            self._fail(why)
        settings = self._consumer_settings()
        try:
            if config.create_topics:
                create_topics(config.bootstrap, config.topics, config.client, config.connect_timeout_s)
            self._consumer = KafkaConsumer(bootstrap_servers=list(config.bootstrap), **settings)
            self._consumer.subscribe(
                [config.topics.telemetry], listener=self._assignment.listener(self._consumer)
            )
        except SourceUnavailable as error:
            self._fail(str(error), error)
        except KafkaError as error:
            addresses = ", ".join(config.bootstrap)
            self._fail(f"{addresses} accepts connections but no Kafka answers: {describe(error)}", error)
        self._attempts = 0
        self._is_back()
        log.info("connected to Kafka", extra={"bootstrap": ",".join(config.bootstrap)})

    def _consumer_settings(self) -> dict[str, Any]:
        config = self._config
        return {
            "group_id": config.group,
            "auto_offset_reset": "none",
            "enable_auto_commit": False,
            "allow_auto_create_topics": False,
            "bootstrap_timeout_ms": int(config.connect_timeout_s * 1000),
            "session_timeout_ms": int(config.session_timeout_s * 1000),
            "heartbeat_interval_ms": int(config.session_timeout_s * 250),
            "fetch_max_bytes": config.fetch_bytes,
            "max_partition_fetch_bytes": config.fetch_bytes // 4,
            # A topic created later, or a broker that moved, is found within this.
            "metadata_max_age_ms": 30_000,
            # The default waits up to 30 s after the broker is back.
            "reconnect_backoff_max_ms": 1_000,
            **config.client,
        }

    def _fail(self, reason: str, cause: Exception | None = None) -> NoReturn:
        """Note the outage, plan the next attempt, and tell the loop."""
        self._drop_consumer()
        self._is_away(reason)
        longest_s = min(self._config.backoff_max_s, 0.5 * 2**self._attempts)
        self._attempts = min(self._attempts + 1, 16)
        self._retry_at_s = time.monotonic() + self._jitter.uniform(longest_s / 2, longest_s)
        raise SourceUnavailable(f"Kafka is unavailable: {reason}") from cause

    def _drop_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._assignment.clear()
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=int(self._config.connect_timeout_s * 1000))

    # -- what the broker is asked aside

    def _probe_if_due(self) -> None:
        """Ask whether the broker is there: a lost one only shows as empty polls."""
        now_s = time.monotonic()
        if now_s < self._probe_at_s:
            return
        self._probe_at_s = now_s + self._config.probe_interval_s
        why = unreachable(self._config.bootstrap, self._config.connect_timeout_s)
        if why is None:
            why, self._lag_messages = self._assignment.lag(
                self._consumer, self._config.topics.telemetry, int(self._config.connect_timeout_s * 1000)
            )
        if why is not None and not why.startswith("topic "):
            self._is_away(why)
        else:
            self._is_back(why or "")

    def _commit_if_due(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._commit_at_s and self._away_since is None:
            self._commit_at_s = now_s + self._config.commit_interval_s
            self._assignment.show_to_kafka(self._consumer)

    def _is_away(self, reason: str) -> None:
        if self._away_since is None:
            self._away_since = time.time()
            log.warning("Kafka does not answer", extra={"reason": reason})
        self._reason = reason

    def _is_back(self, reason: str = "") -> None:
        if self._away_since is not None:
            log.info("Kafka answers again", extra={"away_s": round(time.time() - self._away_since, 1)})
        self._away_since, self._reason = None, reason


def _content_type(headers: Iterable[tuple[str, bytes | None]]) -> str | None:
    for name, value in headers:
        if name.lower() == "content-type" and value is not None:
            return value.decode("latin-1")
    return None


def _only_rejected(rejected: list[Rejected]) -> RecordBatch:
    return RecordBatch(
        runs=(),
        run_N=np.empty(0, np.int32),
        attempt_N=np.empty(0, np.int32),
        rank_N=np.empty(0, np.int32),
        iteration_N=np.empty(0, np.int64),
        microbatch_N=np.empty(0, np.int32),
        time_N=np.empty(0),
        rejected=tuple(rejected),
    )
