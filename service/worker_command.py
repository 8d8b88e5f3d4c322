"""`firstfault worker`: the settings, the signals, and where its sentences go."""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from .config import Settings, load_settings
from .edge import tell
from .errors import ConfigError
from .logs import log_to
from .supervised import end_with_parent
from .worker_process import work_on_kafka, work_on_spool


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequest:
    """What was asked for on the command line; None leaves it to the settings."""

    data: Path
    kafka: str | None = None
    topic: str | None = None
    config: Path | None = None
    is_spooling: bool = False
    """Read the spool of the data folder, and no Kafka."""
    ends_with_stdin: bool = False
    """End with standard input: the parent holds the other end of it."""

    def settings(self) -> Settings:
        """The resolved settings.

        Raises:
            ConfigError: the settings cannot be, or spool and Kafka were asked for together.
        """
        if self.is_spooling and (self.kafka is not None or self.topic is not None):
            raise ConfigError("--spool reads no Kafka: leave out --kafka and --topic")
        given = {"kafka.bootstrap": self.kafka, "kafka.topics.telemetry": self.topic}
        overrides = {key: value for key, value in given.items() if value is not None}
        return load_settings(self.config, overrides=overrides)


def run_worker(request: WorkerRequest) -> int:
    """Work until SIGTERM or Ctrl-C; 0 after a clean end.

    Raises:
        ConfigError: the settings cannot be.
        StoreError: the store cannot be used.
        IngestError: the spool cannot be used.
        AlreadyRunning: another worker reads the spool.
    """
    settings = request.settings()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    log_to(sys.stderr)
    if request.ends_with_stdin:
        end_with_parent(stop)
    work = work_on_spool if request.is_spooling else work_on_kafka
    work(settings, request.data, stop, tell)
    return 0
