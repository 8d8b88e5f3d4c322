"""`firstfault worker`: the settings, the signals, and where its sentences go."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from .config import load_settings
from .logs import log_to
from .worker_process import work_on_kafka


def run_worker(*, kafka: str | None, data: Path, topic: str | None, config: Path | None) -> int:
    """Work until SIGTERM or Ctrl-C; 0 after a clean end.

    Raises:
        ConfigError: the settings cannot be.
        StoreError: the store cannot be used.
    """
    overrides: dict[str, object] = {}
    if kafka is not None:
        overrides["kafka.bootstrap"] = kafka
    if topic is not None:
        overrides["kafka.topics.telemetry"] = topic
    settings = load_settings(config, overrides=overrides)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    log_to(sys.stderr)
    work_on_kafka(settings, data, stop, _say)
    return 0


def _say(sentence: str) -> None:
    sys.stdout.write(sentence + "\n")
    sys.stdout.flush()
