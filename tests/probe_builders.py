"""Probes that are quick to send and to give up, a service that answers as told, and jobs in processes."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import zstandard

from firstfault import ProbeConfig
from firstfault.emitters import EmitterConfig

ROOT = Path(__file__).parent.parent


def quick(spill: Path | None = None, *, heartbeat_s: float = 3600.0, **settings: Any) -> ProbeConfig:
    """A probe that sends at once, retries at once and has its place on disk in ``spill``."""
    given = {"flush_s": 0.02, "backoff_s": 0.02, "backoff_max_s": 0.05, "arrow_from_records": 1 << 20}
    emitter = EmitterConfig(spill_dir=spill, **{**given, **settings})
    return ProbeConfig(heartbeat_s=heartbeat_s, on_sigterm=False, emitter=emitter)


def wait_until(is_so: Callable[[], object], timeout_s: float = 30.0) -> None:
    """Poll until ``is_so``; fails when time is up."""
    give_up = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < give_up, "it did not come to that"
        time.sleep(0.01)


class Service:
    """Takes what is posted; answers 202, or first what ``answers`` holds: (status, headers)."""

    def __init__(self, answers: Sequence[tuple[int, Mapping[str, str]]] = ()) -> None:
        self.answers = list(answers)
        self.bodies: list[tuple[Mapping[str, str], bytes]] = []
        self.times: list[float] = []
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                service.times.append(time.monotonic())
                status, headers = service.answers.pop(0) if service.answers else (202, {})
                if status == 202:
                    service.bodies.append((dict(self.headers), body))
                answer = json.dumps({"accepted": 1, "rejected": 0, "detail": "as told"}).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(answer))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Service:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def lines(self) -> list[dict[str, Any]]:
        """Every JSON line that was taken, in order."""
        found = []
        for headers, body in list(self.bodies):
            data = unpacked(body, headers.get("Content-Encoding"))
            found += [json.loads(line) for line in data.splitlines()]
        return found

    def iterations(self) -> list[int]:
        """Of records with a loss."""
        return [line["iteration"] for line in self.lines() if "loss" in line]


def unpacked(body: bytes, encoding: str | None) -> bytes:
    if encoding == "zstd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return gzip.decompress(body) if encoding == "gzip" else body


def run_job(
    program: str, *arguments: str, timeout_s: float = 60.0, **environ: str
) -> subprocess.CompletedProcess[str]:
    """``program`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
    )


@contextmanager
def started_job(program: str, *arguments: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """``program`` running in a process of its own, which ends with the block."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
