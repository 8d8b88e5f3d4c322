"""Settings of sending; the standard library alone, as everything a training job imports."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class EmitterConfig:
    """How telemetry leaves the training process, and what it may cost there."""

    flush_s: float = 1.0
    """Longest that a record waits to be sent with others: half of what a person waits for a dashboard."""
    max_queue_records: int = 100_000
    """Records that wait in memory; beyond it the oldest are dropped and counted. Hours of one rank."""
    max_queue_bytes: int = 64 << 20
    """Bytes that wait in memory, estimated: a thousandth of a training host's memory."""
    max_batch_records: int = 5_000
    """Records of one message or request."""
    max_batch_bytes: int = 512 << 10
    """Bytes of one message or request before compression: half of what brokers take by default."""
    arrow_from_records: int = 8
    """Records from which on a batch travels as columns where pyarrow is installed: fewer are longer so
    than as lines."""
    connect_timeout_s: float = 3.0
    """Bound of a connection attempt, on the sending thread alone."""
    send_timeout_s: float = 10.0
    """How long a sink may take to answer; then it is away, and what was sent is sent again later."""
    backoff_s: float = 0.5
    """First wait after a failure; it doubles, with jitter, so that ranks do not come back as one."""
    backoff_max_s: float = 30.0
    """Longest wait between tries, unless the sink asks for more."""
    spill_dir: Path | None = None
    """Where records wait on disk while the sink is away; None: FIRSTFAULT_SPILL, else a folder of this user
    among the temporary files."""
    max_spill_bytes: int = 256 << 20
    """Bytes on disk of one process; beyond it the oldest are dropped and counted. 0: none on disk."""
    relay: bool = True
    """Whether local rank 0 sends for its whole host: one connection of a host instead of eight."""

    def __post_init__(self) -> None:
        for one in fields(self):
            low_high = _BOUNDS.get(one.name)
            value = getattr(self, one.name)
            if low_high is None:
                continue
            low, high = low_high
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise ValueError(f"{one.name} must be a number from {low} to {high}, got {value!r}")


_BOUNDS = {
    "flush_s": (0.01, 60.0),
    "max_queue_records": (1, 10_000_000),
    "max_queue_bytes": (1 << 10, 1 << 34),
    "max_batch_records": (1, 100_000),
    "max_batch_bytes": (1 << 10, 8 << 20),
    "arrow_from_records": (1, 1 << 30),
    "connect_timeout_s": (0.05, 60.0),
    "send_timeout_s": (0.05, 300.0),
    "backoff_s": (0.01, 60.0),
    "backoff_max_s": (0.01, 3600.0),
    "max_spill_bytes": (0, 1 << 40),
}
