"""What can go wrong in asking the service, as one tree.

ApiError                     everything: status, title, detail, errors, retry_after_s
├── InvalidRequest           400, 405, 413, 415, 422: asked wrongly
├── AccessRefused            401, 403: the token
├── NotFound                 404: there is no such run, incident, rule, host or address
├── Conflict                 409, 412: it cannot become that, or has changed since
├── Unavailable              429, 503, other 5xx: later; was tried again for as long as allowed
└── Unreachable              no answer at all; also a ConnectionError
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ApiError(Exception):
    """What the service refused, as its problem document (RFC 9457) says it.

    ``status`` is that of HTTP (0 without an answer), ``title`` the kind of problem, ``detail`` what happened
    this time, ``errors`` the single things that are wrong with the request, ``retry_after_s`` how long to
    wait, where it says so.
    """

    def __init__(
        self,
        status: int,
        title: str,
        detail: str,
        *,
        errors: list[Mapping[str, Any]] | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(status, title, detail)
        self.status, self.title, self.detail = status, title, detail
        self.errors = errors or []
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.status} {self.title}: {self.detail}" if self.status else self.detail


class InvalidRequest(ApiError):  # said as the problem that it is
    """The request breaks a rule; ``errors`` names which."""


class AccessRefused(ApiError):
    """There is no token where one is needed, it is not valid, or it lacks the scope."""


class NotFound(ApiError):
    """There is no such thing."""


class Conflict(ApiError):
    """An incident cannot become that from what it is, or it has changed since it was read."""


class Unavailable(ApiError):
    """Not just now: the store is locked, or too much was asked."""


class Unreachable(ApiError, ConnectionError):
    """Nobody answered."""


def error_of(
    status: int,
    title: str,
    detail: str,
    *,
    errors: list[Mapping[str, Any]] | None = None,
    retry_after_s: float | None = None,
) -> ApiError:
    """The error of a status, as the tree has it.

    >>> type(error_of(404, "Not Found", "there is no run 'x'")).__name__
    'NotFound'
    """
    kinds: Mapping[int, type[ApiError]] = {
        401: AccessRefused,
        403: AccessRefused,
        404: NotFound,
        409: Conflict,
        412: Conflict,
        429: Unavailable,
    }
    kind = kinds.get(status, Unavailable if status >= 500 else InvalidRequest)
    return kind(status, title, detail, errors=errors, retry_after_s=retry_after_s)
