"""Receivers of alerts on this machine, a store that puts alerts out, and signatures checked independently."""

from __future__ import annotations

import base64
import hmac
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from service.alerts.config import AlertsConfig, ChannelConfig, ChannelKind
from service.alerts.sender import Sender
from service.store import Store, StoreConfig, StoredVerdict

from .service_builders import Json, a_verdict, bytes_of

SECRET = "whsec_" + base64.b64encode(b"k3y-of-24-bytes-exactly!").decode()
OLD_SECRET = "whsec_" + base64.b64encode(b"the-old-key-of-24-bytes!").decode()
SOURCE, PARTS = "kafka:t", ("t:0",)

Answer = Callable[["Got"], tuple[int, Mapping[str, str], bytes]]


@dataclass(frozen=True, slots=True)
class Got:
    """One request that a receiver got."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float = field(default_factory=time.time)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def firing(self) -> list[tuple[str, str]]:
        """Incident and event of each alert of a webhook."""
        return [(one["firstfault"]["incident"], one["firstfault"]["event"]) for one in self.json["alerts"]]


def _fine(_: Got) -> tuple[int, Mapping[str, str], bytes]:
    return 200, {}, b"ok"


class Receiver:
    """An HTTP server on the loopback address that keeps what it gets; ``answer`` says what it answers."""

    def __init__(self, answer: Answer = _fine) -> None:
        self.got: list[Got] = []
        self.answer = answer
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                got = Got(self.path, {key.lower(): value for key, value in self.headers.items()}, body)
                status, headers, answer = outer.answer(got)
                outer.got.append(got)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def wait_for(self, count: int, timeout_s: float = 20.0) -> list[Got]:
        """What came, once there are so many; fails when they do not come."""
        wait_until(lambda: len(self.got) >= count, timeout_s)
        return self.got

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def wait_until(is_true: Callable[[], bool], timeout_s: float = 20.0) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < give_up_s, "it did not come true"
        time.sleep(0.005)


def is_signed(got: Got, secret: str) -> bool:
    """Whether one of the signatures is that of ``secret``: written anew from the specification's words."""
    content = (
        got.headers["webhook-id"] + "." + got.headers["webhook-timestamp"] + "." + got.body.decode("ascii")
    )
    key = base64.b64decode(secret[len("whsec_") :])
    expected = base64.b64encode(hmac.digest(key, content.encode("ascii"), "sha256")).decode()
    given = [part.split(",", 1) for part in got.headers["webhook-signature"].split(" ")]
    return ["v1", expected] in given and abs(time.time() - int(got.headers["webhook-timestamp"])) < 300


def a_webhook(url: str, **settings: Any) -> ChannelConfig:
    """A webhook on this machine, without a pause between messages; the variable HOOK holds its secret."""
    usual: Json = {"kind": ChannelKind.WEBHOOK, "url": url, "secret_env": "HOOK", "cool_down_s": 0.0}
    return ChannelConfig(**{**usual, "allow_private": True, **settings})


def an_alertmanager(url: str, **settings: Any) -> ChannelConfig:
    usual: Json = {"kind": ChannelKind.ALERTMANAGER, "url": url, "allow_private": True}
    return ChannelConfig(**{**usual, **settings})


def quick(channels: Mapping[str, ChannelConfig], **settings: Any) -> AlertsConfig:
    """Settings that try again at once."""
    times: Json = {"timeout_s": 2.0, "retry_first_s": 0.02, "retry_max_s": 0.05, "poll_s": 0.02}
    usual: Json = {"channels": channels, "resend_every_s": 0.2, "public_url": "https://ff.example"}
    return AlertsConfig(**{**times, **usual, **settings})


class Alerting:
    """A store that puts alerts out, as a worker has it, and a sender when it is started."""

    def __init__(self, folder: Path, config: AlertsConfig, store_config: StoreConfig | None = None) -> None:
        self.config = config
        self.store = Store(folder, store_config, alerts=config)
        self.database = self.store.database
        self._tenure = self.store.claim(SOURCE, PARTS).tenure
        self._senders: list[Sender] = []
        self._judged_to = 1840

    def judged(self, *incidents: Json, run: str = "llama-7b") -> None:
        """A verdict with these incidents."""
        self._judged_to += 1
        verdict = a_verdict(run, *incidents, judged_to_iteration=self._judged_to)
        self.store.save_verdict(self._tenure, PARTS, verdict, bytes_of(verdict))

    def send(self) -> Sender:
        """Start one more sender."""
        sender = Sender(self.database, self.config, "https://ff.example")
        sender.start()
        self.store.on_alert = sender.wake
        self._senders.append(sender)
        return sender

    def rows(self, table: Any) -> list[Any]:
        with self.database.read() as db:
            return list(db.execute(table.select()).all())

    def verdicts(self) -> list[StoredVerdict]:
        return self.store.verdicts()

    def close(self) -> None:
        for sender in self._senders:
            sender.close()
        self.store.close()

    def __enter__(self) -> Alerting:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
