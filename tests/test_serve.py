"""`firstfault serve` as real processes: in over HTTP, out over the API, through kills and to the end."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from service.folder_lock import FolderLock
from service.local_kafka import LocalKafka
from service.run_id import run_id_of

from .intake_builders import NDJSON
from .service_builders import log_lines, write_log
from .test_worker_kafka import replayed

QUICK = "[kafka]\nprobe_interval_s = 0.5\n[worker]\njudge_every_s = 0.2\nsettle_after_s = 0.5\n"
QUICK += "checkpoint_every_s = 0.5\n[serve]\nrestart_after_s = 0.1\nrestart_max_s = 0.3\n"


@dataclass
class Service:
    """A running service and a client of it."""

    process: subprocess.Popen[str]
    client: httpx2.Client
    log: Path
    greeting: str

    def post(self, lines: Sequence[bytes]) -> int:
        body = b"".join(line + b"\n" for line in lines)
        return self.client.post("/v1/telemetry", content=body, headers={"content-type": NDJSON}).status_code

    def try_post(self, lines: Sequence[bytes]) -> int | None:
        """The status; None if the connection was cut."""
        try:
            return self.post(lines)
        except httpx2.TransportError:
            return None

    def verdict(self, run: str) -> bytes:
        """The stored verdict's canonical bytes, which end the answer; empty before there is one."""
        reply = self.client.get(f"/v1/runs/{run_id_of(run)}/verdict")
        return reply.content.partition(b'"verdict":')[2][:-1] if reply.status_code == 200 else b""

    def workers(self) -> list[int]:
        """Processes of the worker that live."""
        return [one.pid for one in psutil.Process(self.process.pid).children() if one.status() != "zombie"]

    def log_lines(self) -> list[Mapping[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def command(folder: Path, *options: str, settings: str = QUICK) -> list[str]:
    path = folder / "quick.toml"
    path.write_text(settings)
    data = ["--data", str(folder / "data"), "--config", str(path)]
    return [sys.executable, "-m", "service.cli", "serve", *data, *options]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("FIRSTFAULT_")}


@contextmanager
def serving(folder: Path, *options: str, settings: str = QUICK) -> Iterator[Service]:
    """A service on a free port; ended at the latest with the test."""
    log = folder / "serve.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            command(folder, "--port", "0", *options, settings=settings),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=environment(),
        )
    assert process.stdout is not None
    try:
        greeting = process.stdout.readline()
        found = re.search(r"http://\S+", greeting)
        assert found, log.read_text()
        with httpx2.Client(base_url=found[0], timeout=30.0) as client:
            wait_until(lambda: answers(client))
            yield Service(process, client, log, greeting)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/healthz").status_code == 200
    except httpx2.TransportError:
        return False


def wait_until(is_true: Callable[[], bool], timeout_s: float = 60.0) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < give_up_s
        time.sleep(0.1)


def refused(folder: Path, *options: str) -> tuple[int, str]:
    """Exit status and words of a service that does not start."""
    ended = subprocess.run(
        command(folder, *options), capture_output=True, text=True, timeout=60, check=False, env=environment()
    )
    return ended.returncode, ended.stderr.splitlines()[-1]


