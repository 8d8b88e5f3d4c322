"""`POST /v1/telemetry` over one connection that is kept open; the standard library alone."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path

from .config import EmitterConfig
from .packing import Packer
from .sink import SinkAway, SinkRefused, SinkTooLarge, bare

PATH = "/v1/telemetry"
_MAX_ANSWER_BYTES = 1 << 20
_REFUSED = frozenset({400, 415, 422})
"""Answers that the same body would get again; all others may change with a service, a token or a network."""
_SHOWN = 200
_LEAST_S = 0.05
_MAX_RETRY_AFTER_S = 600.0


class HttpSink:
    """Sends batches to one service."""

    def __init__(self, url: str, config: EmitterConfig) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"sink must be http://host:port or https://host:port, got {bare(url)!r}")
        self.name = bare(url)
        self._config = config
        self._is_secure = parts.scheme == "https"
        self._host, self._port = parts.hostname, _port_of(parts) or (443 if self._is_secure else 80)
        self._path = parts.path.rstrip("/").removesuffix(PATH) + PATH
        self._headers = {"User-Agent": "firstfault-probe", **authorization(os.environ)}
        self._tls = ssl.create_default_context() if self._is_secure else None
        self._proxy = _proxy_of(parts)
        self._packer = Packer(config.arrow_from_records)
        self._connection: http.client.HTTPConnection | None = None

    def send(self, lines: Sequence[bytes], timeout_s: float) -> int:
        """Post ``lines``; the number of them that the service did not understand."""
        until_s = time.monotonic() + timeout_s
        return sum(
            self._send_part(part, max(until_s - time.monotonic(), _LEAST_S))
            for part in self._packer.parts(lines)
        )

    def _send_part(self, lines: Sequence[bytes], timeout_s: float) -> int:
        packed = self._packer.packed(lines, compress=True)
        headers = {**self._headers, "Content-Type": packed.content_type}
        if packed.encoding is not None:
            headers["Content-Encoding"] = packed.encoding
        try:
            status, fields, answer = self._post(packed.body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise SinkAway(f"{self.name}: {error or type(error).__name__}") from error
        if status == 202:
            return _rejected(answer)
        told = f"{self.name}: {status} {_detail(answer)}"
        if status == 413:
            raise SinkTooLarge(told)
        if status in _REFUSED:
            raise SinkRefused(told)
        raise SinkAway(told, _retry_after_s(fields))

    def interrupt(self) -> None:
        """Cut the connection: a thread that waits for its answer gets an error."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Let go of the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _post(
        self, body: bytes, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        connection = self._connected(min(timeout_s, self._config.connect_timeout_s))
        connection.sock.settimeout(timeout_s)
        target = self._path
        if self._proxy is not None and not self._is_secure:
            target = f"http://{self._host}:{self._port}{self._path}"
        connection.request("POST", target, body, dict(headers))
        with connection.getresponse() as response:
            answer = response.read(_MAX_ANSWER_BYTES)
            if response.will_close or not response.isclosed():
                self.close()
            return response.status, response.headers, answer

    def _connected(self, timeout_s: float) -> http.client.HTTPConnection:
        if self._connection is None:
            self._connection = self._made(timeout_s)
        if self._connection.sock is None:
            self._connection.connect()
        return self._connection

    def _made(self, timeout_s: float) -> http.client.HTTPConnection:
        host, port = self._proxy or (self._host, self._port)
        if self._tls is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self._tls)
        if self._proxy is not None:
            connection.set_tunnel(self._host, self._port)
        return connection


def authorization(environ: Mapping[str, str]) -> dict[str, str]:
    """The header that carries the token of FIRSTFAULT_TOKEN, or of the file that FIRSTFAULT_TOKEN_FILE names.

    Raises:
        ValueError: a token that cannot be a header.
        OSError: the file cannot be read.
    """
    token = environ.get("FIRSTFAULT_TOKEN", "").strip()
    if not token and environ.get("FIRSTFAULT_TOKEN_FILE"):
        token = Path(environ["FIRSTFAULT_TOKEN_FILE"]).read_text(encoding="utf-8").strip()
    if not token:
        return {}
    if not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError("FIRSTFAULT_TOKEN must be printable ASCII without blanks")
    return {"Authorization": f"Bearer {token}"}


def _port_of(parts: urllib.parse.SplitResult) -> int | None:
    """The port. The error does not tell what stands there: it may be a part of a password."""
    try:
        return parts.port
    except ValueError:
        raise ValueError("the port of sink must be a number from 0 to 65535") from None


def _proxy_of(parts: urllib.parse.SplitResult) -> tuple[str, int] | None:
    """Host and port of the proxy that the environment names for this address."""
    host = parts.hostname or ""
    named = urllib.request.getproxies().get(parts.scheme)
    if not named or host in ("localhost", "127.0.0.1", "::1") or urllib.request.proxy_bypass(host):
        return None
    proxy = urllib.parse.urlsplit(named if "://" in named else f"http://{named}")
    return (proxy.hostname, proxy.port or 80) if proxy.hostname else None


def _rejected(answer: bytes) -> int:
    try:
        return int(json.loads(answer)["rejected"])
    except (ValueError, KeyError, TypeError):
        return 0


def _detail(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["detail"])[:_SHOWN]
    except (ValueError, KeyError, TypeError):
        return answer[:_SHOWN].decode("utf-8", "replace")


def _retry_after_s(fields: http.client.HTTPMessage) -> float:
    wait = fields.get("Retry-After", "")
    return min(float(wait), _MAX_RETRY_AFTER_S) if wait.isascii() and wait.isdigit() else 0.0
