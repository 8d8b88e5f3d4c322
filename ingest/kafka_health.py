"""How a Kafka source says that it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaHealth:
    """How the source stands. ``reason`` is empty when nothing is wrong."""

    unavailable_since: float | None
    """Seconds since 1970 at which the broker was first found away; None while it answers."""
    reason: str
    partitions: tuple[str, ...]
    lag_messages: int | None
    """Messages not yet handed out, by the last probe and what came since; None before it."""
    lag_by_part: Mapping[str, int]
    """The same for each partition."""
    polled_at: float | None
    """When a poll last came back while the broker was there, seconds since 1970; None before the first."""
    skipped_messages: int
    """Offsets passed over because they could not be read or were gone."""
    starved: tuple[str, ...]
    """Partitions in which messages wait and none has been handed out for long."""
