"""The worker and the demo on a real broker, as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from service.errors import StoreError
from service.inputs import find_inputs
from service.local_kafka import LocalKafka
from service.offline import ReplayOptions, judge_jobs
from service.store import DATABASE, Store

from .service_builders import log_lines, write_log

pytestmark = pytest.mark.kafka

QUICK = "[kafka]\nprobe_interval_s = 0.5\n[worker]\njudge_every_s = 0.2\nsettle_after_s = 0.5\n"


def produce(broker: LocalKafka, topic: str, lines: Sequence[bytes]) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=[broker.address], linger_ms=20)
    for line in lines:
        producer.send(topic, key=json.loads(line)["run"].encode(), value=line)
    producer.flush(30)
    producer.close()


def start_worker(broker: LocalKafka, topic: str, folder: Path) -> subprocess.Popen[str]:
    settings = folder / "quick.toml"
    settings.write_text(
        f'{QUICK}[kafka.topics]\ntelemetry = "{topic}"\nverdicts = "{topic}-v"\ndead_letter = "{topic}-d"\n'
    )
    command = [sys.executable, "-m", "service.cli", "worker", "--kafka", broker.address]
    return subprocess.Popen(
        [*command, "--data", str(folder / "data"), "--config", str(settings)],
        stdout=subprocess.PIPE,
        text=True,
    )


def stop_worker(process: subprocess.Popen[str]) -> tuple[int, float, str]:
    """Exit status, seconds that ending took, and what was printed."""
    began_s = time.monotonic()
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
    return process.returncode, time.monotonic() - began_s, out


def stored(folder: Path) -> Mapping[str, bytes]:
    if not (folder / "data" / DATABASE).exists():
        return {}
    try:
        store = Store(folder / "data", read_only=True)
    except StoreError as error:  # the worker has made the file, and not yet all that is in it
        assert "is needed: start a worker" in str(error)
        return {}
    try:
        return {one.run: one.canonical for one in store.verdicts()}
    finally:
        store.close()


def wait_until(is_true: Callable[[], bool], timeout_s: float = 60.0) -> None:
    give_up_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < give_up_s
        time.sleep(0.2)


def replayed(path: Path) -> Mapping[str, bytes]:
    jobs = judge_jobs(find_inputs([path]).jobs, ReplayOptions())
    return {run.verdict.run: run.line.encode() for job in jobs for run in job.runs}


def test_worker_and_replay_give_the_same_bytes_and_the_worker_resumes(
    broker: LocalKafka, new_topic: Callable[[int], str], tmp_path: Path
) -> None:
    topic = new_topic(2)
    lines = log_lines("bad", odd_rank=3) + log_lines("good")
    expected = replayed(write_log(tmp_path / "both.jsonl", lines))
    produce(broker, topic, [line for line in lines if json.loads(line)["iteration"] < 60])
    worker = start_worker(broker, topic, tmp_path)
    wait_until(lambda: all(b'"judged_to_iteration":59' in one for one in stored(tmp_path).values() or [b""]))
    status, took_s, out = stop_worker(worker)
    assert (status, out) == (0, "")
    assert took_s < 5.0

    worker = start_worker(broker, topic, tmp_path)
    produce(broker, topic, [line for line in lines if json.loads(line)["iteration"] >= 60])
    wait_until(lambda: stored(tmp_path) == expected)
    status, took_s, out = stop_worker(worker)
    assert status == 0
    assert took_s < 5.0
    assert out.splitlines() == [
        "bad: silent drift. Rank 3 holds other parameters than the other replicas since iteration 80."
    ]


def test_the_demo_uses_a_given_broker_ends_by_itself_and_leaves_no_topic(broker: LocalKafka) -> None:
    from kafka import KafkaAdminClient

    ended = subprocess.run(
        [sys.executable, "-m", "service.cli", "demo", "--exit", "--kafka", broker.address, "--speed", "20"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert ended.returncode == 0, ended.stderr
    assert "healthy: healthy. No fault visible up to iteration" in ended.stdout
    assert "silent drift. Rank " in ended.stdout
    admin = KafkaAdminClient(bootstrap_servers=[broker.address])
    left = [topic for topic in admin.list_topics() if topic.startswith("firstfault-demo")]
    admin.close()
    assert left == []
