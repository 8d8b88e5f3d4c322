"""Where verdicts and rejected lines go from the worker: Kafka, or a list in a test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ingest.blocks import Rejected


class Outlet(Protocol):
    """Where verdicts and rejected lines go; neither blocks nor raises."""

    def publish_verdict(self, seq: int, incident_id: str, verdict: bytes) -> None:
        """Hand on a run's canonical verdict because of what changed about one of its incidents."""
        ...

    def acknowledged(self) -> list[int]:
        """Numbers of the verdicts that have arrived since this was last asked."""
        ...

    def dead_letters(self, rejected: Sequence[Rejected]) -> None:
        """Hand on records and values that were not understood."""
        ...

    @property
    def waiting_letters(self) -> int:
        """Rejected lines that have neither arrived nor been given up."""
        ...

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything has arrived; False when time is up first."""
        ...
