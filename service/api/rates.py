"""How often one token, or one address, may ask: a bucket that fills at a steady rate.

Counted in this process for the last askers seen. Probes of an orchestrator are never held up; telemetry
has a rate of its own, since every rank of a job may send with one token.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from .problems import ProblemError, problem_response

_FREE = frozenset({"/healthz", "/readyz"})
_TELEMETRY = "/v1/telemetry"
_MAX_ASKERS = 4096
"""Askers with a bucket; the one not seen for longest is forgotten, which gives it a full one."""


class Buckets:
    """A bucket for each asker: ``burst`` requests at once, ``per_second`` of them in the long run."""

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._held: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, asker: str, now_s: float) -> float:
        """Take one; the seconds to wait if there is none, else 0.

        >>> buckets = Buckets(per_second=2.0, burst=1.0)
        >>> [buckets.take("a", at_s) for at_s in (0.0, 0.0, 0.5)]
        [0.0, 0.5, 0.0]
        """
        left, at_s = self._held.pop(asker, (self._burst, now_s))
        left = min(self._burst, left + max(0.0, now_s - at_s) * self._per_second)
        wait_s = 0.0 if left >= 1.0 else (1.0 - left) / self._per_second
        self._held[asker] = (left - 1.0 if wait_s == 0.0 else left), now_s
        if len(self._held) > _MAX_ASKERS:
            self._held.popitem(last=False)
        return wait_s


class RateLimit:
    """Tells who asks too often to wait; behind the guard, which knows who asks."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        others: Buckets,
        telemetry: Buckets,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app, self._others, self._telemetry, self._now_s = app, others, telemetry, now_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer 429 with the seconds to wait."""
        if scope["type"] == "http" and scope["path"] not in _FREE:
            buckets = self._telemetry if scope["path"].rstrip("/") == _TELEMETRY else self._others
            wait_s = buckets.take(_asker(scope), self._now_s())
            if wait_s > 0.0:
                await problem_response(scope["state"]["request_id"], _problem(wait_s))(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _asker(scope: Scope) -> str:
    """The token's id; without one the address, which is all that is known."""
    token_id = getattr(scope["state"].get("grant"), "id", None)
    address = (scope.get("client") or ("unknown", 0))[0]
    return f"address {address}" if token_id is None else f"token {token_id}"


def _problem(wait_s: float) -> ProblemError:
    return ProblemError(
        429,
        "too-many-requests",
        "this token, or without one this address, asks more often than it may",
        headers={"Retry-After": str(math.ceil(wait_s))},
    )
