"""Requests to the service over the standard library, and its answers as JSON, events or errors."""

from __future__ import annotations

import http.client
import ipaddress
import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

from .client_errors import ApiError, Unreachable, error_of

_SHOWN = 200
"""Characters shown of an answer that is no problem document: a proxy's page of HTML."""
_RETRY_S = 1.0
"""Wait before a lost stream is opened again, and before another try where the service names no time."""
_LATER = (429, 503)
"""Refused for now: nothing was done, so that the same may be asked again."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The service never redirects; whoever does must not get the token."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


class Connection:
    """Sends requests to one service; each is a connection of its own.

    Raises:
        ValueError: the address is not that of an HTTP service.
    """

    def __init__(self, url: str, token: str | None, timeout_s: float, patience_s: float = 0.0) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"url must be http://host:port or https://host:port, got {url!r}")
        self._base = url.rstrip("/")
        self._timeout_s, self._patience_s = timeout_s, patience_s
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if _is_loopback(parts.hostname):
            handlers.append(urllib.request.ProxyHandler({}))  # no proxy reaches this machine's own addresses
        self._opener = urllib.request.build_opener(*handlers)

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON at ``path``; parameters that are None are left out.

        Raises:
            ApiError: the service refused, or (`Unreachable`) nobody answers.
        """
        given = {name: value for name, value in parameters.items() if value is not None}
        query = f"?{urllib.parse.urlencode(given)}" if given else ""
        return self._ask("GET", f"{path}{query}", None, {})

    def post(self, path: str, body: bytes, media_type: str, headers: Mapping[str, str] | None = None) -> Any:
        """The JSON that ``path`` answers to ``body``; raises as `get`."""
        return self._ask("POST", path, body, {"Content-Type": media_type, **(headers or {})})

    def delete(self, path: str) -> Any:
        """The JSON that deleting ``path`` answers; raises as `get`."""
        return self._ask("DELETE", path, None, {})

    def _ask(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Any:
        """The answer; what is refused for now is asked again, when the service says, while patience lasts."""
        give_up_s = time.monotonic() + self._patience_s
        while True:
            request = urllib.request.Request(
                f"{self._base}{path}", body, {**self._headers, **headers}, method=method
            )
            try:
                with self._open(request) as answer:
                    return json.load(answer)
            except ApiError as error:
                wait_s = _RETRY_S if error.retry_after_s is None else error.retry_after_s
                if error.status not in _LATER or time.monotonic() + wait_s > give_up_s:
                    raise
                time.sleep(wait_s)
            except (OSError, http.client.HTTPException, ValueError) as error:  # cut off, or no JSON
                words = f"{self._base}: {error or type(error).__name__}"
                raise Unreachable(0, "Unreachable", words) from error

    def events(self, path: str, after: int | None, patience_s: float) -> Iterator[dict[str, Any]]:
        """Server-sent events of ``path``, on from ``after``; a lost connection is opened again.

        Raises:
            ApiError: the service refused, or (`Unreachable`) did not answer for ``patience_s``.
        """
        give_up_s = time.monotonic() + patience_s
        while True:
            try:
                with self._open(self._stream_request(path, after)) as answer:
                    for event in read_events(answer):
                        after = event["id"]
                        yield event
                        give_up_s = time.monotonic() + patience_s
            except (OSError, http.client.HTTPException, ApiError) as error:
                is_final = isinstance(error, ApiError) and error.status not in (0, *_LATER)
                if is_final:
                    raise
                if time.monotonic() >= give_up_s:
                    words = f"{self._base}: the stream is lost: {error}"
                    raise Unreachable(0, "Unreachable", words) from error
            time.sleep(_RETRY_S)

    def _stream_request(self, path: str, after: int | None) -> urllib.request.Request:
        resume = {} if after is None else {"Last-Event-ID": str(after)}
        headers = {**self._headers, **resume, "Accept": "text/event-stream"}
        return urllib.request.Request(f"{self._base}{path}", headers=headers)

    def _open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        try:
            answer: http.client.HTTPResponse = self._opener.open(request, timeout=self._timeout_s)
            return answer
        except urllib.error.HTTPError as error:
            with error:
                raise _api_error(error) from None
        except urllib.error.URLError as error:
            raise Unreachable(0, "Unreachable", f"{self._base}: {error.reason}") from error


def read_events(lines: Iterator[bytes] | http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Events out of the lines of a stream: ``id``, ``event`` and ``data``.

    >>> list(read_events(iter([b"retry: 5", b"", b"id: 7", b"event: opened", b'data: {"seq":7}', b""])))
    [{'id': 7, 'event': 'opened', 'data': {'seq': 7}}]
    """
    fields: dict[str, str] = {}
    for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
            continue
        if "data" in fields and "id" in fields:
            yield {
                "id": int(fields["id"]),
                "event": fields.get("event", "message"),
                "data": json.loads(fields["data"]),
            }
        fields = {}


def _api_error(error: urllib.error.HTTPError) -> ApiError:
    body = error.read().decode(errors="replace")
    wait = error.headers.get("Retry-After", "")
    retry_after_s = float(wait) if wait.isdigit() else None
    try:
        problem = json.loads(body)
    except ValueError:
        problem = None
    if not isinstance(problem, dict) or "title" not in problem:
        return error_of(error.code, str(error.reason), body[:_SHOWN], retry_after_s=retry_after_s)
    return error_of(
        error.code,
        str(problem["title"]),
        str(problem.get("detail", "")),
        errors=list(problem.get("errors", [])),
        retry_after_s=retry_after_s,
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
