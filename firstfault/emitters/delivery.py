"""Handing batches to a sink: what becomes of each, when the next try may be, what is told in the log."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator, Sequence

from ..pieces import pieces
from .config import EmitterConfig
from .sink import Sink, SinkAway, SinkRefused, SinkTooLarge

log = logging.getLogger("firstfault.probe")

_AGAIN_S = 60.0
"""Between two lines in the log about the same trouble: a trainer's log is for training."""


class Delivery:
    """Sends batches one by one, and knows when it makes sense to try."""

    def __init__(self, config: EmitterConfig) -> None:
        self._config = config
        self._failures = 0
        self._next_try_s = 0.0
        self._told_s: dict[str, float] = {}
        self.sent = 0
        """Lines that the sink took."""
        self.lost = 0
        """Lines that it will never take."""

    @property
    def is_paused(self) -> bool:
        """Whether the sink failed, and is left alone for a while."""
        return time.monotonic() < self._next_try_s

    def send(self, sink: Sink, batch: Sequence[bytes], timeout_s: float) -> bool:
        """Whether ``batch`` is dealt with; False where it must be tried again."""
        try:
            rejected = sink.send(batch, timeout_s)
        except SinkTooLarge as error:
            if len(batch) > 1:
                half = len(batch) // 2
                return self.send(sink, batch[:half], timeout_s) and self.send(sink, batch[half:], timeout_s)
            self._refused(1, error)
            return True
        except SinkRefused as error:
            self._refused(len(batch), error)
            return True
        except SinkAway as error:
            self._failed(error)
            return False
        self.sent += len(batch) - rejected
        self.lost += rejected
        if rejected:
            self.tell("the sink did not understand telemetry", f"{rejected} of {len(batch)} lines")
        self._failures = 0
        return True

    def tell(self, what: str, why: object) -> None:
        """Log trouble, each kind once a minute at most."""
        now_s = time.monotonic()
        if now_s - self._told_s.get(what, -_AGAIN_S) >= _AGAIN_S:
            self._told_s[what] = now_s
            log.warning("firstfault: %s: %s", what, why)

    def _refused(self, lines: int, error: SinkRefused) -> None:
        self.lost += lines
        self._failures = 0
        self.tell("the sink refused telemetry", error)

    def _failed(self, error: SinkAway) -> None:
        wait_s = min(self._config.backoff_s * 2 ** min(self._failures, 20), self._config.backoff_max_s)
        # jitter, so that a thousand ranks do not knock at the same moment
        self._next_try_s = time.monotonic() + max(wait_s * random.uniform(0.5, 1.0), error.retry_after_s)
        self._failures += 1
        self.tell("the sink is away", error)


def batches(lines: Sequence[bytes], config: EmitterConfig) -> Iterator[list[bytes]]:
    """``lines`` in order, in pieces of the size that a message may have."""
    return pieces(lines, most_lines=config.max_batch_records, most_bytes=config.max_batch_bytes)
