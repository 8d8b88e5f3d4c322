"""Local rank 0 sends for its host, and nobody depends on it."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import firstfault
from firstfault.emitters.http_sink import HttpSink
from firstfault.emitters.relay import RelayServer, RelaySink
from firstfault.emitters.sink import SinkAway

from .probe_builders import Service, quick, wait_until
from .test_emitters import ListSink, a_record, an_emitter


@pytest.fixture(autouse=True)
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the processes of a host meet."""
    with tempfile.TemporaryDirectory(prefix="ff-") as folder:
        monkeypatch.setenv("FIRSTFAULT_SPILL", folder)
        yield Path(folder)


def a_probe(rank: int, url: str, monkeypatch: pytest.MonkeyPatch) -> firstfault.Probe:
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    return firstfault.Probe(run="r", rank=rank, world_size=2, sink=url, config=quick())


@pytest.mark.parametrize("name", ["short", "a_name_that_is_long/" * 10], ids=["short", "long"])
def test_the_records_of_a_host_are_sent_by_its_first_rank(
    name: str, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIRSTFAULT_SPILL", str(host / name))
    senders: set[HttpSink] = set()
    send = HttpSink.send

    def noted(sink: HttpSink, lines: Sequence[bytes], timeout_s: float) -> int:
        senders.add(sink)
        return send(sink, lines, timeout_s)

    monkeypatch.setattr(HttpSink, "send", noted)
    with Service() as service:
        first, second = (a_probe(rank, service.url, monkeypatch) for rank in (0, 1))
        for _ in range(20):
            first.step(1.0)
            second.step(2.0)
        wait_until(lambda: second.counts.sent > 20)
        assert len(senders) == 1  # while it closes, a rank that waits too long for an answer sends by itself
        second.close()
        first.close()
    of_second = [line for line in service.lines() if line["rank"] == 1 and "loss" in line]
    assert [line["iteration"] for line in of_second] == list(range(20))
    assert first.counts.dropped == second.counts.dropped == 0


def test_a_rank_sends_for_itself_once_the_first_of_its_host_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with Service() as service:
        first, second = (a_probe(rank, service.url, monkeypatch) for rank in (0, 1))
        second.step(1.0)
        wait_until(lambda: second.counts.sent > 1)
        first.close()
        second.step(2.0)
        wait_until(lambda: [line for line in service.lines() if line.get("loss") == 2.0])
        second.close()
    assert second.counts.dropped == 0


def test_lines_are_acknowledged_when_they_are_sent_and_not_before(host: Path) -> None:
    sink = ListSink()
    sink.is_away = True
    relaying = an_emitter(sink)  # no disk: what it cannot send waits in memory
    server = RelayServer(host / "s.sock", relaying.relay)
    own = ListSink()
    own.is_away = True
    peer = RelaySink(host / "s.sock", own)
    with pytest.raises(SinkAway):
        peer.send([b"{}"], timeout_s=0.4)
    sink.is_away = False
    again = RelaySink(host / "s.sock", own)
    assert again.send([b"{}"], timeout_s=20.0) == 0
    assert sink.lines[-1] == b"{}"
    again.close()
    relaying.close(1.0)
    server.close()


def test_a_stranger_on_the_socket_is_shown_the_door(host: Path) -> None:
    sink = ListSink()
    emitter = an_emitter(sink)
    server = RelayServer(host / "s.sock", emitter.relay)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.settimeout(20.0)
        stranger.connect(str(host / "s.sock"))
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert stranger.recv(1) == b""
    server.close()
    emitter.put(a_record(1))
    wait_until(lambda: sink.lines)
    emitter.close(1.0)
