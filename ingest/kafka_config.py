"""Settings of reading from Kafka; a module of its own so that settings load without the client."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from .bounds import check_bounds
from .kafka_topics import TopicsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaSourceConfig:
    """Where telemetry is read from, and the bounds of reading it."""

    bootstrap: tuple[str, ...] = ("127.0.0.1:9092",)
    """``host:port`` of one or more brokers."""
    group: str = "firstfault"
    """Consumer group: workers of one group share the partitions."""
    topics: TopicsConfig = field(default_factory=TopicsConfig)
    create_topics: bool = True
    """Create missing topics at the start; false where the account may not."""
    max_poll_messages: int = 2000
    """Messages a poll hands out: enough to decode in one go, measured no faster beyond."""
    longest_hold_s: float = 5.0
    """Partitions are merged by time, and one that does not answer holds the others up for so long."""
    max_value_bytes: int = 8 << 20
    """Greater messages are rejected unread. A broker's default limit is 1 MiB."""
    max_batch_bytes: int = 64 << 20
    """A compressed batch that unpacks to more is rejected: kafka-python itself has no limit."""
    fetch_bytes: int = 16 << 20
    """Most bytes of one fetch, which bounds what waits in memory."""
    session_timeout_s: float = 12.0
    """A killed worker's partitions go to the others after this; shorter makes pauses look like deaths."""
    connect_timeout_s: float = 5.0
    """Bound of a connection attempt and of each probe, which are all that can hold a poll up."""
    backoff_max_s: float = 30.0
    """Longest wait between connection attempts; they begin at half a second, double, and jitter."""
    probe_interval_s: float = 5.0
    """How often a source that gets nothing asks whether the broker is still there."""
    starved_after_s: float = 30.0
    """A partition in which messages wait for so long while none is handed out is reported as starved."""
    commit_interval_s: float = 5.0
    """How often offsets are shown to Kafka, for its lag display."""
    watchdog_s: float = 120.0
    """A poll that lasts longer ends the process: many times what any healthy one takes."""
    client: Mapping[str, object] = field(default_factory=dict)
    """Further kafka-python settings: security_protocol, sasl_mechanism, ssl_cafile and the like."""

    def __post_init__(self) -> None:
        if not self.bootstrap:
            raise ValueError("bootstrap must name at least one host:port, got none")
        for address in self.bootstrap:
            place = _ADDRESS.fullmatch(address)
            if place is None or not 1 <= int(place["port"]) <= 65535:
                raise ValueError(f"bootstrap must be host:port, the port from 1 to 65535, got {address!r}")
        if not self.group:
            raise ValueError("group must not be empty")
        check_bounds(self, _BOUNDS)
        if self.watchdog_s < 4 * self.connect_timeout_s:
            # One poll may wait for a connection, the first offsets, a probe: none of that is stuck.
            raise ValueError(f"watchdog_s must be >= 4 x connect_timeout_s, got {self.watchdog_s}")


_ADDRESS = re.compile(r"(\[[^\]\s]+\]|[^\s:,\[\]]+):(?P<port>[0-9]{1,5})")
_INT32 = (1 << 31) - 1
"""Kafka's protocol holds sizes in 32 bits."""
_BOUNDS = {
    "max_poll_messages": (1, 1_000_000),
    "longest_hold_s": (0.0, 3600.0),
    "max_value_bytes": (1, _INT32),
    "max_batch_bytes": (1, _INT32),
    "fetch_bytes": (4, _INT32),
    "session_timeout_s": (1.0, 1800.0),  # a broker's own bounds are 6 s and 30 min by default
    "connect_timeout_s": (0.1, 3600.0),
    "backoff_max_s": (0.1, 3600.0),
    "probe_interval_s": (0.1, 3600.0),
    "starved_after_s": (0.1, 86400.0),
    "commit_interval_s": (0.0, 3600.0),
    "watchdog_s": (1.0, 86400.0),
}
