"""A store with runs in it, and the API over that store."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient

from service.alerts.config import AlertsConfig
from service.api.app import make_app
from service.api.serving import ApiServer, make_server
from service.api.settings import ApiConfig
from service.config import Settings
from service.run_id import run_id_of
from service.store import Store
from service.store_config import StoreConfig

from .service_builders import a_verdict, an_incident

Json = dict[str, Any]
LOOPBACK = "http://127.0.0.1:8000"


class Seeded:
    """A store that a worker holds, and the API over it."""

    def __init__(
        self,
        data_dir: Path,
        config: ApiConfig | None = None,
        *,
        history_folder: Path | None = None,
        store_config: StoreConfig | None = None,
        alerts: AlertsConfig | None = None,
    ) -> None:
        self.store = Store(data_dir, store_config, alerts=alerts)
        self.tenure = self.store.claim("test", ["0"]).tenure
        self.shift_s = 0.0
        self.app = make_app(
            self.store.database,
            config,
            history_folder=history_folder,
            clock=self.now,
            settings=Settings(alerts=alerts or AlertsConfig()),
        )

    def now(self) -> float:
        """The clock of the API; ``shift_s`` sets it ahead of that of the store."""
        return time.time() + self.shift_s

    def put(self, run: str, *incidents: Json, **changes: Any) -> str:
        """Store a verdict of ``run``; the run's id."""
        return self.put_verdict(a_verdict(run, *incidents, **changes))

    def put_verdict(self, verdict: Json, newest_record_at: float | None = 1_764_470_000.25) -> str:
        """Store a whole verdict; the run's id."""
        self.store.save_verdict(self.tenure, ["0"], verdict, canonical(verdict), newest_record_at)
        return run_id_of(str(verdict["run"]))

    def say_healthy(self, **body: Any) -> None:
        """The worker's sign of life."""
        self.store.say_health("worker:node-1:1", body)

    def client(self, base_url: str = LOOPBACK, address: str = "127.0.0.1", token: str = "") -> TestClient:
        """A client of the API on this machine, or from another ``address``."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return TestClient(
            self.app, base_url, raise_server_exceptions=False, client=(address, 50_000), headers=headers
        )


@contextmanager
def seeded(
    data_dir: Path,
    config: ApiConfig | None = None,
    *,
    history_folder: Path | None = None,
    store_config: StoreConfig | None = None,
) -> Iterator[Seeded]:
    """An empty store with the API over it."""
    one = Seeded(data_dir, config, history_folder=history_folder, store_config=store_config)
    try:
        yield one
    finally:
        one.store.close()


@contextmanager
def served(app: FastAPI, **options: Any) -> Iterator[tuple[int, ApiServer]]:
    """The application behind a real server on loopback; its port, and the server."""
    server = make_server(app, host="127.0.0.1", port=0, **options)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield int(listener.getsockname()[1]), server
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


def wait_until(holds: Callable[[], bool], limit_s: float = 30.0) -> None:
    """Poll until ``holds``; the limit is for a machine that is busy, not part of any claim."""
    end_s = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end_s, "waited in vain"
        time.sleep(0.01)


def canonical(verdict: Json) -> bytes:
    """The bytes of a verdict as the worker writes them."""
    return json.dumps(verdict, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()


def an_odd_incident(incident_id: str, **changes: Any) -> Json:
    """An incident of which every number that may be non-finite is."""
    evidence = {
        "detector": "nonfinite",
        "metric": "loss",
        "pattern": "immediate_nonfinite",
        "certainty": "confirmed",
        "phase": "forward",
        "ranks": [3],
        "rank_count": 1,
        "iteration": 1200,
        "interval": [1199, 1200],
        "statistic": "NaN",
        "threshold": "-Infinity",
        "direction": "nonfinite",
        "detail": {"value": "Infinity"},
    }
    named = {"id": incident_id, "label": "nan", "pattern": "immediate_nonfinite", "evidence": [evidence]}
    return an_incident(**{**named, **changes})
