"""What HTTP asks of every address alike: HEAD, OPTIONS, and entity tags.

Plain ASGI around the routes: HEAD is GET without its body; OPTIONS names the methods of an address; every
whole JSON or Arrow answer to GET has a strong ETag, and is not sent again to a client that has it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .answers import etag_of, tag_matches
from .negotiation import ARROW
from .problems import ProblemError, problem_response

_TAGGED = ("application/json", ARROW)
_LARGE_BYTES = 1 << 20
"""Hashed in a millisecond."""
_SAFE = frozenset({"GET", "HEAD"})


class Semantics:
    """Answers HEAD and OPTIONS for all routes, and tags what GET gives."""

    def __init__(self, app: ASGIApp, routers: Sequence[APIRouter]) -> None:
        self._app = app
        self._routes = [one for router in routers for one in router.routes if isinstance(one, Route)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_allowing(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 405:
                MutableHeaders(scope=message)["Allow"] = self._methods_at(scope["path"])
            await send(message)

        if scope["method"] == "OPTIONS":
            await self._tell_methods(scope, receive, send)
        elif scope["method"] in _SAFE:
            await self._get(scope, receive, send_allowing)
        else:
            await self._app(scope, receive, send_allowing)

    async def _get(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["method"] == "HEAD"
        inner = {**scope, "method": "GET"}
        scope["state"]["is_head"] = is_head
        try:
            await self._app(inner, receive, _Tagger(scope, send, is_head=is_head).send)
        finally:
            if "route" in inner:
                scope["route"] = inner["route"]  # the name of the figures that the frame keeps

    async def _tell_methods(self, scope: Scope, receive: Receive, send: Send) -> None:
        allowed = self._methods_at(scope["path"])
        if not allowed:
            error = ProblemError(404, "about:blank", f"there is nothing at {scope['path']}")
            await problem_response(scope["state"]["request_id"], error)(scope, receive, send)
            return
        headers = [(b"allow", allowed.encode())]
        await send({"type": "http.response.start", "status": 204, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    def _methods_at(self, path: str) -> str:
        """The methods of an address, as `Allow` has them; empty where there is nothing."""
        matching = [one for one in self._routes if one.path_regex.match(path)]
        found = {method for one in matching for method in one.methods or ()}
        if not found:
            return ""
        return ", ".join(sorted(found | {"OPTIONS"} | ({"HEAD"} if "GET" in found else set())))


class _Tagger:
    """The way back of one answer: tagged where it is whole, without its body for HEAD."""

    def __init__(self, scope: Scope, send: Send, *, is_head: bool) -> None:
        self._scope, self._send, self._is_head = scope, send, is_head
        self._held: Message | None = None

    async def send(self, message: Message) -> None:
        """Pass a message on, or hold the head until it is known what it stands before."""
        if message["type"] == "http.response.start" and self._is_to_be_tagged(message):
            self._held = message
            return
        if self._held is not None:
            head, self._held = self._held, None
            if not message.get("more_body"):
                tag = await _tag(message.get("body", b""))
                head, message = self._tagged(head, message, tag)
            await self._send(head)
        if self._is_head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)

    @staticmethod
    def _is_to_be_tagged(start: Message) -> bool:
        headers = Headers(raw=start["headers"])
        media_type = headers.get("content-type", "").partition(";")[0]
        return start["status"] == 200 and media_type in _TAGGED and "etag" not in headers

    def _tagged(self, start: Message, body: Message, tag: str) -> tuple[Message, Message]:
        known = Headers(scope=self._scope).getlist("if-none-match")
        headers = MutableHeaders(raw=list(start["headers"]))
        headers["ETag"] = tag
        if not tag_matches(known, tag, is_weak_fine=True):
            return {**start, "headers": headers.raw}, body
        for name in ("content-length", "content-type"):
            del headers[name]
        return {**start, "status": 304, "headers": headers.raw}, {**body, "body": b""}


async def _tag(body: bytes) -> str:
    """The tag of a body; that of a large one on a thread, for nobody else to wait for it."""
    return etag_of(body) if len(body) <= _LARGE_BYTES else await run_in_threadpool(etag_of, body)
