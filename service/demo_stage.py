"""Where the demo plays: a topic with a worker behind it, or growing files that are followed.

Each stage owns the processes that it starts and ends them in `close`, whatever happened.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from ingest.errors import SourceUnavailable
from ingest.kafka_topics import TopicsConfig, create_topics, unreachable

from .errors import StageError, StoreError
from .local_kafka import LocalKafka
from .sentence import headline
from .store import Store
from .store_config import DATABASE

_CONNECT_TIMEOUT_S = 10.0
_END_TIMEOUT_S = 8.0
"""A worker ends within 5 s of SIGTERM; after this it is killed."""


class Stage(Protocol):
    """Takes lines, and knows the verdicts on what was sent so far."""

    title: str

    def send(self, run: str, lines: Sequence[bytes]) -> None:
        """Send the next lines of a run."""
        ...

    def finish(self) -> None:
        """Say that no more lines will be sent."""
        ...

    def verdicts(self) -> Mapping[str, Mapping[str, Any]]:
        """The newest verdict of each run, as JSON.

        Raises:
            StageError: what should judge is gone.
        """
        ...

    def news(self) -> list[str]:
        """Sentences that the judging process has said since the last call."""
        ...

    def close(self) -> None:
        """End every process of this stage; safe to call twice."""
        ...


class KafkaStage:
    """A topic on a broker, and `firstfault worker` as a child process."""

    def __init__(self, folder: Path, address: str | None) -> None:
        """Use the broker at ``address``, or start one; ``folder`` is for files that may go afterwards.

        Raises:
            BrokerUnavailable: no broker could be started.
            StageError: the broker at ``address`` cannot be used.
        """
        self._folder = folder
        self._broker = None if address else LocalKafka(folder / "kafka")
        self._child: _Child | None = None
        self._producer: Any = None
        try:
            if self._broker is not None:
                self._broker.start()
            self._address = address or self._broker_address()
            self.title = f"Apache Kafka at {self._address}" + ("" if address else ", started for this demo")
            self._open()
        except BaseException:
            self.close()
            raise

    def send(self, run: str, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._producer.send(self._topics.telemetry, key=run.encode(), value=line)

    def finish(self) -> None:
        self._producer.flush(_CONNECT_TIMEOUT_S)

    def verdicts(self) -> Mapping[str, Mapping[str, Any]]:
        assert self._child is not None
        self._child.check()
        if not (self._data / DATABASE).exists():
            return {}
        try:
            store = Store(self._data, read_only=True)
        except StoreError:
            return {}
        try:
            return {one.run: json.loads(one.canonical) for one in store.verdicts()}
        except sqlite3.Error:
            return {}  # its tables are being made
        finally:
            store.close()

    def news(self) -> list[str]:
        assert self._child is not None
        return self._child.lines()

    def close(self) -> None:
        if self._child is not None:
            self._child.end()
        if self._producer is not None:
            self._producer.close(timeout=2)
            self._producer = None
        if self._broker is not None:
            self._broker.stop()
        elif self._child is not None:
            _delete_topics(self._address, self._topics)
        self._child = None

    def _broker_address(self) -> str:
        assert self._broker is not None
        return self._broker.address

    def _open(self) -> None:
        from kafka import KafkaProducer

        bootstrap = [part.strip() for part in self._address.split(",")]
        why = unreachable(bootstrap, _CONNECT_TIMEOUT_S)
        if why is not None:
            raise StageError(f"no broker answers: {why}")
        # A broker of the user's may hold telemetry of its own: the demo keeps to topics of its own there.
        prefix = "firstfault" if self._broker is not None else f"firstfault-demo-{uuid.uuid4().hex[:8]}"
        self._topics = TopicsConfig(
            telemetry=f"{prefix}.telemetry",
            verdicts=f"{prefix}.verdicts",
            dead_letter=f"{prefix}.dead-letter",
            telemetry_partitions=2,
        )
        try:
            create_topics(bootstrap, self._topics, {})
        except SourceUnavailable as error:
            raise StageError(str(error)) from error
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=20)
        self._data = self._folder / "data"
        command = ["worker", "--kafka", self._address, "--data", str(self._data)]
        self._child = _Child([*command, "--config", str(self._write_settings(prefix))], self._folder)

    def _write_settings(self, group: str) -> Path:
        path = self._folder / "demo.toml"
        path.write_text(
            f'[kafka]\ngroup = "{group}"\nprobe_interval_s = 1.0\n'
            f'[kafka.topics]\ntelemetry = "{self._topics.telemetry}"\nverdicts = "{self._topics.verdicts}"\n'
            f'dead_letter = "{self._topics.dead_letter}"\ntelemetry_partitions = 2\n'
            "[worker]\njudge_every_s = 0.5\nsettle_after_s = 1.0\n",
            encoding="utf-8",
        )
        return path


class FileStage:
    """Growing files, and `firstfault replay --follow --json` over them as a child process."""

    def __init__(self, folder: Path, runs: Sequence[str]) -> None:
        self.title = f"growing log files in {folder}"
        self._files: dict[str, BinaryIO] = {}
        self._verdicts: dict[str, Mapping[str, Any]] = {}
        self._news: list[str] = []
        paths = [folder / f"{run}.jsonl" for run in runs]
        for run, path in zip(runs, paths, strict=True):
            self._files[run] = path.open("wb")
        self._child = _Child(["replay", "--follow", "--json", *map(str, paths)], folder)
        self._is_all_sent = self._is_finished = False

    def send(self, run: str, lines: Sequence[bytes]) -> None:
        self._files[run].write(b"".join(line + b"\n" for line in lines))
        self._files[run].flush()

    def finish(self) -> None:
        """Let the follower end once it has told of each run: before, it may not even have started."""
        self._is_all_sent = True

    def verdicts(self) -> Mapping[str, Mapping[str, Any]]:
        for line in self._child.lines():
            verdict = json.loads(line)
            before = self._verdicts.get(verdict["run"], {"label": "healthy"})
            if verdict["label"] != before["label"] and verdict["label"] != "undetermined":
                self._news.append(headline(verdict))
            self._verdicts[verdict["run"]] = verdict
        if self._is_all_sent and not self._is_finished and len(self._verdicts) == len(self._files):
            self._is_finished = True
            self._child.terminate()  # it then judges what is there as the end
        if not self._is_finished:
            self._child.check()
        return dict(self._verdicts)

    def news(self) -> list[str]:
        told, self._news = self._news, []
        return told

    def close(self) -> None:
        self._child.end()
        for file in self._files.values():
            file.close()


class _Child:
    """A `firstfault` command in a process of its own, its lines collected by a thread."""

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._log = folder / f"{arguments[0]}.log"
        self._lines: queue.Queue[str] = queue.Queue()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "service.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
                # Ctrl-C goes to the demo alone, which ends its children in order
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def lines(self) -> list[str]:
        """What it printed since the last call."""
        found: list[str] = []
        while not self._lines.empty():
            found.append(self._lines.get_nowait())
        return found

    def check(self) -> None:
        """Raise `StageError` if it has ended by itself."""
        if self._process.poll() is not None:
            told = self._log.read_text(errors="replace").splitlines()[-5:]
            raise StageError("\n".join([f"the judging process ended ({self._process.returncode}):", *told]))

    def terminate(self) -> None:
        """Ask it to end."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """End it: ask, wait, kill. Safe to call twice."""
        self.terminate()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(_END_TIMEOUT_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                self._lines.put(line.decode(errors="replace").rstrip("\n"))


def _delete_topics(address: str, topics: TopicsConfig) -> None:
    """Best effort: a broker that does not let us delete keeps two small topics."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    try:
        admin = KafkaAdminClient(bootstrap_servers=address.split(","))
        try:
            admin.delete_topics([topics.telemetry, topics.verdicts, topics.dead_letter])
        finally:
            admin.close()
    except KafkaError:
        sys.stderr.write(f"firstfault: the topics of this demo stay on the broker: {topics.telemetry}, …\n")
