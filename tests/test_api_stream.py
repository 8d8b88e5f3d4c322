"""The event stream, over a real server: resume, gaps, limits, clients that leave or stall, a clean end."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, insert

from service.access import create_token, revoke_token
from service.api.settings import ApiConfig
from service.tables import changes

from .api_builders import Seeded, seeded, served, wait_until
from .service_builders import an_incident

CONFIG = ApiConfig(max_streams=2, heartbeat_s=0.2, change_poll_s=0.02, send_timeout_s=0.5)


class Listener:
    """One client: raw, so that it can leave and stall as real ones do."""

    def __init__(
        self, port: int, path: str = "/v1/stream", last_event_id: str | None = None, token: str = ""
    ) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        resume = "" if last_event_id is None else f"Last-Event-ID: {last_event_id}\r\n"
        resume += f"Authorization: Bearer {token}\r\n" if token else ""
        self._socket.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{resume}\r\n".encode())
        self._file = self._socket.makefile("rb")

    def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers."""
        status = int(self._file.readline().split()[1])
        lines = iter(lambda: self._file.readline().strip(), b"")
        named = (line.decode().partition(":") for line in lines)
        return status, {name.lower(): value.strip() for name, _, value in named}

    def lines(self) -> Iterator[str]:
        """Lines of the body until its end, with the chunks of HTTP taken off.

        Raises:
            ConnectionError: it was cut off: there was no chunk that says the end.
        """
        while size := int(self._chunk_size(), 16):
            yield from self._file.read(size).decode().split("\n")
            self._file.readline()

    def _chunk_size(self) -> bytes:
        line = self._file.readline()
        if not line:
            raise ConnectionError("the stream was cut off")
        return line

    def events(self) -> Iterator[tuple[str, str, Any]]:
        """(id, event, data) as they come."""
        fields: dict[str, str] = {}
        for line in self.lines():
            name, _, value = line.partition(": ")
            if name:
                fields[name] = value
            elif line == "" and "data" in fields:
                yield fields["id"], fields["event"], json.loads(fields["data"])
                fields = {}

    def leave(self, *, reset: bool = False) -> None:
        """Close the connection, by a reset if asked to."""
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self._file.close()
        self._socket.close()


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Seeded]:
    with seeded(tmp_path, CONFIG) as one:
        yield one


@contextmanager
def listening(*args: Any, **named: Any) -> Iterator[Listener]:
    one = Listener(*args, **named)
    try:
        yield one
    finally:
        one.leave()


def test_what_is_stored_is_told_at_once_and_in_order(api: Seeded) -> None:
    with served(api.app) as (port, _), listening(port) as listener:
        status, headers = listener.head()
        events = listener.events()
        assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert next(events)[1] == "hello"
        api.put("llama \u202e\n\ndata: forged".replace("\n", " "), an_incident())
        told = [next(events), next(events)]
    assert [name for _, name, _ in told] == ["incident_new", "run_new"]
    assert [one[0] for one in told] == [str(one[2]["seq"]) for one in told]
    assert told[0][2]["incident_id"] == "a1"
    assert told[1][2]["body"]["run"].startswith("llama \u202e")


def test_a_client_that_comes_again_misses_nothing_and_gets_nothing_twice(api: Seeded) -> None:
    with served(api.app) as (port, _):
        with listening(port) as listener:
            listener.head()
            events = listener.events()
            next(events)
            api.put("one")
            last, _, _ = next(events)
        api.put("two")
        api.put("three")
        with listening(port, last_event_id=last) as again:
            again.head()
            told = again.events()
            names = [next(told)[1], next(told)[2]["body"]["run"], next(told)[2]["body"]["run"]]
    assert names == ["hello", "two", "three"]


def test_the_place_may_also_stand_in_the_address(api: Seeded) -> None:
    api.put("one")
    with served(api.app) as (port, _), listening(port, "/v1/stream?after=0") as listener:
        listener.head()
        events = listener.events()
        assert [next(events)[1], next(events)[1]] == ["hello", "run_new"]


def test_a_place_that_is_no_longer_kept_is_told_as_a_gap(api: Seeded) -> None:
    for name in ("one", "two", "three"):
        api.put(name)
    with api.store.database.write() as db:
        db.execute(delete(changes).where(changes.c.seq <= 2))
    with served(api.app) as (port, _):
        with listening(port, last_event_id="1") as behind:
            behind.head()
            events = behind.events()
            gap, after = next(events), next(events)
        with listening(port, last_event_id="77") as ahead:
            ahead.head()
            other = next(ahead.events())
    assert (gap[0], gap[1], gap[2]) == ("2", "gap", {"after": 1, "from": 3})
    assert after[2]["body"]["run"] == "three"
    assert (other[0], other[1]) == ("3", "gap")


