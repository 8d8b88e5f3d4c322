"""What a request may hold: an address, headers and a body of bounded size, known parameters, each once."""

from __future__ import annotations

from collections import Counter

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .problems import ProblemError, ProblemItem, problem_response

_MAX_ADDRESS_BYTES = 16_384
"""The longest address that means something holds a name, a cursor and a list of ranks: some 4 kB."""
_MAX_HEADER_BYTES = 32_768
"""Browsers send a few kB; twice what most servers take."""
_OWN_LIMIT = frozenset({"/v1/telemetry"})
"""Bodies that are read in pieces under limits of their own."""


def known_parameters(request: Request) -> None:
    """Refuse query parameters that the route does not know, or knows once.

    A filter with a slip in its name would otherwise answer with everything.

    Raises:
        ProblemError: 422, with the names.
    """
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = {parameter.alias for parameter in route.dependant.query_params}
    counts = Counter(name for name, _ in request.query_params.multi_items())
    wrong = [
        ProblemItem(detail="is unknown here" if name not in known else "must be given once", parameter=name)
        for name, count in sorted(counts.items())
        if name not in known or count > 1
    ]
    if wrong:
        names = ", ".join(f"{item.parameter!r} {item.detail}" for item in wrong[:10])
        detail = f"{names}; known: {', '.join(sorted(known)) or 'none'}"
        raise ProblemError(422, "invalid-request", detail, errors=wrong[:10])


class SizeLimit:
    """Ends requests whose address, headers or body are larger than allowed, whatever they declared."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app, self._max_bytes = app, max_bytes
        self._words = f"a body here may have at most {max_bytes} bytes"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Look at the head, and count the body as it comes."""
        if scope["type"] == "http" and (error := _head_problem(scope)) is not None:
            await problem_response(scope["state"]["request_id"], error)(scope, receive, send)
            return
        if scope["type"] != "http" or scope["path"].rstrip("/") in _OWN_LIMIT:
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        received = int(declared) if declared.isdecimal() else 0
        if received > self._max_bytes:
            error = ProblemError(413, "about:blank", self._words)
            await problem_response(scope["state"]["request_id"], error)(scope, receive, send)
            return
        received = 0

        async def count() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise HTTPException(413, self._words)  # FastAPI makes a 400 of all but its own kind
            return message

        await self._app(scope, count, send)


def _head_problem(scope: Scope) -> ProblemError | None:
    """414 and 431: servers bound what they read, not each in the same way."""
    address = len(scope.get("raw_path") or scope["path"]) + len(scope["query_string"])
    if address > _MAX_ADDRESS_BYTES:
        return ProblemError(414, "about:blank", f"an address may have at most {_MAX_ADDRESS_BYTES} bytes")
    headers = sum(len(name) + len(value) for name, value in scope["headers"])
    if headers > _MAX_HEADER_BYTES:
        return ProblemError(
            431, "about:blank", f"headers may have at most {_MAX_HEADER_BYTES} bytes together"
        )
    return None
