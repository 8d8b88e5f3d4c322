"""How long a connection may keep the server waiting: for a request's head, and for room to write.

The server counts connections and closes those that idle after an answer, yet waits for ever for the first
byte, for the rest of a head that comes a byte at a time, and for a reader of what was answered. A few
thousand such connections, which need no token, would shut all others out for good.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_TIMEOUT_S = 10.0
"""How long a head may take to arrive whole: it is a few packets, which may each be lost once."""
FLUSH_TIMEOUT_S = 30.0
"""How long a reader may take nothing of what was answered once the connection is to close; then it is cut."""
SPARE = 100
"""Connections above the most there may be that are still told so; more are closed unheard, since each of
them is an open file, and a process that has none left to open accepts nobody."""


class PatientProtocol(H11Protocol):
    """The server's protocol with an end to its patience."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Begin to wait for a head."""
        super().connection_made(transport)
        most = self.config.limit_concurrency
        if most is not None and len(self.connections) > most + SPARE:
            transport.abort()
            return
        self._look()

    def data_received(self, data: bytes) -> None:
        """Take what came; who dribbles gets no more time for it."""
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        """Wait for the next head, unless it is there already."""
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is to be waited for."""
        super().connection_lost(exc)
        self._stop_waiting()

    def timeout_keep_alive_handler(self) -> None:
        """Close what idles; cut it if it does not even read."""
        super().timeout_keep_alive_handler()
        self.loop.call_later(FLUSH_TIMEOUT_S, self._cut, self.transport.get_write_buffer_size())

    def _look(self) -> None:
        is_waiting = self.cycle is None or self.cycle.response_complete
        if is_waiting and self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_TIMEOUT_S, self.timeout_keep_alive_handler)
        elif not is_waiting:
            self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _cut(self, waiting_bytes: int) -> None:
        left_bytes = self.transport.get_write_buffer_size()
        if 0 < left_bytes < waiting_bytes:
            self.loop.call_later(FLUSH_TIMEOUT_S, self._cut, left_bytes)
        else:
            self.transport.abort()
