"""The one thread that sends: it takes what waits, hands it to the sink, and waits where the sink is away.

log ─put→ Pending ─take→ lines ─batch→ sink
                            └─ away ─→ spill on disk ─ back ─→ sink
"""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..telemetry import Event, Record
from .config import EmitterConfig
from .lines import line_of
from .pending import Pending
from .sink import Sink, SinkAway, SinkRefused, SinkTooLarge

log = logging.getLogger("firstfault.probe")

_AGAIN_S = 60.0
"""Between two lines in the log about the same trouble: a trainer's log is for training."""


@dataclass(slots=True)
class Counts:
    """What became of the records and events so far."""

    sent: int = 0
    """Lines that the sink took."""
    dropped: int = 0
    """Records and events that nobody will see: the queue or the disk was full, or the sink refused them."""
    errors: int = 0
    """Values that cannot be sent, and failures inside the probe."""


class Emitter:
    """Sends what is `put` from a thread of its own; nothing of it raises or waits for the sink."""

    def __init__(
        self,
        sink: Sink,
        config: EmitterConfig,
        *,
        each_round: Callable[[], Iterable[Record | Event]] = tuple,
    ) -> None:
        self.counts = Counts()
        self._sink, self._config = sink, config
        self._each_round = each_round
        self._pending = Pending(config.max_queue_records, config.max_queue_bytes)
        # put() of this queue may be interrupted by itself, unlike an Event's set(): signal handlers may close
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_closing = False
        self._deadline_s = 0.0
        self._in_flight: list[bytes] = []
        self._failures = 0
        self._next_try_s = 0.0
        self._told_s = -_AGAIN_S
        self._thread = threading.Thread(target=self._run, name="firstfault-probe", daemon=True)
        self._thread.start()

    def put(self, item: Record | Event) -> None:
        """Let ``item`` be sent soon; never blocks, never raises."""
        if not self._is_closing:
            self._pending.put(item)

    def close(self, timeout_s: float) -> None:
        """Send what waits, for at most about ``timeout_s``; then it is over."""
        if self._is_closing:
            return
        self._deadline_s = time.monotonic() + timeout_s
        self._is_closing = True
        self._wake.put(None)
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._sink.interrupt()

    def _run(self) -> None:
        while not self._is_closing:
            with contextlib.suppress(queue.Empty):
                self._wake.get(timeout=self._config.flush_s)
            self._round()
        self._sink.close()

    def _round(self) -> None:
        try:
            for item in self._each_round():
                self._pending.put(item)
            self._deliver()
        except Exception as error:  # the outer edge: whatever goes wrong here, training goes on
            self.counts.errors += 1
            self._tell("the probe failed", error)
        self.counts.dropped += self._pending.dropped
        self._pending.dropped = 0

    def _deliver(self) -> None:
        while len(self._pending) and time.monotonic() >= self._next_try_s:
            lines = self._encoded(self._config.max_batch_records)
            for batch in batches(lines, self._config):
                if not self._sent(batch):
                    self._pending.put_back(lines[lines.index(batch[0]) :])
                    return

    def _encoded(self, most: int) -> list[bytes]:
        lines = []
        for item in self._pending.take(most):
            line, bad = line_of(item)
            self.counts.errors += bad
            if line is None:
                self.counts.dropped += 1
            else:
                lines.append(line)
        return lines

    def _sent(self, batch: Sequence[bytes]) -> bool:
        """Whether ``batch`` is dealt with; False where it must be tried again."""
        left_s = self._deadline_s - time.monotonic() if self._is_closing else self._config.send_timeout_s
        try:
            rejected = self._sink.send(batch, max(0.05, min(left_s, self._config.send_timeout_s)))
        except SinkTooLarge as error:
            if len(batch) > 1:
                half = len(batch) // 2
                return self._sent(batch[:half]) and self._sent(batch[half:])
            self._refused(1, error)
            return True
        except SinkRefused as error:
            self._refused(len(batch), error)
            return True
        except SinkAway as error:
            self._failed(error)
            return False
        self.counts.sent += len(batch) - rejected
        self.counts.dropped += rejected
        self._failures = 0
        return True

    def _refused(self, lines: int, error: SinkRefused) -> None:
        self.counts.dropped += lines
        self._tell("the sink refused telemetry", error)

    def _failed(self, error: SinkAway) -> None:
        self._failures += 1
        wait_s = min(self._config.backoff_s * 2 ** min(self._failures - 1, 20), self._config.backoff_max_s)
        # jitter: not for secrets, but so that a thousand ranks do not knock at the same moment
        wait_s = max(wait_s * random.uniform(0.5, 1.0), error.retry_after_s)
        self._next_try_s = time.monotonic() + wait_s
        self._tell("the sink is away", error)

    def _tell(self, what: str, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s >= _AGAIN_S:
            self._told_s = now_s
            log.warning("%s: %s", what, error)


def batches(lines: Sequence[bytes], config: EmitterConfig) -> Iterator[list[bytes]]:
    """``lines`` in order, in pieces of the size that a message may have."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and (len(batch) >= config.max_batch_records or size + len(line) > config.max_batch_bytes):
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line) + 1
    if batch:
        yield batch
