"""Receivers that somebody else decides on: where no message goes, and what none of them can do to us."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from service.alerts.apprise_parent import notify
from service.alerts.config import ChannelConfig, ChannelKind
from service.alerts.target import MAX_ANSWER_BYTES, Limits, Refused, Reply, Unreachable, post

from .alert_builders import Got, Receiver

INSIDE = Limits(timeout_s=2.0, allow_private=True)
OUTSIDE = Limits(timeout_s=2.0)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",  # 127.0.0.1 as one number
        "0x7f.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "224.0.0.1",
        "[::1]",
        "[::]",
        "[fe80::1]",
        "[fd00::1]",
        "[::ffff:10.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a00:1]",
        "[2002:0a00:0001::]",
    ],
)
def test_nothing_is_sent_to_an_address_that_is_not_public(host: str) -> None:
    with pytest.raises((Refused, Unreachable)) as caught:
        post(f"https://{host}/", b"{}", {}, OUTSIDE)
    assert isinstance(caught.value, Refused) or "no address" in str(caught.value)


@pytest.mark.parametrize("host", ["169.254.169.254", "[::ffff:169.254.169.254]", "100.100.100.200"])
def test_the_credentials_of_a_cloud_are_no_receiver_whatever_is_allowed(host: str) -> None:
    with pytest.raises(Refused, match="hands out credentials"):
        post(f"http://{host}/latest/meta-data", b"{}", {}, INSIDE)


def test_one_inner_address_among_public_ones_is_enough_to_refuse() -> None:
    with pytest.raises(Refused, match=r"leads to 10\.0\.0\.1"):
        post("https://hooks.example/", b"{}", {}, OUTSIDE, lambda _host, _port: ["1.1.1.1", "10.0.0.1"])


def test_a_name_that_changes_its_answer_is_looked_up_once_and_leads_nowhere_else() -> None:
    asked: list[str] = []

    def rebinding(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    with Receiver() as receiver:
        reply = post(f"http://hooks.example:{receiver.port}/x", b"{}", {}, INSIDE, rebinding)
    assert (reply.status, asked) == (200, ["hooks.example"])
    assert receiver.got[0].headers["host"] == f"hooks.example:{receiver.port}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_answer_and_leads_nowhere(status: int) -> None:
    with Receiver() as inner, Receiver() as outer:
        outer.answer = lambda _: (status, {"Location": f"{inner.url}/secret"}, b"")
        reply = post(outer.url, b"{}", {}, INSIDE)
    assert (reply.status, inner.got) == (status, [])


def test_of_a_huge_answer_only_the_beginning_is_read() -> None:
    def huge(_: Got) -> tuple[int, Mapping[str, str], bytes]:
        return 200, {"Content-Length": str(1 << 40)}, b"x" * (1 << 20)

    with Receiver(huge) as receiver:
        reply = post(receiver.url, b"{}", {}, INSIDE)
    assert (reply.status, len(reply.body)) == (200, MAX_ANSWER_BYTES)


@pytest.mark.parametrize("drip", [b"H", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_receiver_that_drips_is_left_when_its_time_is_up(drip: bytes) -> None:
    with dripping(drip) as port:
        began_s = time.monotonic()
        with pytest.raises(Unreachable, match=r"no whole answer within 0\.4 s"):
            post(f"http://127.0.0.1:{port}/", b"{}", {}, Limits(timeout_s=0.4, allow_private=True))
    assert time.monotonic() - began_s < 5.0


@pytest.mark.parametrize(
    "answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n"]
)
def test_an_answer_that_is_none_is_a_failure(answer: bytes) -> None:
    with raw(answer) as port, pytest.raises(Unreachable):
        post(f"http://127.0.0.1:{port}/", b"{}", {}, INSIDE)


def test_a_certificate_is_checked_for_the_name_and_not_for_the_address(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    names = ["-days", "2", "-subj", "/CN=hooks.example", "-addext", "subjectAltName=DNS:hooks.example"]
    subprocess.run([*make, "-keyout", key, "-out", certificate, *names], check=True, capture_output=True)

    def ask(host: str, limits: Limits) -> Reply:
        with tls(certificate, key) as port:
            return post(f"https://{host}:{port}/", b"{}", {}, limits, lambda _host, _port: ["127.0.0.1"])

    trusting = Limits(timeout_s=60.0, allow_private=True, ca_file=str(certificate))
    assert ask("hooks.example", trusting).status == 204
    with pytest.raises(Unreachable, match="certificate"):
        ask("other.example", trusting)
    with pytest.raises(Unreachable, match="certificate"):
        ask("hooks.example", Limits(timeout_s=5.0, allow_private=True))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": "http://hooks.example/"}, "must begin with https://"),
        ({"url": "ftp://hooks.example/"}, "must be http:// or https://"),
        ({"url": "https://me:secret@hooks.example/"}, "holds a password or a query"),
        ({"url": "https://hooks.example/?token=s3cret"}, "holds a password or a query"),
        ({"url": "https://hooks.example/\r\nX: y"}, "printable ASCII"),
        ({"url": "https://hooks.example:0x/"}, "must be http:// or https://"),
        ({"url": ""}, "give one of them, got none"),
        ({"url": "https://a.example/", "url_env": "X"}, "give one of them"),
        ({"url": "https://a.example/", "secret_env": ""}, "needs what it is signed with"),
        ({"url_env": "not a name"}, "must be the name of an environment variable"),
        ({"kind": ChannelKind.APPRISE, "secret_env": "", "url": "slack://a"}, "use url_env or url_file"),
    ],
)
def test_an_address_that_cannot_be_stops_the_start_and_its_secret_is_not_repeated(
    settings: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        ChannelConfig(**{"kind": ChannelKind.WEBHOOK, "secret_env": "HOOK", **settings})  # type: ignore[arg-type]
    assert "s3cret" not in str(caught.value) and "me:secret" not in str(caught.value)


def test_apprise_carries_a_message_and_follows_no_redirect_and_no_way_inside() -> None:
    pytest.importorskip("apprise")
    with Receiver() as receiver, Receiver() as inner:
        url = f"json://127.0.0.1:{receiver.port}/hook"
        assert notify(url, "Title", "Text", timeout_s=10.0, allow_private=True) == ""
        assert receiver.got[0].json["message"] == "Text"
        assert "not public" in notify(url, "Title", "Text", timeout_s=10.0, allow_private=False)
        receiver.answer = lambda _: (307, {"Location": inner.url}, b"")
        assert "redirect" in notify(url, "Title", "Text", timeout_s=10.0, allow_private=True)
    assert (len(receiver.got), inner.got) == (2, [])


def test_an_address_that_apprise_does_not_know_is_said_without_repeating_it() -> None:
    pytest.importorskip("apprise")
    said = notify("nonsense://s3cret", "Title", "Text", timeout_s=5.0, allow_private=True)
    assert said == "apprise knows no service for this address"


@contextmanager
def raw(answer: bytes, drip: bytes = b"") -> Iterator[int]:
    """A server that answers these bytes, and then a byte of ``drip`` every 50 ms for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    is_done = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65_536)
            connection.sendall(answer)
            while drip and not is_done.wait(0.05):
                try:
                    connection.sendall(drip)
                except OSError:
                    return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        is_done.set()
        thread.join()
        listener.close()


def dripping(begin: bytes) -> AbstractContextManager[int]:
    """A server that begins to answer and then goes on, slowly, without an end."""
    return raw(begin, b"x")


@contextmanager
def tls(certificate: Path, key: Path) -> Iterator[int]:
    """A server that speaks TLS and answers 204 to one request, if it comes to that."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            try:
                with context.wrap_socket(connection, server_side=True) as secured:
                    asked = b""
                    # all of it: a connection closed over something unread is reset, the answer with it
                    while not asked.endswith(b"\r\n\r\n{}") and (more := secured.recv(65_536)):
                        asked += more
                    secured.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
            except OSError:
                return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        thread.join()
        listener.close()
