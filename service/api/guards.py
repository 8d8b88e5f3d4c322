"""Who may ask: tokens where there are any, else this machine alone, by its own names and pages.

Without tokens the service is reachable from loopback only, yet so is it for every page in a browser
on this machine: a foreign page sends its ``Origin``, a rebound name shows as a foreign ``Host``.
"""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Protocol

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .problems import ProblemError, problem_response, store_unavailable

_OPEN_PATHS = frozenset({"/healthz", "/readyz", "/"})
_OPEN_PREFIX = "/page/"
"""Probes of an orchestrator hold no token; what is said to them names nothing. Nor does a browser that
asks for the page, which holds no data and asks its reader for the token."""
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_MAX_ADDRESSES = 4096
"""Addresses whose failures are counted; the oldest is forgotten first."""


class TokenScope(StrEnum):
    """What a token allows; none includes another."""

    READ = "read"
    WRITE = "write"
    INGEST = "ingest"


class Grant(Protocol):
    """What is asked of a token that is valid."""

    @property
    def name(self) -> str:
        """Who asks, as far as a token says."""
        ...

    @property
    def scopes(self) -> Collection[str]:
        """What it allows."""
        ...


@dataclass(frozen=True, slots=True)
class Local:
    """Whoever sits at this machine, while there are no tokens."""

    name: str = "local"
    scopes: Collection[str] = tuple(TokenScope)


class Authority(Protocol):
    """Knows the tokens; called from worker threads."""

    def has_tokens(self) -> bool:
        """Whether any token was ever made, expired ones included."""
        ...

    def find(self, given: str) -> Grant | None:
        """The valid token that was given; None if it is unknown or has expired."""
        ...


