"""Messages of several partitions in the order of their timestamps.

A client reads partitions in long strides, so a run that is spread over them would come apart by
thousands of iterations during a catch-up: far more than the lateness that alignment allows. As in
Kafka Streams, a partition that is ahead waits for the others. Only the order of arrival depends on
this, never what is handed out.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

_END_OF_TIME = float("inf")


class PartitionMerge:
    """Holds what was read ahead, per partition; ``longest_hold_s`` bounds the wait for a silent one."""

    def __init__(self, most_held: int, longest_hold_s: float) -> None:
        self._most_held = most_held
        self._longest_hold_s = longest_hold_s
        self._waiting: dict[Any, tuple[list[float], list[Any]]] = {}
        self._newest: dict[Any, float] = {}
        self._held_since_s: float | None = None
        self._silent: set[Any] = set()

    def add(self, partition: Any, messages: Sequence[Any]) -> None:
        """Take the next messages of one partition."""
        keys, waiting = self._waiting.setdefault(partition, ([], []))
        newest = self._newest.get(partition, -_END_OF_TIME)
        for message in messages:
            # Stamps may go back inside a partition, its order may not: each is at least the one before.
            newest = max(newest, message.timestamp)
            keys.append(newest)
        self._newest[partition] = newest
        self._silent.discard(partition)
        waiting.extend(messages)

    def keep(self, partitions: Iterable[Any]) -> None:
        """Forget what waits of all other partitions: they are read again from our own offset."""
        kept = set(partitions)
        for partition in [one for one in self._waiting if one not in kept]:
            del self._waiting[partition], self._newest[partition]

    def take(self, partitions: Iterable[Any], is_drained: Callable[[Any], bool]) -> list[tuple[Any, Any]]:
        """(partition, message) up to the point in time that is known of all ``partitions``, in order.

        ``is_drained`` tells whether the broker has nothing more of a partition.
        """
        if not self.held:
            self._held_since_s = None
            return []
        until = {one: self._known_until(one, is_drained) for one in partitions}
        frontier = min(until.values(), default=_END_OF_TIME)
        if frontier == -_END_OF_TIME and self._is_held_long():
            # It holds nobody up again until something of it comes.
            self._silent |= {one for one, known in until.items() if known == frontier}
        ready = self._up_to(frontier)
        if ready:
            self._held_since_s = None
        return ready

    def take_all(self) -> list[tuple[Any, Any]]:
        """Everything that waits, in order."""
        return self._up_to(_END_OF_TIME)

    @property
    def held(self) -> int:
        """Messages that wait."""
        return sum(len(keys) for keys, _ in self._waiting.values())

    def held_by_partition(self) -> dict[Any, int]:
        """Messages of each partition that wait."""
        return {partition: len(keys) for partition, (keys, _) in self._waiting.items()}

    def is_ahead(self, partition: Any) -> bool:
        """Whether so much of this partition waits that it should not be read further."""
        return partition in self._waiting and len(self._waiting[partition][0]) >= self._most_held

    def _known_until(self, partition: Any, is_drained: Callable[[Any], bool]) -> float:
        if partition in self._silent or is_drained(partition):
            return _END_OF_TIME
        keys, _ = self._waiting.get(partition, ((), ()))
        return keys[-1] if keys else -_END_OF_TIME

    def _is_held_long(self) -> bool:
        now_s = time.monotonic()
        if self._held_since_s is None:
            self._held_since_s = now_s
        return now_s - self._held_since_s >= self._longest_hold_s

    def _up_to(self, frontier: float) -> list[tuple[Any, Any]]:
        ready: list[tuple[float, Any, Any]] = []
        sources = 0
        for partition, (keys, waiting) in self._waiting.items():
            count = bisect_right(keys, frontier)
            ready += [(key, partition, message) for key, message in zip(keys[:count], waiting, strict=False)]
            sources += count > 0
            del keys[:count], waiting[:count]
        if sources > 1:
            ready.sort(key=_stamp)  # stable, so each partition keeps its own order
        return [(partition, message) for _, partition, message in ready]


def _stamp(one: tuple[float, Any, Any]) -> float:
    return one[0]
