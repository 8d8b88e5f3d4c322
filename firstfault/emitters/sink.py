"""What a sink is: takes a batch of lines within a bounded time, or says why not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class SinkAway(Exception):
    """The sink could not take a batch now; the same batch is tried again later."""

    def __init__(self, why: str, retry_after_s: float = 0.0) -> None:
        super().__init__(why)
        self.retry_after_s = retry_after_s
        """How long the sink asks to be left alone; 0 where it does not say."""


class SinkRefused(Exception):
    """The sink will never take this batch; it is counted and forgotten."""


class SinkTooLarge(SinkRefused):
    """The batch is too large as a whole; its halves may pass."""


class Sink(Protocol):
    """Where lines go. All but `interrupt` are called by one thread at a time."""

    def send(self, lines: Sequence[bytes], timeout_s: float) -> int:
        """Hand over ``lines``; the number that the sink rejected for good.

        Raises:
            SinkAway: later, perhaps.
            SinkRefused: never.
        """
        ...

    def interrupt(self) -> None:
        """Make a `send` of another thread end soon, if that is possible."""
        ...

    def close(self) -> None:
        """Let go of connections; never waits."""
        ...


def bare(url: str) -> str:
    """An address as it may be told: without what may be a password or a token.

    >>> bare("kafka://user:secret@host:9092/topic?sasl_plain_password=secret")
    'kafka://host:9092/topic'
    """
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0].partition('#')[0]}"