class Guard:
    """Turns away what may not come in, before anything else looks at it."""

    def __init__(
        self,
        app: ASGIApp,
        authority: Authority,
        *,
        host_names: tuple[str, ...] = (),
        failures_per_minute: int = 30,
        count_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._app, self._authority, self._host_names = app, authority, frozenset(host_names)
        self._failures, self._count_failure = Failures(failures_per_minute), count_failure

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through with ``grant`` and ``is_admitted`` in its state, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["state"]["is_admitted"] = partial(self._is_admitted, scope)
        try:
            scope["state"]["grant"] = await run_in_threadpool(self._admit, scope)
        except ProblemError as error:
            await problem_response(scope["state"]["request_id"], error)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_admitted(self, scope: Scope) -> bool:
        """Whether the request would still come in: what lasts long asks again, as tokens end meanwhile."""
        try:
            self._admit(scope)
        except ProblemError:
            return False
        return True

    def _admit(self, scope: Scope) -> Grant | None:
        headers, is_open = Headers(scope=scope), _is_open(scope)
        try:
            return self._identify(scope, headers, is_open=is_open)
        except ProblemError:
            raise
        except Exception as error:  # the store's own: a probe must get through to say that it is away
            if is_open:
                return None
            raise store_unavailable(error) from error

    def _identify(self, scope: Scope, headers: Headers, *, is_open: bool) -> Grant | None:
        if not self._authority.has_tokens():
            _require_loopback(scope, headers, self._host_names)
            return Local()
        grant = self._bearer(scope, headers)
        if grant is None:
            if is_open:
                return None
            raise _unauthorized("this service needs a token: Authorization: Bearer ff_…")
        needed = scope_needed(scope["method"], scope["path"])
        if needed not in grant.scopes and not is_open:
            raise ProblemError(
                403,
                "insufficient-scope",
                f"the token {grant.name!r} lacks the scope {needed.value}",
                headers={"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{needed.value}"'},
            )
        return grant

    def _bearer(self, scope: Scope, headers: Headers) -> Grant | None:
        """The grant of the token that was sent; None if none was."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if not kind:
            return None
        grant = self._authority.find(token.strip()) if kind.lower() == "bearer" else None
        if grant is not None:
            return grant
        self._count_failure()
        wait_s = self._failures.add((scope.get("client") or ("unknown", 0))[0], time.monotonic())
        if wait_s > 0:
            raise ProblemError(
                429,
                "too-many-failures",
                "too many wrong tokens came from this address",
                headers={"Retry-After": str(round(wait_s) + 1)},
            )
        raise _unauthorized("the token is unknown, expired or revoked", error="invalid_token")


class Failures:
    """Wrong tokens per address within a minute: counted for the last addresses seen, in this process."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._since: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def add(self, address: str, now_s: float) -> float:
        """Count one; returns the seconds to wait once there are too many, else 0.

        >>> failures = Failures(per_minute=1)
        >>> [failures.add("10.0.0.9", at_s) for at_s in (0.0, 15.0, 61.0)]
        [0.0, 45.0, 0.0]
        """
        since_s, count = self._since.pop(address, (now_s, 0))
        if now_s - since_s >= 60.0:
            since_s, count = now_s, 0
        self._since[address] = since_s, count + 1
        if len(self._since) > _MAX_ADDRESSES:
            self._since.popitem(last=False)
        return 60.0 - (now_s - since_s) if count >= self._per_minute else 0.0


def _is_open(scope: Scope) -> bool:
    path = scope["path"]
    return path in _OPEN_PATHS or (path.startswith(_OPEN_PREFIX) and scope["method"] in _SAFE_METHODS)


def scope_needed(method: str, path: str) -> TokenScope:
    """The scope that a request needs.

    >>> scope_needed("POST", "/v1/telemetry"), scope_needed("POST", "/v1/incidents/a1/state")
    (<TokenScope.INGEST: 'ingest'>, <TokenScope.WRITE: 'write'>)
    """
    if path.rstrip("/") == "/v1/telemetry":
        return TokenScope.INGEST
    if path.rstrip("/") == "/v1/tokens":
        return TokenScope.WRITE  # who may do what is not for everybody who may look
    return TokenScope.READ if method in _SAFE_METHODS else TokenScope.WRITE


def is_loopback(host: str) -> bool:
    """Whether ``host`` (a name or an address) is this machine itself.

    >>> [is_loopback(host) for host in ("127.0.0.1", "[::1]", "localhost", "10.0.0.1", "localhost.evil.org")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _require_loopback(scope: Scope, headers: Headers, host_names: frozenset[str]) -> None:
    address = (scope.get("client") or ("", 0))[0]
    if not is_loopback(address):
        raise _forbidden("without tokens only this machine is served; make one: firstfault token create")
    hosts = headers.getlist("host")
    if len(hosts) != 1 or not (is_loopback(_name(hosts[0])) or _name(hosts[0]) in host_names):
        raise _forbidden(f"the Host {', '.join(hosts)!r} is none of this service's names")
    origin = headers.get("origin")
    if origin is not None and origin not in (f"http://{hosts[0]}", f"https://{hosts[0]}"):
        raise _forbidden(f"a page of the origin {origin!r} may not ask this service")
    if not _is_from_our_pages(scope["method"], headers):
        raise _forbidden("a page of another site may not ask this service")


def _is_from_our_pages(method: str, headers: Headers) -> bool:
    """What the browser says of the page that asks; a link that a person follows is fine."""
    if headers.get("sec-fetch-site", "none") in ("same-origin", "none"):
        return True
    is_navigation = (
        headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )
    return is_navigation and method == "GET"


def _name(host: str) -> str:
    """The name or address of a Host header, without its port.

    >>> [_name(host) for host in ("Node-7:8000", "[::1]:8000", "[::1]", "localhost")]
    ['node-7', '[::1]', '[::1]', 'localhost']
    """
    name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
    return name.lower()


def _forbidden(detail: str) -> ProblemError:
    return ProblemError(403, "foreign-request", detail)


def _unauthorized(detail: str, error: str = "") -> ProblemError:
    challenge = 'Bearer realm="firstfault"' + (f', error="{error}"' if error else "")
    return ProblemError(401, "unauthorized", detail, headers={"WWW-Authenticate": challenge})
