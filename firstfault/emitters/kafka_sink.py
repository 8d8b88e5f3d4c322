"""Messages of a Kafka topic by kafka-python, from the sending thread: its `send` may block for a minute.

    kafka://host:port[,host:port][/topic][?security_protocol=SASL_SSL&sasl_mechanism=SCRAM-SHA-512]

User and password come from FIRSTFAULT_KAFKA_USERNAME and FIRSTFAULT_KAFKA_PASSWORD, as in the service.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.parse
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import groupby
from typing import Any

from ..wire_values import TELEMETRY_TOPIC
from .config import EmitterConfig
from .kafka_clients import close_now, make_client
from .packing import ARROW, Packer
from .sink import SinkAway, SinkTooLarge, bare

_TOO_LARGE = frozenset({"MessageSizeTooLargeError", "RecordTooLargeError", "RecordListTooLargeError"})


class KafkaSink:
    """Produces batches to one topic, keyed by run."""

    def __init__(self, url: str, config: EmitterConfig) -> None:
        parts = urllib.parse.urlsplit(url)
        brokers, topic = parts.netloc.rpartition("@")[2], parts.path.strip("/")
        if parts.scheme != "kafka" or not brokers or "/" in topic or parts.fragment:
            raise ValueError(f"sink must be kafka://host:port or kafka://host:port/topic, got {bare(url)!r}")
        self.name = f"kafka://{brokers}/{topic or TELEMETRY_TOPIC}"
        self._topic = topic or TELEMETRY_TOPIC
        self._config = config
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # kafka-python's own, on some Pythons an error where warnings are
            self._kafka = _kafka()
        self._packer = Packer(config.arrow_from_records)
        self._client = _client_settings(parts.query)
        self._settings = {
            "bootstrap_servers": brokers.split(","),
            "bootstrap_timeout_ms": int(config.connect_timeout_s * 1000),
            "max_block_ms": int(config.send_timeout_s * 1000),
            "request_timeout_ms": int(config.send_timeout_s * 1000),
            "delivery_timeout_ms": int(config.send_timeout_s * 1000),
            "compression_type": "zstd" if self._kafka.codec.has_zstd() else "gzip",
        }
        self._producer: Any = None

    def send(self, lines: Sequence[bytes], timeout_s: float) -> int:
        """Produce ``lines`` and wait for the acknowledgements."""
        until_s = time.monotonic() + timeout_s
        try:
            if self._producer is None:
                self._producer = self._made()
            futures = [
                self._producer.send(self._topic, value, key=run.encode(), headers=headers)
                for run, value, headers in self._messages(lines)
            ]
            for future in futures:
                future.get(timeout=max(until_s - time.monotonic(), 0.01))
        except Exception as error:  # kafka-python raises anything, RuntimeError and AssertionError included
            self.close()
            told = f"{self.name}: {type(error).__name__}: {error}"
            if type(error).__name__ in _TOO_LARGE:
                raise SinkTooLarge(told) from error
            raise SinkAway(told) from error
        return 0

    def interrupt(self) -> None:
        """A client library's call cannot be interrupted; it has its own bounds."""

    def close(self) -> None:
        """Let go of the producer, whose unacknowledged messages are sent again or stored by the caller."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(Exception):
                close_now(producer, wait_s=0.2)

    def _made(self) -> Any:
        producer = make_client(self._kafka.KafkaProducer, self._settings, self._client)
        # else the interpreter's exit closes it before what waits is sent, and waits a second for that
        getattr(producer, "_unregister_cleanup", lambda: None)()
        return producer

    def _messages(self, lines: Sequence[bytes]) -> Iterator[tuple[str, bytes, list[tuple[str, bytes]]]]:
        """(run, value, headers) of each message: the key of a message is its run."""
        for run, group in groupby(lines, key=run_of):
            for part in self._packer.parts(list(group)):
                packed = self._packer.packed(part, compress=False)
                is_arrow = packed.content_type == ARROW
                yield run, packed.body, [("content-type", ARROW.encode())] if is_arrow else []


def run_of(line: bytes) -> str:
    """The run that a line of ours belongs to."""
    return str(json.loads(line).get("run", ""))


def _kafka() -> Any:
    try:
        import_module("kafka.codec")
        return import_module("kafka")
    except ImportError as error:
        raise ValueError("a sink of kafka:// needs kafka-python (pip install kafka-python)") from error


def _client_settings(query: str) -> dict[str, object]:
    """Settings of kafka-python from the address and the environment."""
    settings: dict[str, object] = dict(urllib.parse.parse_qsl(query))
    for key, variable in (
        ("sasl_plain_username", "FIRSTFAULT_KAFKA_USERNAME"),
        ("sasl_plain_password", "FIRSTFAULT_KAFKA_PASSWORD"),
    ):
        if os.environ.get(variable):
            settings[key] = os.environ[variable]
    return settings
