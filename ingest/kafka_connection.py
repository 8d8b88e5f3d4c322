"""The connection to Kafka: made, lost, and made again with growing pauses."""

from __future__ import annotations

import logging
import random
import time
from typing import Any, NoReturn

from .errors import SourceUnavailable
from .kafka_assignment import Assignment, knows_topic
from .kafka_clients import make_client
from .kafka_config import KafkaSourceConfig
from .kafka_damage import describe
from .kafka_topics import create_topics, unreachable

log = logging.getLogger(__name__)


class KafkaConnection:
    """Holds the consumer while there is one, and since when there is none."""

    def __init__(self, config: KafkaSourceConfig, assignment: Assignment) -> None:
        self.consumer: Any = None
        self.away_since: float | None = None
        """Seconds since 1970 at which the broker was first found away; None while it answers."""
        self.reason = ""
        self._config = config
        self._assignment = assignment
        self._jitter = random.Random()
        self._attempts = 0
        self._retry_at_s = 0.0

    def may_open(self, timeout_s: float) -> bool:
        """Whether the pause between attempts is over; sleeps towards its end, at most ``timeout_s``."""
        wait_s = self._retry_at_s - time.monotonic()
        if wait_s > 0:
            time.sleep(min(wait_s, timeout_s))
        return time.monotonic() >= self._retry_at_s

    def open(self) -> None:
        """Connect, create topics where allowed, and join the group.

        Raises:
            SourceUnavailable: the broker does not answer.
        """
        from kafka import KafkaConsumer
        from kafka.errors import KafkaError

        config = self._config
        why = unreachable(config.bootstrap, config.connect_timeout_s)
        if why is not None:
            self.fail(why)
        try:
            if config.create_topics:
                create_topics(config.bootstrap, config.topics, config.client, config.connect_timeout_s)
            self.consumer = make_client(KafkaConsumer, self._settings(), config.client)
            self._subscribe()
        except SourceUnavailable as error:
            self.fail(str(error), error)
        except KafkaError as error:
            hint = "accepts connections but does not answer as Kafka (is it TLS, SASL, another port?)"
            self.fail(f"{', '.join(config.bootstrap)} {hint}: {describe(error)}", error)
        self._attempts = 0
        self.is_back()
        log.info("connected to Kafka", extra={"bootstrap": ",".join(config.bootstrap)})

    def fail(self, reason: str, cause: Exception | None = None) -> NoReturn:
        """Note the outage, drop the consumer, plan the next attempt, and tell the loop."""
        self.close()
        self.is_away(reason)
        longest_s = min(self._config.backoff_max_s, 0.5 * 2**self._attempts)
        self._attempts = min(self._attempts + 1, 16)
        self._retry_at_s = time.monotonic() + self._jitter.uniform(longest_s / 2, longest_s)
        raise SourceUnavailable(f"Kafka is unavailable: {reason}") from cause

    def close(self) -> None:
        """Leave the group; safe to call twice."""
        consumer, self.consumer = self.consumer, None
        self._assignment.clear()
        if consumer is not None:
            consumer.close(autocommit=False, timeout_ms=int(self._config.connect_timeout_s * 1000))

    def is_away(self, reason: str) -> None:
        """Note that the broker does not answer."""
        if self.away_since is None:
            self.away_since = time.time()
            log.warning("Kafka does not answer", extra={"reason": reason})
        self.reason = reason

    def is_back(self, reason: str = "") -> None:
        """Note that the broker answers; ``reason`` is what is wrong all the same."""
        if self.away_since is not None:
            log.info("Kafka answers again", extra={"away_s": round(time.time() - self.away_since, 1)})
        self.away_since, self.reason = None, reason

    def _subscribe(self) -> None:
        topic = self._config.topics.telemetry
        self.consumer.subscribe([topic], listener=self._assignment.listener(self.consumer))
        # A member that joins before it knows the topic gets no partitions, sometimes until the next
        # refresh. A topic that does not exist is worth a short wait only.
        give_up = time.monotonic() + min(1.0, self._config.connect_timeout_s)
        while not knows_topic(self.consumer, topic) and time.monotonic() < give_up:
            time.sleep(0.01)

    def _settings(self) -> dict[str, Any]:
        config = self._config
        return {
            "bootstrap_servers": list(config.bootstrap),
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
        }
