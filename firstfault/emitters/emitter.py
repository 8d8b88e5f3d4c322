"""The one thread that sends: it takes what waits, hands it to the sink, and stores it where the sink is away.

    put → Pending ─┬─ lines ─ batch ─────────────→ sink
                   └─ sink away → Spill on disk ─→ sink, in order, once it is back

`close` waits for the thread, then stores what is left itself: a thread that hangs in a sink holds nothing up.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

from .. import forks
from ..telemetry import Event, Record
from .config import EmitterConfig
from .counts import Counts
from .delivery import Delivery, batches
from .lines import line_of
from .pending import Item, Pending, Receipt
from .relay import RelayServer
from .sink import Sink
from .spill import Spill

log = logging.getLogger("firstfault.probe")

_THREAD_SHARE = 0.6
"""Part of the time to close that the thread gets before its send is interrupted."""
_LEAST_SEND_S = 0.05


class Emitter:
    """Sends what is `put` from a thread of its own; nothing of it raises or waits for the sink."""

    def __init__(
        self,
        open_sink: Callable[[], Sink],
        config: EmitterConfig,
        *,
        open_spill: Callable[[], Spill | None] = lambda: None,
        each_round: Callable[[], Iterable[Record | Event]] = tuple,
    ) -> None:
        self._open_sink, self._open_spill, self._each_round = open_sink, open_spill, each_round
        self._config = config
        self.server: RelayServer | None = None
        """Takes the lines of other processes for `relay`."""
        self._is_child = False
        self._last: Callable[[], Iterable[Record | Event]] = tuple
        self._sink: Sink | None = None
        self._thread: threading.Thread | None = None
        self._reset()
        self._start()
        forks.remember(self)

    @property
    def counts(self) -> Counts:
        """What became of everything so far."""
        spill = self._spill
        spilled = 0 if spill is None else spill.dropped
        return Counts(
            sent=self._delivery.sent,
            dropped=self._lost + self._delivery.lost + self._pending.dropped + spilled,
            errors=self._errors,
            waiting=len(self._pending),
            is_spilled=bool(spill),
        )

    def put(self, item: Item) -> None:
        """Let ``item`` be sent soon; never blocks, never raises."""
        self._pending.put(item)
        if self._thread is None:
            self._start()

    def relay(self, lines: Sequence[bytes], receipt: Receipt) -> None:
        """Send the lines of another process; ``receipt`` is called once they are sent or on disk."""
        for line in lines:
            self._pending.put(line)
        self._pending.put(receipt)
        self._wake.put(None)

    def close(self, timeout_s: float, last: Callable[[], Iterable[Record | Event]] = tuple) -> None:
        """Send what waits, then ``last``, for about ``timeout_s``; what is left waits on disk, or is lost."""
        thread, self._thread = self._thread, _CLOSED
        if thread is None or thread is _CLOSED:
            return
        if self.server is not None:
            self.server.stop()
        self._deadline_s = time.monotonic() + timeout_s * _THREAD_SHARE
        self._last, self._is_closing = last, True
        self._wake.put(None)
        thread.join(timeout_s * _THREAD_SHARE)
        if thread.is_alive():
            if self._sink is not None:
                self._sink.interrupt()
            thread.join(timeout_s * (1 - _THREAD_SHARE) / 2)
        if self._turn.acquire(timeout=timeout_s * (1 - _THREAD_SHARE) / 2):
            try:
                self._leave()
            finally:
                self._turn.release()
        if self.server is not None:
            self.server.close()

    def become_child(self) -> None:
        """In a forked child: nothing of the parent's is sent again; a thread starts once something is put."""
        self._each_round = tuple
        self._is_child, self.server = True, None
        # the parent's connections stay open here: some clients say goodbye as they are collected, and wait
        _INHERITED.append((self._sink, self._spill))
        self._reset()

    def _reset(self) -> None:
        self._sink = None
        self._spill: Spill | None = None
        self._pending = Pending(self._config.max_queue_records, self._config.max_queue_bytes)
        # put() of this queue may be interrupted by itself, unlike an Event's set(): signal handlers may close
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._turn = threading.Lock()
        """Held while lines change their place, never while they are sent."""
        self._in_flight: list[bytes] = []
        self._receipts: list[Receipt] = []
        self._delivery = Delivery(self._config)
        self._is_closing = self._has_left = False
        self._deadline_s = 0.0
        self._last = tuple
        self._lost = self._errors = 0
        self._thread = None

    def _start(self) -> None:
        self._sink = self._open_sink()
        if self._is_child:
            forks.at_exit(functools.partial(self.close, 1.0))
        self._thread = threading.Thread(target=self._run, name="firstfault-probe", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._spill = self._open_spill()
        except Exception as error:  # without a disk the queue in memory is all there is
            self._delivery.tell("records cannot wait on disk", error)
        while not self._has_left:
            is_last = self._is_closing
            self._round(self._each_round)
            if is_last:
                self._round(self._take_last())
                break
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=self._config.flush_s)
        with self._turn:
            self._leave()

    def _round(self, news: Callable[[], Iterable[Record | Event]]) -> None:
        try:
            for item in news():
                self._pending.put(item)
            self._deliver()
        except _Left:
            pass
        except Exception as error:  # the outer edge: whatever goes wrong here, training goes on
            self._errors += 1
            self._delivery.tell("the probe failed", error)

    def _take_last(self) -> Callable[[], Iterable[Record | Event]]:
        last, self._last = self._last, tuple
        return last

    def _deliver(self) -> None:
        while self._spill or len(self._pending):
            is_away = self._delivery.is_paused and not self._is_closing
            if self._spill or is_away:
                self._store_pending()
            if is_away or not (self._send_spilled() if self._spill else self._send_pending()):
                return
            if self._is_closing and time.monotonic() > self._deadline_s:
                return

    def _send_spilled(self) -> bool:
        """Send from the disk what waits there the longest; whether the sink takes more."""
        assert self._spill is not None
        with self._turn:
            lines = self._spill.peek()
        for batch in batches(lines, self._config):
            if not self._send(batch):
                return False
            with self._taking_turn():
                self._spill.advance(len(batch))
        return True

    def _send_pending(self) -> bool:
        """Send what waits in memory; whether the sink takes more."""
        with self._taking_turn():
            self._in_flight = lines = self._encoded()
        for batch in batches(lines, self._config):
            if not self._send(batch):
                with self._taking_turn():
                    self._store(self._in_flight)
                    self._in_flight = []
                return False
            with self._taking_turn():
                self._in_flight = self._in_flight[len(batch) :]
        self._give_receipts()
        return True

    def _store_pending(self) -> None:
        """Everything in memory waits behind what waits on disk, as long as there is room."""
        while self._spill is not None and len(self._pending):
            with self._taking_turn():
                if not self._store(self._encoded()):
                    return

    def _store(self, lines: list[bytes]) -> bool:
        """Let ``lines`` wait, on disk if there is room; whether there is."""
        try:
            if self._spill is None:
                self._pending.put_back(lines)
                return False
            if lines:
                self._spill.append(lines)
            self._give_receipts()
            return True
        except OSError as error:
            self._pending.put_back(lines)
            self._delivery.tell("records cannot wait on disk", error)
            return False

    def _leave(self) -> None:
        """The end: what is left waits on disk, or is lost. Holds the turn."""
        if self._has_left:
            return
        self._has_left = True
        self._store_left(self._in_flight)
        for item in self._take_last()():
            self._pending.put(item)
        self._store_left([])
        counts = self.counts
        if self._spill is not None and self._spill:
            log.warning("firstfault: telemetry waits in %s and is sent at the next start", self._spill.folder)
        if counts.dropped:
            log.warning("firstfault: %d records and events of telemetry were lost", counts.dropped)
        with contextlib.suppress(OSError):
            if self._spill is not None:
                self._spill.close()
        if self._sink is not None:
            self._sink.close()

    def _store_left(self, left: list[bytes]) -> None:
        while left or len(self._pending):
            if left and not self._store(left):
                self._lost += len(self._pending)  # the first of which is what could not be stored
                self._pending.take(len(self._pending))
            left = self._encoded()

    @contextlib.contextmanager
    def _taking_turn(self) -> Iterator[None]:
        """Lines may change their place, unless `close` did not wait for us."""
        with self._turn:
            if self._has_left:
                raise _Left
            yield

    def _encoded(self) -> list[bytes]:
        lines = []
        for item in self._pending.take(self._config.max_batch_records):
            if not isinstance(item, Record | Event | bytes):
                self._receipts.append(item)
                continue
            line, bad = line_of(item)
            self._errors += bad
            if line is None:
                self._lost += 1
            else:
                lines.append(line)
        return lines

    def _give_receipts(self) -> None:
        while self._receipts:
            self._receipts.pop()()

    def _send(self, batch: Sequence[bytes]) -> bool:
        """Whether ``batch`` is dealt with; False where it must be tried again."""
        timeout_s = self._config.send_timeout_s
        if self._is_closing:
            timeout_s = min(timeout_s, max(self._deadline_s - time.monotonic(), _LEAST_SEND_S))
        assert self._sink is not None
        return self._delivery.send(self._sink, batch, timeout_s)


class _Left(Exception):
    """`close` did not wait: what this thread holds was taken from it."""


_INHERITED: list[object] = []
"""What a forked child has of its parent's and must not touch."""
_CLOSED = threading.Thread(name="firstfault-closed")
"""Stands where no thread may be started any more."""