def test_what_is_sent_is_judged_as_a_file_is_also_by_a_worker_that_was_killed(tmp_path: Path) -> None:
    lines = log_lines("bad", odd_rank=3) + log_lines("good")
    early = [line for line in lines if json.loads(line)["iteration"] < 90]
    late = [line for line in lines if json.loads(line)["iteration"] >= 90]
    expected = replayed(write_log(tmp_path / "both.jsonl", lines))
    with serving(tmp_path) as service:
        assert "telemetry over HTTP)" in service.greeting
        assert service.post(early) == 202
        wait_until(lambda: b'"judged_to_iteration":89' in service.verdict("bad"))
        curve = f"/v1/runs/{run_id_of('bad')}/curves?metric=loss"
        wait_until(lambda: service.client.get(curve).status_code == 200)
        (incident,) = service.client.get("/v1/incidents").json()["items"]
        assert (incident["run"], incident["label"]) == ("bad", "silent_drift")

        (first,) = service.workers()
        os.kill(first, signal.SIGKILL)
        assert service.post(late) == 202  # whether the worker lives is no matter of the sender
        wait_until(lambda: {run: service.verdict(run) for run in expected} == expected)
        assert service.workers() not in ([], [first])
        assert 'firstfault_intake_bodies_total{status="202"} 2.0' in service.client.get("/metrics").text
        assert f"firstfault_intake_accepted_total {len(lines)}.0" in service.client.get("/metrics").text
        told = [one for one in service.log_lines() if one["message"] == "worker ended and is started again"]
        assert [one["end"] for one in told] == ["signal SIGKILL"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_both_within_five_seconds_with_a_stream_open(tmp_path: Path, number: int) -> None:
    with serving(tmp_path) as service:
        wait_until(lambda: "worker started" in service.log.read_text())
        (worker,) = service.workers()
        with service.client.stream("GET", "/v1/stream") as stream:
            assert stream.status_code == 200
            service.process.send_signal(number)
            for _ in stream.iter_raw():
                pass
            assert service.process.wait(5.0) == 0
        assert not psutil.pid_exists(worker)
        lines = service.log_lines()
    messages = [one["message"] for one in lines]
    assert messages[-1] == "service stopped"
    assert "worker stopped" in messages
    assert not [one for one in lines if one["level"] in ("error", "critical")]


def test_a_second_service_on_the_folder_or_the_port_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with serving(tmp_path) as service:
        status, words = refused(tmp_path, "--port", "0")
        assert status == 3
        assert f"used by another firstfault serve (process {service.process.pid})" in words
        status, words = refused(other, "--port", str(service.client.base_url.port))
        assert status == 3
        assert re.search(r"127\.0\.0\.1:[0-9]+: Address already in use: .*give another --port", words)


def test_a_worker_that_cannot_live_is_told_by_readyz_while_the_api_answers(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path / "data", "worker")
    with serving(tmp_path, settings=QUICK + "crash_loop_after = 1\n") as service:
        wait_until(lambda: "worker-crash-loop" in service.client.get("/readyz").text)
        reply = service.client.get("/readyz")
        assert (reply.status_code, reply.json()["status"]) == (200, "degraded")
        (told,) = [one for one in reply.json()["reasons"] if one["code"] == "worker-crash-loop"]
        assert told["detail"].endswith("last it ended with status 3")
        lock.release()
        wait_until(lambda: service.workers() != [])


def test_a_broker_that_never_answers_holds_up_no_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hole:
        address = f"127.0.0.1:{hole.getsockname()[1]}"
        with serving(tmp_path, "--kafka", address) as service, ThreadPoolExecutor(2) as senders:
            waiting = [senders.submit(service.try_post, log_lines()[:1]) for _ in range(2)]
            # the worker and the sender are connecting now, and will for five seconds
            wait_until(lambda: len(psutil.Process(service.process.pid).net_connections()) > 2)
            service.process.send_signal(signal.SIGTERM)
            assert service.process.wait(5.0) == 0
            assert all(one.result(30.0) in (500, 503, None) for one in waiting)


@pytest.mark.kafka
def test_with_kafka_what_is_sent_goes_through_the_topic(
    broker: LocalKafka, new_topic: Callable[[int], str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    names = f'[kafka.topics]\ntelemetry = "{topic}"\nverdicts = "{topic}-v"\ndead_letter = "{topic}-d"\n'
    lines = log_lines("bad", odd_rank=3)
    expected = replayed(write_log(tmp_path / "bad.jsonl", lines))
    with serving(tmp_path, "--kafka", broker.address, settings=QUICK + names) as service:
        assert f"telemetry through Kafka at {broker.address})" in service.greeting
        assert service.post(lines) == 202
        wait_until(lambda: {"bad": service.verdict("bad")} == expected)
        service.process.send_signal(signal.SIGTERM)
        assert service.process.wait(5.0) == 0
    assert not (tmp_path / "data" / "spool.sqlite3").exists()
