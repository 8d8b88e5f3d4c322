"""What waits to be sent, bounded in number and bytes: when it is full, the oldest go.

The training thread only ever appends. The lock is reentrant, since a signal handler or a finalizer may log
while the thread it interrupts holds it, and is never held over anything that can wait.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ..telemetry import Event, Record

Receipt = Callable[[], None]
"""Called once all that was put before it is sent or on disk; not called where it was dropped."""
Item = Record | Event | bytes | Receipt
"""A record or event as it was logged, one that is a line already, or who waits for those before it."""

_RECORD_BYTES = 200
_METRIC_BYTES = 64
"""What a record and each of its metrics take in memory, about: counting exactly would cost more."""


class Pending:
    """A queue between the threads that log and the one that sends."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._max_records, self._max_bytes = max_records, max_bytes
        self._lock = threading.RLock()
        self._items: deque[tuple[Item, int]] = deque()
        self._bytes = 0
        self.dropped = 0
        """Items that were dropped because others came."""

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: Item) -> None:
        """Append ``item``; the oldest make room."""
        size = _size_of(item)
        with self._lock:
            self._items.append((item, size))
            self._bytes += size
            self._make_room()

    def take(self, most: int) -> list[Item]:
        """The oldest ``most`` items, which no longer wait."""
        with self._lock:
            taken = [self._items.popleft() for _ in range(min(most, len(self._items)))]
            self._bytes -= sum(size for _, size in taken)
        return [item for item, _ in taken]

    def put_back(self, items: list[bytes]) -> None:
        """Items that could not be sent wait again, as the oldest."""
        with self._lock:
            for item in reversed(items):
                self._items.appendleft((item, len(item)))
                self._bytes += len(item)
            self._make_room()

    def _make_room(self) -> None:
        while len(self._items) > self._max_records or (self._bytes > self._max_bytes and self._items):
            item, size = self._items.popleft()
            self._bytes -= size
            self.dropped += not callable(item)


def _size_of(item: Item) -> int:
    if isinstance(item, bytes):
        return len(item)
    if isinstance(item, Event):
        return _RECORD_BYTES + sum(map(_text_bytes, item.fields.values()))
    if not isinstance(item, Record):
        return 0
    texts = sum(map(_text_bytes, item.labels.values())) if item.labels else 0
    return _RECORD_BYTES + _METRIC_BYTES * len(item.metrics) + texts


def _text_bytes(value: object) -> int:
    if isinstance(value, str | bytes | list | tuple | dict):
        return len(value) + _METRIC_BYTES
    return _METRIC_BYTES
