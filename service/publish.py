"""What goes out over Kafka: verdicts, and the lines that were not understood.

    loop ──verdict──> latest per incident ──┐
         ──rejected─> bounded queue ────────┴──> own thread ──> KafkaProducer

The loop never waits: a broker that is away costs memory up to the bounds below, then drops, counted.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ingest.blocks import Rejected
from ingest.kafka_clients import close_now, make_client
from ingest.kafka_topics import TopicsConfig, unreachable

from .message_headers import dead_letter_headers, verdict_headers

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherConfig:
    """Where verdicts and dead letters go, and how much may wait for a broker that is away."""

    bootstrap: tuple[str, ...] = ("127.0.0.1:9092",)
    """``host:port`` of one or more brokers."""
    topics: TopicsConfig = field(default_factory=TopicsConfig)
    waiting_verdicts: int = 10_000
    """Incidents with an unsent verdict; a newer verdict of an incident replaces the older."""
    waiting_dead_letters: int = 200_000
    """Rejected lines: a hundred polls of nothing but garbage, at half a kilobyte of bookkeeping each."""
    waiting_dead_letter_bytes: int = 64 << 20
    """Sum of the rejected lines that wait; whichever bound is reached first, the oldest give way."""
    dead_letter_bytes: int = 512 << 10
    """A rejected line is cut to this, half of what brokers accept by default; a header says so."""
    send_timeout_s: float = 30.0
    """After this a message that was not acknowledged is given up: verdicts wait again, letters drop."""
    retry_s: float = 2.0
    """Wait between attempts to reach the broker."""
    client: Mapping[str, object] = field(default_factory=dict)
    """Further kafka-python settings, the same as the source's."""


@dataclass(slots=True)
class PublisherCounts:
    """What became of everything handed over so far."""

    sent: int = 0
    dropped_verdicts: int = 0
    dropped_dead_letters: int = 0


