"""The server around the application: ends its streams as soon as it is told to stop.

uvicorn waits for open answers before it ends the lifespan, and a stream is an answer that never ends.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

import uvicorn
from fastapi import FastAPI

from service.open_files import allow_open_files
from service.tls_files import Certificate

from .patience import SPARE, PatientProtocol

_GRACE_S = 3
"""How long answers that are on their way may take once the service stops; then they are cut off."""
_MAX_HEAD_BYTES = 65_536
"""Greatest request line and headers together."""
_MAX_CONNECTIONS = 2000
"""Connections at once; further ones are told 503 by the server."""
_OTHER_FILES = 400
"""Files that are open beside connections: the store's, those of history, and pipes of processes."""


class ApiServer(uvicorn.Server):
    """uvicorn, without delay on small answers, and with streams that end at the first sign of a stop."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen; what is written goes out at once.

        asyncio sees to that only for sockets that name their protocol, which ours, made by
        ``socket.create_server``, do not; head and body of an answer would lie 40 ms apart.
        """
        for one in sockets or ():
            if one.family in (socket.AF_INET, socket.AF_INET6):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams and what is being judged again, then all else."""
        app = self.config.loaded_app if isinstance(self.config.app, str) else self.config.app
        assert isinstance(app, FastAPI)
        app.state.hub.close()
        app.state.desk.close()
        await super().shutdown(sockets)


def make_server(
    app: FastAPI,
    *,
    host: str,
    port: int,
    trusted_proxies: Sequence[str] = ("127.0.0.1", "::1"),
    certificate: Certificate | None = None,
) -> ApiServer:
    """A server for ``app``; ``run()`` serves until SIGTERM or SIGINT.

    ``trusted_proxies`` are those whose word on the client's address counts.
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        access_log=False,
        log_config=None,
        server_header=False,
        http=PatientProtocol,  # on h11, the one parser of the two that bounds a head
        ws="none",
        proxy_headers=True,
        forwarded_allow_ips=list(trusted_proxies),
        ssl_certfile=certificate.path if certificate else None,
        ssl_keyfile=(certificate.key or None) if certificate else None,
        timeout_graceful_shutdown=_GRACE_S,
        h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        limit_concurrency=_most_connections(),
    )
    return ApiServer(config)


def _most_connections() -> int:
    """As many as there should be, or as the system has files for: to find none left stops all connections."""
    allowed = allow_open_files(_MAX_CONNECTIONS + SPARE + _OTHER_FILES)
    return max(1, min(_MAX_CONNECTIONS, allowed - SPARE - _OTHER_FILES))
