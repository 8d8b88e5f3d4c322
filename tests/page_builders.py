"""The page over a store of judged sample logs, and a browser that looks at it."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from fastapi import FastAPI

from detectors.verdict import canonical_bytes
from service.alerts.config import AlertsConfig
from service.api.app import make_app
from service.api.serving import make_server
from service.api.settings import ApiConfig
from service.history_config import HistoryConfig
from service.history_writer import HistoryWriter
from service.page.routes import make_page_router
from service.pipeline import Pipeline

from .api_builders import Seeded, wait_until
from .history_builders import pending_of
from .local_chromium import Chromium
from .service_builders import batches_of

ROOT = Path(__file__).parent.parent
LOGS = ROOT / "sample_logs"
LASTING = ApiConfig(worker_silent_after_s=86_400.0)
"""The worker's one sign of life lasts for the whole test."""
_BATCH = 2000


class Shown(Seeded):
    """A store and its history, with the API and the page over them."""

    def __init__(
        self, data_dir: Path, config: ApiConfig = LASTING, alerts: AlertsConfig | None = None
    ) -> None:
        folder = data_dir / "history"
        super().__init__(data_dir, config, history_folder=folder, alerts=alerts)
        self._config, self.history_folder = config, folder
        self.app.include_router(make_page_router())
        self.history = HistoryWriter(folder, HistoryConfig(keep_free_bytes=0))
        self.say_healthy(source="test", parts=["0"])

    def start_again(self) -> FastAPI:
        """Another application over the same store, as after a restart."""
        routers = [make_page_router()]
        return make_app(
            self.store.database,
            self._config,
            routers=routers,
            history_folder=self.history_folder,
            clock=self.now,
        )

    def judge(self, log: str, run: str | None = None) -> str:
        """Judge a sample log, under another name of the run if one is given; the run's id."""
        lines = gzip.decompress((LOGS / f"{log}.jsonl.gz").read_bytes()).splitlines()
        if run is not None:
            lines = [json.dumps({**json.loads(line), "run": run}).encode() for line in lines]
        return self.judge_lines(lines)

    def judge_lines(self, lines: Sequence[bytes]) -> str:
        """Judge the records of one run; its id."""
        pipeline = Pipeline(on_block=self.history.update)
        for batch in batches_of(lines, _BATCH):
            pipeline.feed(batch)
        (name,) = pipeline.runs
        verdict = pipeline.verdict(name)
        self.history.show_pending(pending_of(pipeline, name), is_quiet=True)
        self.history.flush()
        return self.put_verdict(json.loads(canonical_bytes(verdict)), pipeline.newest_time(name))


@contextmanager
def shown(data_dir: Path, config: ApiConfig = LASTING, alerts: AlertsConfig | None = None) -> Iterator[Shown]:
    """An empty store with the page over it."""
    one = Shown(data_dir, config, alerts)
    try:
        yield one
    finally:
        one.history.close()
        one.store.close()


@contextmanager
def serving(app: FastAPI, browser: Chromium, port: int = 0, *, is_left: bool = True) -> Iterator[int]:
    """The application at a port; ends like a service that is stopped, with its page left before or not."""
    server = make_server(app, host="127.0.0.1", port=port)
    listener = socket.create_server(("127.0.0.1", port))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        used = int(listener.getsockname()[1])
        browser.base = f"http://127.0.0.1:{used}"
        yield used
        if is_left:
            browser.leave()
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
    assert not thread.is_alive()
