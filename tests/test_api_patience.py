"""Connections that ask nothing, or never read, are let go of; whoever asks in earnest notices nothing."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest

from service.api.serving import _most_connections

from .api_builders import seeded, served, wait_until
from .service_builders import an_incident

ASKED = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /healthz HTTP/1.1\r\nHost: loc",
        ASKED + b"GET /hea",
        b"POST /v1/none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\nx",
    ],
    ids=["nothing", "half-a-head", "half-a-second-head", "half-a-body-of-an-answered-request"],
)
def test_who_does_not_finish_asking_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr("service.api.patience.HEAD_TIMEOUT_S", 0.2)
    with seeded(tmp_path) as api, served(api.app) as (port, server):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as slow:
            slow.sendall(sent)
            while slow.recv(65536):
                pass
        wait_until(lambda: not server.server_state.connections)


def test_who_never_reads_the_answer_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.api.patience.HEAD_TIMEOUT_S", 0.05)
    monkeypatch.setattr("service.api.patience.FLUSH_TIMEOUT_S", 0.05)
    # 20 MB: more than what the kernel holds between two ends of a connection
    large = an_incident(advice=[{"action": "x", "target": "y" * 20_000_000, "command": None}])
    with seeded(tmp_path) as api:
        run_id = api.put("large", large)
        with served(api.app) as (port, server), socket.create_connection(("127.0.0.1", port)) as stalled:
            stalled.sendall(f"GET /v1/runs/{run_id}/verdict HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert stalled.recv(15) == b"HTTP/1.1 200 OK"
            wait_until(lambda: not server.server_state.connections)


def test_no_flood_of_connections_takes_the_files_that_others_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.serving._MAX_CONNECTIONS", 20)
    monkeypatch.setattr("service.api.patience.SPARE", 5)
    monkeypatch.setattr("service.api.serving.SPARE", 5)
    with seeded(tmp_path) as api, served(api.app) as (port, server), ExitStack() as stack:
        flood = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(60)]
        wait_until(lambda: sum(is_closed(one) for one in flood) == 60 - 25)
        assert len(server.server_state.connections) == 25
        told = next(one for one in flood if not is_closed(one))
        told.sendall(ASKED)
        assert told.recv(12) == b"HTTP/1.1 503"
        for one in flood:
            one.close()
        wait_until(lambda: not server.server_state.connections)
        assert httpx2.get(f"http://127.0.0.1:{port}/healthz").status_code == 200


def test_as_many_connections_are_taken_as_there_may_be_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for allowed, most in ((20_000, 2000), (1024, 524), (100, 1)):
        monkeypatch.setattr("service.api.serving.allow_open_files", lambda _, allowed=allowed: allowed)
        assert _most_connections() == most


def test_a_connection_is_used_again_and_again(tmp_path: Path) -> None:
    with (
        seeded(tmp_path) as api,
        served(api.app) as (port, server),
        httpx2.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        assert [client.get("/healthz").status_code for _ in range(3)] == [200, 200, 200]
        assert len(server.server_state.connections) == 1


def is_closed(one: socket.socket) -> bool:
    """Whether the other end has closed it; looks, and takes nothing."""
    one.setblocking(False)
    try:
        return one.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        one.setblocking(True)
