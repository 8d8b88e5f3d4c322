"""The outermost layer of every request: its id, the headers that protect a browser, and the last word.

Plain ASGI and not a framework's middleware class: those read bodies into queues, and a stream that
they wrap does not notice that its client has left.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections.abc import Callable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import ProblemError, problem_response

log = logging.getLogger(__name__)

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
"""What a client may name its request: nothing that could forge a header or a log line."""

PROTECTION = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline';"
        " img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
"""On every answer. Styles may be inline because plotly.js writes its own sheet when it draws."""

Observe = Callable[[str, str, int, float], None]
"""Told method, route template, status and seconds of every answer."""


class Frame:
    """Gives each request an id, each answer its headers, and each bug a problem document."""

    def __init__(self, app: ASGIApp, observe: Observe, *, logs_requests: bool = False) -> None:
        """``logs_requests``: a line for every answer, and not for bugs alone."""
        self._app, self._observe, self._logs_requests = app, observe, logs_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection; anything but HTTP and the lifespan is turned away."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        status, began_s = 0, time.monotonic()

        async def send_framed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _add_headers(MutableHeaders(scope=message), request_id)
            await send(message)

        try:
            await self._app(scope, receive, send_framed)
        except asyncio.CancelledError:
            # nobody but a server that stops, and has waited for this answer as long as it may, cuts one off
            log.warning("a request was cut off, the service stops", extra={"request_id": request_id})
            if not status:
                error = ProblemError(503, "stopping", "the service stops; ask again once it is back")
                await problem_response(request_id, error)(scope, receive, send_framed)
        except Exception:
            log.exception("a request failed", extra={"request_id": request_id, "path": scope["path"]})
            if status:
                raise  # the answer has begun: all that is left is to cut it off
            error = ProblemError(500, "about:blank", "a bug in firstfault; the log has more under this id")
            await problem_response(request_id, error)(scope, receive, send_framed)
        finally:
            took_s = time.monotonic() - began_s
            self._observe(scope["method"], _template(scope), status, took_s)
            if self._logs_requests:
                log.info("request answered", extra=_told(scope, status, took_s))


def _add_headers(headers: MutableHeaders, request_id: str) -> None:
    headers["X-Request-ID"] = request_id
    for name, value in PROTECTION.items():
        headers.setdefault(name, value)
    # names of runs and hosts are nobody else's business: only a route that says so is kept
    headers.setdefault("Cache-Control", "no-store")


def _told(scope: Scope, status: int, took_s: float) -> dict[str, object]:
    """What a log line says of a request: never its query or its headers, which may hold names and secrets."""
    state = scope["state"]
    return {
        "request_id": state["request_id"],
        "method": scope["method"],
        "route": _template(scope),
        "status": status,
        "milliseconds": round(1000 * took_s),
        "client": (scope.get("client") or ("unknown",))[0],
        "token": getattr(state.get("grant"), "id", None),
    }


def _template(scope: Scope) -> str:
    """The route's path with its parameters by name: a label of few values."""
    return str(getattr(scope.get("route"), "path", "unknown"))