class Publisher:
    """Sends verdicts and dead letters from a thread of its own; handing over never blocks."""

    def __init__(self, config: PublisherConfig) -> None:
        self.counts = PublisherCounts()
        self._config = config
        self._verdicts: dict[str, tuple[int, bytes]] = {}
        self._newest_sent: dict[str, int] = {}
        """Per incident the newest verdict on the way: an older one that fails is not tried again."""
        self._acknowledged: list[int] = []
        self._dead_letters: deque[Rejected] = deque()
        self._dead_letter_bytes = 0
        self._unacknowledged = 0
        self._letters_on_the_way = 0
        self._is_closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._thread.start()

    def publish_verdict(self, seq: int, incident_id: str, verdict: bytes) -> None:
        """Send the verdict (JSON) under the incident's id; an unsent older one is replaced.

        ``seq`` is its number in the outbox: `acknowledged` gives it back once a broker has the verdict.
        """
        with self._changed:
            if incident_id not in self._verdicts and len(self._verdicts) >= self._config.waiting_verdicts:
                self.counts.dropped_verdicts += 1
                return
            self._verdicts[incident_id] = seq, verdict
            self._changed.notify_all()

    def acknowledged(self) -> list[int]:
        """Numbers of the verdicts that were acknowledged, or will never fit, since this was last asked."""
        with self._changed:
            done, self._acknowledged = self._acknowledged, []
        return done

    def dead_letters(self, rejected: Sequence[Rejected]) -> None:
        """Send rejected lines as they came; the oldest give way when too many wait."""
        with self._changed:
            self._dead_letters.extend(rejected)
            self._dead_letter_bytes += sum(len(one.raw) for one in rejected)
            while self._is_flooded():
                self._dead_letter_bytes -= len(self._dead_letters.popleft().raw)
                self.counts.dropped_dead_letters += 1
            self._changed.notify_all()

    @property
    def waiting_letters(self) -> int:
        """Rejected lines that are neither acknowledged nor given up."""
        with self._changed:
            return len(self._dead_letters) + self._letters_on_the_way

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything handed over is acknowledged; False when time is up first."""
        with self._changed:
            return self._changed.wait_for(self._is_idle, timeout_s)

    def close(self, timeout_s: float = 5.0) -> None:
        """Flush, then end; what is still unsent counts as dropped. Safe to call twice."""
        self.flush(timeout_s)
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._thread.join(timeout_s)
        with self._changed:
            self.counts.dropped_verdicts += len(self._verdicts)
            self.counts.dropped_dead_letters += len(self._dead_letters)
            self._verdicts.clear()
            self._dead_letters.clear()
            self._dead_letter_bytes = 0
        if self.counts.dropped_verdicts or self.counts.dropped_dead_letters:
            dropped = {
                "verdicts": self.counts.dropped_verdicts,
                "dead_letters": self.counts.dropped_dead_letters,
            }
            log.warning("not everything could be published", extra=dropped)

    def _is_flooded(self) -> bool:
        if len(self._dead_letters) > self._config.waiting_dead_letters:
            return True
        return bool(self._dead_letters) and self._dead_letter_bytes > self._config.waiting_dead_letter_bytes

    def _is_idle(self) -> bool:
        return not self._verdicts and not self._dead_letters and self._unacknowledged == 0

    # -- on the publisher's own thread

    def _run(self) -> None:
        producer = self._connected()
        if producer is None:
            return
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_closing or self._verdicts or self._dead_letters)
                if self._is_closing:
                    break
                verdicts, self._verdicts = self._verdicts, {}
                letters, self._dead_letters = list(self._dead_letters), deque()
                self._dead_letter_bytes = 0
                self._newest_sent.update({name: seq for name, (seq, _) in verdicts.items()})
                self._unacknowledged += len(verdicts) + len(letters)
                self._letters_on_the_way += len(letters)
            for incident_id, (seq, verdict) in verdicts.items():
                self._send_verdict(producer, seq, incident_id, verdict)
            for at, rejected in enumerate(letters):
                if not self._send_dead_letter(producer, rejected):
                    # No topic or no broker: verdicts must not wait behind a flood of letters.
                    self._put_back(letters[at + 1 :])
                    break
        close_now(producer)  # `close` has waited for what could still arrive

    def _connected(self) -> Any:
        """A producer, once the broker answers; None when closed before."""
        from kafka import KafkaProducer
        from kafka.errors import KafkaError

        config = self._config
        timeout_ms = int(config.send_timeout_s * 1000)
        settings: dict[str, Any] = {
            "bootstrap_servers": list(config.bootstrap),
            "acks": "all",
            "compression_type": "lz4",
            "linger_ms": 20,  # rejected lines come in bursts; a verdict may wait this long
            "delivery_timeout_ms": timeout_ms,
            "request_timeout_ms": timeout_ms // 3,
            "max_block_ms": int(config.retry_s * 1000),
            "bootstrap_timeout_ms": timeout_ms // 3,
            "allow_auto_create_topics": False,
            "reconnect_backoff_max_ms": 1_000,
        }
        while True:
            # The plain connection first: it fails at once and says why.
            why = unreachable(config.bootstrap, config.retry_s)
            try:
                if why is None:
                    return make_client(KafkaProducer, settings, config.client)
            except KafkaError as error:
                why = str(error)
            log.warning("nothing can be published yet", extra={"reason": why})
            with self._changed:
                if self._changed.wait_for(lambda: self._is_closing, config.retry_s):
                    return None

    def _put_back(self, letters: list[Rejected]) -> None:
        with self._changed:
            self._unacknowledged -= len(letters)
            self._letters_on_the_way -= len(letters)
            self._dead_letters.extendleft(reversed(letters))
            self._dead_letter_bytes += sum(len(one.raw) for one in letters)

    def _send_verdict(self, producer: Any, seq: int, incident_id: str, verdict: bytes) -> None:
        from kafka.errors import MessageSizeTooLargeError

        def failed(error: Exception) -> None:
            log.warning("verdict was not acknowledged", extra={"incident": incident_id, "reason": str(error)})
            with self._changed:
                if isinstance(error, MessageSizeTooLargeError):
                    self.counts.dropped_verdicts += 1  # it will never fit
                    self._acknowledged.append(seq)
                elif self._newest_sent.get(incident_id) == seq:
                    self._verdicts.setdefault(incident_id, (seq, verdict))
                self._forget_sent(incident_id, seq)
                self._settle()

        def sent(_place: object) -> None:
            with self._changed:
                self._acknowledged.append(seq)
                self.counts.sent += 1
                self._forget_sent(incident_id, seq)
                self._settle()

        topic = self._config.topics.verdicts
        headers = verdict_headers(incident_id, verdict)
        self._send(
            producer, sent, failed, topic=topic, value=verdict, key=incident_id.encode(), headers=headers
        )

    def _send_dead_letter(self, producer: Any, rejected: Rejected) -> bool:
        def failed(error: Exception) -> None:
            log.warning("dead letter was not sent", extra={"source": rejected.source, "reason": str(error)})
            with self._changed:
                self.counts.dropped_dead_letters += 1
                self._letters_on_the_way -= 1
                self._settle()

        raw = rejected.raw or rejected.value.encode(errors="replace")
        headers = dead_letter_headers(rejected)
        if len(raw) > self._config.dead_letter_bytes:
            headers.append(("cut_from_bytes", str(len(raw)).encode()))
            raw = raw[: self._config.dead_letter_bytes]
        topic = self._config.topics.dead_letter
        return self._send(producer, self._letter_sent, failed, topic=topic, value=raw, headers=headers)

    def _send(
        self,
        producer: Any,
        sent: Callable[[object], None],
        failed: Callable[[Exception], None],
        **message: Any,
    ) -> bool:
        """Hand one message to the client; False when it takes none within ``retry_s``."""
        from kafka.errors import KafkaError

        try:
            future = producer.send(**message)
        except KafkaError as error:
            failed(error)
            return False
        future.add_callback(sent)
        future.add_errback(failed)
        return True

    def _letter_sent(self, _place: object) -> None:
        with self._changed:
            self.counts.sent += 1
            self._letters_on_the_way -= 1
            self._settle()

    def _forget_sent(self, incident_id: str, seq: int) -> None:
        if self._newest_sent.get(incident_id) == seq:
            del self._newest_sent[incident_id]

    def _settle(self) -> None:
        self._unacknowledged -= 1
        self._changed.notify_all()
