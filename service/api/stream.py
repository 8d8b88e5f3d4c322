"""`GET /v1/stream`: what changes, as server-sent events that can be resumed.

The ``id:`` of an event is its place in the store's table of changes. Each stream reads on from its own
place, so a slow client costs no memory: it falls behind, and where the table no longer reaches back it
is told of the gap. One task asks the store for news on behalf of all streams.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from collections.abc import AsyncIterator, Callable

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from service import reading
from service.database import Database
from service.errors import StoreError
from service.reading import ChangeRow

from .problems import ProblemError, problem_response, store_unavailable
from .settings import ApiConfig
from .values import timestamp, whole

log = logging.getLogger(__name__)

_READ_AT_ONCE = 100
"""Events sent in one go: a client that is far behind does not make us hold more."""
_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # some proxies collect an answer before they pass it on
]
_RETRY_MS = 2000
"""How long a client waits before it comes again."""


class Hub:
    """The streams that are open, and what wakes them; lives on the event loop."""

    def __init__(
        self, database: Database, config: ApiConfig, show: Callable[[float], None] = lambda _: None
    ) -> None:
        """``show`` is told how many streams are open."""
        self.database, self.config, self._show = database, config, show
        self.open_streams = 0
        self._newest = 0
        self._news = asyncio.Event()
        self._closing = asyncio.Event()

    @property
    def is_full(self) -> bool:
        """Whether no further stream may open."""
        return self.open_streams >= self.config.max_streams

    @property
    def is_closing(self) -> bool:
        """Whether all streams are to end."""
        return self._closing.is_set()

    def count(self, change: int) -> None:
        """A stream begins (1) or ends (-1)."""
        self.open_streams += change
        self._show(self.open_streams)

    def close(self) -> None:
        """End all streams at once; safe to call twice."""
        self._closing.set()
        self._news.set()

    async def watch(self) -> None:
        """Ask the store for news, while anybody listens, until closed."""
        while not self.is_closing:
            if self.open_streams:
                await self._look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self.config.change_poll_s)

    async def wait_for_news(self, seq: int, timeout_s: float) -> bool:
        """Wait for an event after place ``seq``; False if none came, or all is to end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._newest <= seq and not self.is_closing:
                    await self._news.wait()
        return self._newest > seq

    async def _look(self) -> None:
        try:
            _, newest = await run_in_threadpool(read_span, self.database)
        except StoreError as error:
            log.warning("the store cannot be read for the event stream", extra={"reason": str(error)})
            return
        if newest != self._newest:
            self._newest = newest
            self._news.set()
            self._news = asyncio.Event()


class EventStream(Response):
    """One client's stream: its place is taken when it begins, and freed however it ends."""

    def __init__(self, hub: Hub, after: int | None, is_admitted: Callable[[], bool]) -> None:
        """``is_admitted`` is asked now and then, on a thread: a token may end before its stream does."""
        super().__init__()
        self._hub, self._after, self._is_admitted = hub, after, is_admitted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client leaves, stops reading, or the service ends."""
        if self._hub.is_full or self._hub.is_closing:
            await problem_response(scope["state"]["request_id"], self._refusal())(scope, receive, send)
            return
        if scope["state"]["is_head"]:  # what a stream would begin with; it has no end to wait for
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b""})
            return
        self._hub.count(1)
        try:
            span = await run_in_threadpool(read_span, self._hub.database)
            await self._until_gone(receive, send, span)
        except StoreError as error:
            problem = store_unavailable(error)
            await problem_response(scope["state"]["request_id"], problem)(scope, receive, send)
        finally:
            self._hub.count(-1)

    def _refusal(self) -> ProblemError:
        hub, wait = self._hub, {"Retry-After": str(_RETRY_MS // 1000)}
        if hub.is_closing:
            return ProblemError(503, "stopping", "the service is about to stop", headers=wait)
        words = f"{hub.open_streams} event streams are open, which is all there may be"
        return ProblemError(503, "too-many-streams", words, headers=wait)

    async def _until_gone(self, receive: Receive, send: Send, span: tuple[int, int]) -> None:
        sending = asyncio.create_task(self._send_all(send, span))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, leaving):
                task.cancel()
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
        if isinstance(results[0], Exception) and not isinstance(results[0], TimeoutError | OSError):
            raise results[0]

    async def _send_all(self, send: Send, span: tuple[int, int]) -> None:
        await self._send(send, {"type": "http.response.start", "status": 200, "headers": _HEADERS})
        try:
            async for chunk in self._chunks(*span):
                await self._send(send, {"type": "http.response.body", "body": chunk, "more_body": True})
        except StoreError as error:
            # the client comes again by itself, and goes on where it was
            log.warning("an event stream ends early", extra={"reason": str(error)})
        await self._send(send, {"type": "http.response.body", "body": b""})

    async def _send(self, send: Send, message: Message) -> None:
        # a client that does not read would hold its place, and the end of the service, for ever
        async with asyncio.timeout(self._hub.config.send_timeout_s):
            await send(message)

    async def _chunks(self, oldest: int, newest: int) -> AsyncIterator[bytes]:
        hub = self._hub
        place = newest if self._after is None else self._after
        yield f"retry: {_RETRY_MS}\n\n".encode()
        if not oldest - 1 <= place <= newest:
            missed, place = place, newest if place > newest else oldest - 1
            yield _frame("gap", place, {"after": whole(missed), "from": whole(place + 1)})
        else:
            yield _frame("hello", place, {"after": whole(place)})
        asked_at_s = time.monotonic()
        while not hub.is_closing:
            if time.monotonic() - asked_at_s >= hub.config.heartbeat_s:
                asked_at_s = time.monotonic()
                if not await run_in_threadpool(self._is_admitted):
                    return
            rows, oldest = await run_in_threadpool(read_after, hub.database, place, _READ_AT_ONCE)
            if place < oldest - 1:
                yield _frame("gap", oldest - 1, {"after": whole(place), "from": whole(oldest)})
            if rows:
                place = rows[-1].seq
                yield b"".join(_event(row) for row in rows)
            elif not await hub.wait_for_news(place, hub.config.heartbeat_s) and not hub.is_closing:
                yield b": still here\n\n"


def read_span(database: Database) -> tuple[int, int]:
    """First and last place of the events that are kept."""
    with database.read() as db:
        return reading.change_span(db)


def read_after(database: Database, seq: int, limit: int) -> tuple[list[ChangeRow], int]:
    """Events after ``seq``, and the first place that is kept, both of one moment."""
    with database.read() as db:
        return reading.changes_after(db, seq, limit), reading.change_span(db)[0]


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _event(row: ChangeRow) -> bytes:
    """A change as the wire has it."""
    data = {
        "seq": whole(row.seq),
        "kind": row.kind,
        "run_id": row.run_id,
        "incident_id": row.incident_id,
        "revision": row.revision,
        "at": timestamp(row.at),
        "body": json.loads(row.body),
    }
    return _frame(row.kind, row.seq, data)


def _frame(name: str, seq: int, data: dict[str, object]) -> bytes:
    # ASCII without line ends: no name in telemetry can begin a field of the protocol
    body = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f"id: {seq}\nevent: {name}\ndata: {body}\n\n".encode("ascii")
