"""Telemetry from Apache Kafka behind the `Source` protocol.

The offsets are ours: they come from the store, are sought after each assignment, and are what
`position` gives. What is committed to Kafka is for its lag display only. No deserializer is set, since
one that raises wedges kafka-python for good; bytes go to the decoder as they are, a whole poll at once.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .blocks import RecordBatch, Rejected
from .decode import Decoder, RawMessage
from .kafka_assignment import Assignment, part_name
from .kafka_clients import check_settings, free_the_line
from .kafka_codecs import bound_codecs
from .kafka_config import KafkaSourceConfig
from .kafka_connection import KafkaConnection
from .kafka_damage import Damage, damaged_batch, describe, missing_range
from .kafka_health import KafkaHealth
from .kafka_merge import PartitionMerge
from .kafka_topics import unreachable
from .source import ClaimParts
from .watchdog import Watchdog

__all__ = ["KafkaHealth", "KafkaSource", "KafkaSourceConfig"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Taken:
    """What one poll gives: (partition, message) in order, what was refused, where to go on after it."""

    ready: list[tuple[Any, Any]] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    moved: dict[Any, int] = field(default_factory=dict)


class KafkaSource:
    """Hands out what is in the telemetry topic, each partition from where ``claim`` says.

    Parts are named "topic:partition". ``claim`` is called inside `poll` whenever the group has assigned
    anew. All calls belong to one thread.

    Raises:
        UnreadableInput: a client setting that kafka-python does not know, or a kafka-python whose
            decompression cannot be bounded.
    """

    def __init__(self, config: KafkaSourceConfig, decoder: Decoder, claim: ClaimParts) -> None:
        check_settings(config.client)
        bound_codecs(config.max_batch_bytes)
        self._config = config
        self._decoder = decoder
        self._assignment = Assignment(claim)
        self._connection = KafkaConnection(config, self._assignment)
        self._merge = PartitionMerge(config.max_poll_messages, config.longest_hold_s)
        self._watchdog = Watchdog(config.watchdog_s)
        self._probe_at_s = 0.0
        self._commit_at_s = 0.0
        self._waiting: dict[str, int] | None = None
        self._moved_at_s: dict[str, float] = {}
        self._skipped_messages = 0
        self._polled_at: float | None = None

    def poll(self, timeout_s: float) -> list[RecordBatch]:
        """The next batches; empty when none came or while waiting to connect again.

        Raises:
            SourceUnavailable: an attempt to connect failed just now; the next poll goes on.
        """
        if self._connection.consumer is None and not self._connection.may_open(timeout_s):
            return []
        with self._watchdog.watching():
            if self._connection.consumer is None:
                self._connection.open()
            taken = self._read(timeout_s)
            self._probe_if_due(is_idle=not taken.ready)
            self._commit_if_due()
        if self._connection.away_since is None:
            self._polled_at = time.time()
        return self._hand_out(taken)

    def position(self) -> Mapping[str, int]:
        """Next offset of each partition that is ours, as far as anything is known of it."""
        return self._assignment.position()

    @property
    def is_exhausted(self) -> bool:
        """Never: a topic can always grow."""
        return False

    def health(self) -> KafkaHealth:
        """How the source stands, without asking the broker."""
        return KafkaHealth(
            unavailable_since=self._connection.away_since,
            reason=self._connection.reason,
            partitions=tuple(sorted(self._assignment.position())),
            lag_messages=None if self._waiting is None else sum(self._waiting.values()),
            lag_by_part=dict(self._waiting or {}),
            polled_at=self._polled_at,
            skipped_messages=self._skipped_messages,
            starved=self._starved(),
        )

    def disown(self) -> None:
        """Hand out nothing until the group has assigned anew and the parts are claimed."""
        self._assignment.disown(self._connection.consumer)

    def close(self) -> None:
        """Leave the group and stop the watchdog; safe to call twice."""
        self._watchdog.stop()
        self._connection.close()

    # -- reading

    def _read(self, timeout_s: float) -> _Taken:
        """Poll once, seek past damage, place partitions that are new to us, merge by time."""
        from kafka.errors import KafkaError, NoOffsetForPartitionError

        polled: dict[Any, list[Any]] = {}
        damages: list[Damage] = []
        free_the_line(self._connection.consumer)
        try:
            polled = self._connection.consumer.poll(
                int(timeout_s * 1000), max_records=self._config.max_poll_messages
            )
        except NoOffsetForPartitionError:
            pass  # a partition that was just assigned: `place` gives it its first position
        except Exception as error:
            damages = missing_range(error)
            batch = damaged_batch(error, self._connection.consumer)
            damages += [batch] if batch is not None else []
            if not damages:
                if not isinstance(error, KafkaError):
                    raise
                self._connection.fail(describe(error), error)
        timeout_ms = int(self._config.connect_timeout_s * 1000)
        try:
            taken = _Taken()
            for damage in damages:
                self._pass_over(damage, timeout_ms, taken)
            placed = self._assignment.place(self._connection.consumer, timeout_ms)
            self._merge.keep(placed)
            for partition in placed & polled.keys():
                self._merge.add(partition, polled[partition])
            # What was passed over lies behind what waits, so that goes out first.
            taken.ready = self._merge.take_all() if damages else self._merge.take(placed, self._is_drained)
            self._pause_those_ahead(placed)
        except KafkaError as error:
            self._connection.fail(describe(error), error)
        return taken

    def _is_drained(self, partition: Any) -> bool:
        """Whether all that the broker had at its last answer is read."""
        end = self._connection.consumer.highwater(partition)
        if end is None:
            return False
        at = self._connection.consumer.position(partition, timeout_ms=1000)
        return at is not None and at >= end

    def _pause_those_ahead(self, placed: set[Any]) -> None:
        consumer = self._connection.consumer
        ahead = {partition for partition in placed if self._merge.is_ahead(partition)}
        paused = consumer.paused() & placed
        if ahead - paused:
            consumer.pause(*(ahead - paused))
        if paused - ahead:
            consumer.resume(*(paused - ahead))

    def _pass_over(self, damage: Damage, timeout_ms: int, taken: _Taken) -> None:
        name = part_name(damage.partition)
        start, stop = self._assignment.pass_over(self._connection.consumer, damage, timeout_ms)
        self._skipped_messages += max(0, stop - start)
        last = (
            f"offsets {start} to {stop - 1}" if stop > start else f"offset {start}, now reading from {stop}"
        )
        log.warning("messages passed over", extra={"source": name, "start": start, "stop": stop})
        rule = f"must be readable: {damage.reason}"
        taken.rejected.append(Rejected("message", rule, last, True, source=name, offset=start))
        taken.moved[damage.partition] = stop

    def _hand_out(self, taken: _Taken) -> list[RecordBatch]:
        names: dict[Any, str] = {}
        next_offset: dict[Any, int] = {}
        messages: list[RawMessage] = []
        rejected = taken.rejected
        for partition, message in taken.ready:
            name = names.get(partition) or names.setdefault(partition, part_name(partition))
            next_offset[partition] = message.offset + 1
            refusal = self._refusal(message, name)
            if refusal is not None:
                rejected.append(refusal)
            else:
                content_type = _content_type(message.headers) if message.headers else None
                messages.append(RawMessage(name, message.offset, message.value, content_type))
        for partition, offset in (next_offset | taken.moved).items():
            self._assignment.advance(partition, offset)
        self._note_moved(Counter(partition for partition, _ in taken.ready))
        refused = [_only_rejected(rejected)] if rejected else []
        return [*refused, *(self._decoder.decode_each(messages) if messages else [])]

    def _refusal(self, message: Any, source: str) -> Rejected | None:
        if message.value is None:
            return Rejected("message", "must have a value", "none", True, source, message.offset)
        size, limit = len(message.value), self._config.max_value_bytes
        if size > limit:
            rule = f"must have at most {limit} bytes"
            return Rejected("message", rule, f"{size} bytes", True, source, message.offset, message.value)
        return None

    # -- what the broker is asked aside

    def _probe_if_due(self, *, is_idle: bool) -> None:
        """Ask how much waits, and whether the broker is there: a lost one only shows as empty polls."""
        now_s = time.monotonic()
        if now_s < self._probe_at_s:
            return
        self._probe_at_s = now_s + self._config.probe_interval_s
        why = unreachable(self._config.bootstrap, self._config.connect_timeout_s) if is_idle else None
        if why is None:
            why, self._waiting = self._assignment.lag(
                self._connection.consumer,
                self._config.topics.telemetry,
                int(self._config.connect_timeout_s * 1000),
            )
        for name, waiting in (self._waiting or {}).items():
            if not waiting:
                self._moved_at_s[name] = now_s
        if self._waiting is not None:
            for partition, held in self._merge.held_by_partition().items():
                self._waiting[part_name(partition)] = self._waiting.get(part_name(partition), 0) + held
        if why is not None and not why.startswith("topic "):
            self._connection.is_away(why)
        else:
            self._connection.is_back(why or "")

    def _note_moved(self, handed_out: Mapping[Any, int]) -> None:
        """So many messages of each partition were handed out."""
        now_s = time.monotonic()
        for partition, count in handed_out.items():
            name = part_name(partition)
            self._moved_at_s[name] = now_s
            if self._waiting is not None and name in self._waiting:
                self._waiting[name] = max(0, self._waiting[name] - count)

    def _starved(self) -> tuple[str, ...]:
        now_s, patience_s = time.monotonic(), self._config.starved_after_s
        waiting = sorted(name for name, count in (self._waiting or {}).items() if count)
        since = {name: self._moved_at_s.setdefault(name, now_s) for name in waiting}
        return tuple(name for name in waiting if now_s - since[name] > patience_s)

    def _commit_if_due(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._commit_at_s and self._connection.away_since is None:
            self._commit_at_s = now_s + self._config.commit_interval_s
            self._assignment.show_to_kafka(self._connection.consumer)


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
        origins=frozenset(),
    )
