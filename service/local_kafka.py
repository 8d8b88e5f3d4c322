"""A real single-node Apache Kafka on the loopback address, for the demo, the tests and `make kafka`.

    python -m service.local_kafka start|stop|status|run [--port PORT] [--data DIR]

One Java process is broker and controller (KRaft). `kafka_jars` finds Java and the jars.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .broker_files import READY_LINE, write_logging, write_server_properties
from .kafka_jars import BrokerUnavailable, cache_dir, find_java, kafka_jars, last_lines

HOST = "127.0.0.1"
_PORTS = range(20_000, 32_000)
"""Below what Linux (from 32768) and others (from 49152) give to clients."""
_JVM_OPTIONS = (
    # The serial collector and the first compiler tier only: half the start time and memory of the
    # defaults, on a broker that carries megabytes, not gigabytes.
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Djava.awt.headless=true",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalKafkaConfig:
    """How a local broker runs."""

    heap_megabytes: int = 512
    """Java heap bound, -Xmx: the broker starts in 100 MB and has room for the largest test."""
    start_timeout_s: float = 60.0
    """Ten times the usual start, since a busy two-core machine is slow."""
    stop_timeout_s: float = 20.0
    """After this a broker that ignores SIGTERM is killed; its log is replayed at the next start."""
    properties: tuple[tuple[str, str], ...] = ()
    """Further lines of server.properties, to make a broker that retains little or refuses much."""


class LocalKafka:
    """One broker over one data folder; start, stop and start again keep port and data.

    ``port`` 0 picks a free one at the first start. Usable as a context manager.
    """

    def __init__(self, data_dir: Path, port: int = 0, config: LocalKafkaConfig | None = None) -> None:
        self.data_dir = data_dir.absolute()
        self.port = port
        self._controller_port = 0
        self._config = config or LocalKafkaConfig()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """``host:port`` that clients bootstrap from."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id of the broker while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    @property
    def log_path(self) -> Path:
        """What the broker printed since its last start."""
        return self.data_dir / "broker.log"

    def start(self, *, detach: bool = False) -> None:
        """Start the broker and wait until it answers.

        ``detach`` leaves it running when this program ends, in its own session.

        Raises:
            BrokerUnavailable: no Java or jars, or no answer in time; holds the end of the log.
        """
        java, jars = find_java(), kafka_jars()
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        self._controller_port = self._controller_port or free_port()
        further = dict(self._config.properties)
        properties = write_server_properties(self.data_dir, HOST, self.port, self._controller_port, further)
        base = [java, f"-Xmx{self._config.heap_megabytes}m", *_JVM_OPTIONS, "-cp", f"{jars}/*"]
        base.append(f"-Dlog4j2.configurationFile={write_logging(self.data_dir)}")
        if not (self.data_dir / "log" / "meta.properties").exists():
            self._format(base, properties)
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                [*base, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=detach,
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """End the broker: SIGTERM, then SIGKILL when it does not end in time. Safe to call twice."""
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        process.terminate()
        try:
            process.wait(self._config.stop_timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Stop and start on the same port and data."""
        self.stop()
        self.start()

    def __enter__(self) -> LocalKafka:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        give_up = time.monotonic() + self._config.start_timeout_s
        while time.monotonic() < give_up:
            if self._process.poll() is not None:
                raise BrokerUnavailable(
                    f"the broker ended with status {self._process.returncode}:\n{self._log_tail()}"
                )
            if READY_LINE in self.log_path.read_text(errors="replace") and answers(self.port):
                return
            time.sleep(0.05)
        self.stop()
        waited = f"{self._config.start_timeout_s:.0f} s"
        raise BrokerUnavailable(
            f"the broker did not answer on {self.address} within {waited}:\n{self._log_tail()}"
        )

    def _log_tail(self) -> str:
        return last_lines(self.log_path.read_text(errors="replace"))

    def _format(self, java_command: list[str], properties: Path) -> None:
        """Write the metadata that a KRaft node needs before its first start."""
        # A fixed cluster id: one node, reached over loopback only, never joined to another.
        command = [*java_command, "kafka.tools.StorageTool", "format", "-t", "Zmlyc3RmYXVsdC1kZXYtMQ", "-c"]
        done = subprocess.run(
            [*command, str(properties)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self._config.start_timeout_s,
            check=False,
        )
        if done.returncode != 0:
            raise BrokerUnavailable(
                f"the broker's storage cannot be formatted:\n{last_lines(done.stdout + done.stderr)}"
            )


def answers(port: int) -> bool:
    """Whether something accepts connections on this port of the loopback address."""
    try:
        with socket.create_connection((HOST, port), timeout=1):
            return True
    except OSError:
        return False


def free_port() -> int:
    """A port that systems give to no client: such a one may be taken while a server starts, or starts again.

    Raises:
        BrokerUnavailable: none of many tried is free.
    """
    for port in random.SystemRandom().sample(_PORTS, 100):
        with suppress(OSError), socket.create_server((HOST, port)):
            return port
    raise BrokerUnavailable(f"no free port from {_PORTS.start} to {_PORTS.stop - 1} was found")


def main(arguments: list[str] | None = None) -> int:
    """The command behind `make kafka`; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m service.local_kafka", description="A local Apache Kafka broker."
    )
    parser.add_argument("action", choices=("start", "stop", "status", "run"))
    parser.add_argument("--port", type=int, default=9092, help="port on the loopback address (9092)")
    parser.add_argument(
        "--data", type=Path, default=cache_dir() / "local-kafka", help="folder of the broker's data"
    )
    given = parser.parse_args(arguments)
    try:
        return _ACTIONS[given.action](given.data.absolute(), given.port)
    except BrokerUnavailable as error:
        _say(f"no local broker: {error}", to_error=True)
        return 3


def _start(data: Path, port: int) -> int:
    running = _running_pid(data)
    if running is not None:
        _say(f"Kafka is running already on {_recorded_address(data)} (pid {running})")
        return 0
    if answers(port):
        raise BrokerUnavailable(f"port {port} is taken by another program; choose one with --port")
    broker = LocalKafka(data, port)
    broker.start(detach=True)
    (data / "broker.pid").write_text(f"{broker.pid} {broker.address}\n")
    _say(f"Kafka is ready on {broker.address} (pid {broker.pid}, data in {data})")
    return 0


def _stop(data: Path, _port: int) -> int:
    pid = _running_pid(data)
    if pid is None:
        _say("Kafka is not running")
        return 0
    os.kill(pid, signal.SIGTERM)
    give_up = time.monotonic() + LocalKafkaConfig().stop_timeout_s
    while _running_pid(data) is not None:
        if time.monotonic() > give_up:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    (data / "broker.pid").unlink(missing_ok=True)
    _say("Kafka has stopped")
    return 0


def _status(data: Path, _port: int) -> int:
    pid = _running_pid(data)
    _say(f"Kafka is running on {_recorded_address(data)} (pid {pid})" if pid else "Kafka is not running")
    return 0 if pid else 1


def _run(data: Path, port: int) -> int:
    """Run in the foreground until Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with LocalKafka(data, port) as broker:
        _say(f"Kafka is ready on {broker.address}; Ctrl-C ends it")
        try:
            while broker.pid is not None:
                time.sleep(0.5)
        except KeyboardInterrupt:
            return 0
    raise BrokerUnavailable("the broker ended by itself")


_ACTIONS = {"start": _start, "stop": _stop, "status": _status, "run": _run}


def _running_pid(data: Path) -> int | None:
    """The recorded broker's process id, if that process is still this broker."""
    try:
        pid = int((data / "broker.pid").read_text().split()[0])
        command = Path(f"/proc/{pid}/cmdline").read_bytes() if Path("/proc").is_dir() else str(data).encode()
        os.kill(pid, 0)
    except (OSError, ValueError, IndexError):
        return None
    return pid if str(data).encode() in command else None


def _recorded_address(data: Path) -> str:
    return (data / "broker.pid").read_text().split()[1]


def _say(text: str, *, to_error: bool = False) -> None:
    (sys.stderr if to_error else sys.stdout).write(f"{text}\n")


if __name__ == "__main__":
    sys.exit(main())
