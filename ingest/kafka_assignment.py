"""Which partitions are ours and where each of them stands.

A partition is *placed* once its position was sought from our own offset; what a poll returns for an
unplaced one started from the offset in Kafka, which is not ours, and is dropped and read again. Whenever
partitions change hands all that are held now are claimed together, since a run may be spread over them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from .kafka_damage import Damage
from .source import ClaimParts

log = logging.getLogger(__name__)


def part_name(partition: Any) -> str:
    """How a topic partition is named in offsets and in what was rejected: "topic:partition"."""
    return f"{partition.topic}:{partition.partition}"


def knows_topic(consumer: Any, topic: str) -> bool:
    """Whether the client has heard of a topic it subscribed to.

    Looked up in the client's own list, which it keeps fresh: its public calls ask the broker without
    any time limit.
    """
    return bool(consumer._cluster.partitions_for_topic(topic))


class Assignment:
    """Next offsets of the partitions that a consumer holds. Used by the polling thread only.

    The rebalance listener runs on the client's own thread and may not block, so it only sets flags: a
    partition that changes hands is paused and no longer placed. The rest happens after the poll.
    """

    def __init__(self, claim: ClaimParts) -> None:
        self._claim = claim
        self._claimed: frozenset[str] = frozenset()
        self._is_claim_due = False
        self._is_disowned = False
        self._next: dict[str, int] = {}
        self._placed: set[Any] = set()
        self._changed: list[Any] = []

    def listener(self, consumer: Any) -> Any:
        """A rebalance listener that sets flags only."""
        from kafka import ConsumerRebalanceListener

        changed = self._changed

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python is not typed
            def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
                changed.extend(revoked)

            def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
                changed.extend(assigned)
                # Unpaused it would be fetched from the offset in Kafka before it is placed.
                consumer.pause(*assigned)

            def on_partitions_lost(self, lost: Iterable[Any]) -> None:
                changed.extend(lost)

        return Listener()

    def place(self, consumer: Any, timeout_ms: int) -> set[Any]:
        """Claim and seek partitions that are new to us; gives those that were in place before.

        A partition whose earliest offset cannot be asked for in time is tried again after the next poll.
        """
        has_changed = bool(self._changed)
        self._changed.clear()
        held = set(consumer.assignment())
        names = frozenset(map(part_name, held))
        if has_changed or self._is_claim_due or (names != self._claimed and not self._is_disowned):
            self._take_over(names)
        if self._is_disowned:
            return set()
        before = self._placed & held
        new = sorted(held - before, key=part_name)
        self._placed = before | set(self._seek(consumer, new, timeout_ms))
        return before

    def advance(self, partition: Any, offset: int) -> None:
        """All messages before ``offset`` were handed out."""
        self._next[part_name(partition)] = offset

    def pass_over(self, consumer: Any, damage: Damage, timeout_ms: int) -> tuple[int, int]:
        """Seek past what cannot be read; gives the half-open range of offsets that is left out.

        Our own offset follows once what was read before the range is handed out. The range is
        negative where the topic was made anew and now begins before our offset.
        """
        partition = damage.partition
        start = consumer.position(partition, timeout_ms=timeout_ms)
        start = self._next[part_name(partition)] if start is None else start
        first, end = self._bounds(consumer, partition, timeout_ms)
        if not first <= start < end:
            stop = first if damage.stop is None else damage.stop
        else:
            # A damaged header can say anything: going on one offset is always right, only slower.
            stop = damage.stop if damage.stop is not None and start < damage.stop <= end else start + 1
        consumer.seek(partition, stop)
        return start, stop

    def position(self) -> dict[str, int]:
        """Next offset of each partition that is ours, as far as anything is known of it."""
        return {name: self._next[name] for name in sorted(self._claimed) if name in self._next}

    def clear(self) -> None:
        """The connection is gone: what is assigned by the next one is to be claimed."""
        self._placed.clear()
        self._changed.clear()
        self._is_claim_due = bool(self._claimed)

    def disown(self, consumer: Any) -> None:
        """Others hold our partitions, whatever the group says: wait until it assigns anew."""
        self._is_disowned, self._claimed = True, frozenset()
        self._placed.clear()
        if consumer is not None:
            consumer.pause(*consumer.assignment())

    def lag(self, consumer: Any, topic: str, timeout_ms: int) -> tuple[str | None, dict[str, int] | None]:
        """What is wrong, if anything, and how many messages wait in each partition."""
        from kafka.errors import KafkaError

        try:
            if not self._placed:
                return (None if knows_topic(consumer, topic) else f"topic {topic} does not exist"), None
            ends = consumer.end_offsets(list(self._placed), timeout_ms=timeout_ms)
            # The client's own place: it is past the markers of transactions, which nobody hands out.
            at = {partition: consumer.position(partition, timeout_ms=timeout_ms) or 0 for partition in ends}
        except KafkaError as error:
            return f"the broker does not answer: {error}", None
        return None, {part_name(one): max(0, end - at[one]) for one, end in ends.items()}

    def show_to_kafka(self, consumer: Any) -> None:
        """Commit the positions to Kafka without waiting: only its lag display reads them."""
        from kafka.errors import KafkaError
        from kafka.structs import OffsetAndMetadata

        offsets = {
            partition: OffsetAndMetadata(self._next[part_name(partition)], "", -1)
            for partition in self._placed
        }
        if offsets:
            try:
                consumer.commit_async(offsets, callback=_log_commit)
            except KafkaError as error:
                log.debug("offsets were not shown to Kafka", extra={"reason": str(error)})

    def _take_over(self, names: frozenset[str]) -> None:
        self._placed.clear()
        self._is_claim_due = True  # still so if the claim fails
        offsets = self._claim(names)
        self._is_claim_due = self._is_disowned = False
        self._claimed = names
        if offsets is not None:
            self._next = dict(offsets)

    def _seek(self, consumer: Any, new: list[Any], timeout_ms: int) -> list[Any]:
        from kafka.errors import KafkaError

        unknown = [partition for partition in new if part_name(partition) not in self._next]
        try:
            earliest = consumer.beginning_offsets(unknown, timeout_ms=timeout_ms) if unknown else {}
        except KafkaError as error:
            log.warning("the first offset is not known yet", extra={"reason": str(error)})
            earliest = {}
        sought = []
        for partition in new:
            known = self._next.get(part_name(partition))
            offset = earliest.get(partition) if known is None else known
            if offset is not None:
                consumer.seek(partition, offset)
                consumer.resume(partition)
                self.advance(partition, offset)
                sought.append(partition)
        return sought

    def _bounds(self, consumer: Any, partition: Any, timeout_ms: int) -> tuple[int, int]:
        first = consumer.beginning_offsets([partition], timeout_ms=timeout_ms)[partition]
        end = consumer.end_offsets([partition], timeout_ms=timeout_ms)[partition]
        return first, end


def _log_commit(_offsets: object, outcome: object) -> None:
    if isinstance(outcome, Exception):
        log.debug("offsets were not shown to Kafka", extra={"reason": str(outcome)})