@pytest.mark.parametrize("given", ["x", "-1", "1.5", "9" * 20, "٣"])
def test_a_place_that_is_none_is_refused(api: Seeded, given: str) -> None:
    headers = {b"Last-Event-ID": given.encode()}
    assert api.client().get("/v1/stream", headers=headers).status_code == 422


def test_a_silent_stream_is_kept_alive(api: Seeded) -> None:
    with served(api.app) as (port, _), listening(port) as listener:
        listener.head()
        assert ": still here" in (line for line in listener.lines())


def test_a_stream_too_many_is_told_so_and_comes_in_once_one_has_left(api: Seeded) -> None:
    hub = api.app.state.hub
    with served(api.app) as (port, _):
        first, second = Listener(port), Listener(port)
        assert [first.head()[0], second.head()[0]] == [200, 200]
        with listening(port) as third:
            status, headers = third.head()
            assert (status, headers["content-type"]) == (503, "application/problem+json")
            assert headers["retry-after"] == "2"
        first.leave()
        wait_until(lambda: hub.open_streams == 1)
        with listening(port) as fourth:
            assert fourth.head()[0] == 200
        second.leave()


def test_the_place_of_a_client_that_leaves_is_free_however_it_leaves(api: Seeded) -> None:
    hub = api.app.state.hub
    with served(api.app) as (port, _):
        for _ in range(5):
            Listener(port).leave(reset=True)  # before the first byte
            closed = Listener(port)
            closed.leave()
            wait_until(lambda: hub.open_streams == 0)
        # those that left may still wait to be seen, and take places until then
        wait_until(lambda: takes_a_place(port))
        wait_until(lambda: hub.open_streams == 0)


def takes_a_place(port: int) -> bool:
    """Open a stream, read its head and leave; whether there was a place."""
    reading = Listener(port)
    status, _ = reading.head()
    reading.leave(reset=True)
    return status == 200


def test_a_client_that_does_not_read_loses_its_place_and_holds_up_nobody(api: Seeded) -> None:
    hub = api.app.state.hub
    # 20 MB: more than what the kernel holds between two ends of a connection
    body = json.dumps({"text": "x" * 100_000}).encode()
    rows = [{**a_change(seq), "body": body} for seq in range(1, 201)]
    with api.store.database.write() as db:
        db.execute(insert(changes), rows)
    with served(api.app) as (port, _):
        stalled = Listener(port, last_event_id="0")
        wait_until(lambda: hub.open_streams == 1)
        with listening(port, last_event_id="0") as other:
            other.head()
            events = other.events()
            seqs = [next(events)[0] for _ in range(200)]
        wait_until(lambda: hub.open_streams == 0)
        stalled.leave()
    assert seqs == [str(seq) for seq in range(200)]


def a_change(seq: int) -> dict[str, Any]:
    """A row of the event stream without its body."""
    return {"seq": seq, "kind": "run_changed", "run_id": "0", "incident_id": None, "revision": 1, "at": 0.0}


def test_a_stop_ends_open_streams_cleanly_and_not_by_force(api: Seeded) -> None:
    with served(api.app) as (port, server):
        open_ones = [Listener(port), Listener(port)]
        for one in open_ones:
            one.head()
        server.should_exit = True
        # what the server has to end by force after some seconds is cut off
        assert [list(one.lines())[-1:] for one in open_ones] == [[""], [""]]
        for one in open_ones:
            one.leave()


def test_a_stream_ends_with_the_token_that_opened_it(api: Seeded) -> None:
    with api.store.database.write() as db:
        token = create_token(db, "page", ("read",), time.time())
    with served(api.app) as (port, _), listening(port, token=token) as listener:
        assert listener.head()[0] == 200
        with api.store.database.write() as db:
            revoke_token(db, token[:11], time.time())
        assert list(listener.lines())[-1:] == [""]
        with listening(port, token=token) as other:
            assert other.head()[0] == 401


def test_a_store_that_cannot_be_read_ends_streams_cleanly_and_opens_none(api: Seeded) -> None:
    with served(api.app) as (port, _), listening(port) as listener:
        listener.head()
        with api.store.database.write() as db:
            db.exec_driver_sql("DROP TABLE changes")
        assert list(listener.lines())[-1:] == [""]
        with listening(port) as other:
            assert other.head()[0] == 503
