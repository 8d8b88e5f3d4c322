"""Settings of telemetry over HTTP; free of web libraries, so that every command can read them."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.bounds import check_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeConfig:
    """What one body, and all bodies together, may ask of the service."""

    max_body_bytes: int = 16 << 20
    """Greatest body as it is sent: 16 MiB, a minute of 1000 ranks as packed lines."""
    max_unpacked_bytes: int = 64 << 20
    """Greatest body once unpacked: 64 MiB, at which a bomb ends."""
    max_json_bytes: int = 8 << 20
    """Greatest `application/json` document: it is parsed whole and takes ten times its size meanwhile."""
    max_lines: int = 200_000
    """Lines, elements or rows of one body: more than 64 MiB of real records hold; a rejected one costs a
    kilobyte until the answer is sent."""
    max_message_bytes: int = 512 << 10
    """Greatest message that a body is cut into: half of what brokers take by default. A longer line is
    rejected."""
    max_runs: int = 1_000
    """Runs in one body: each gets a message of its own."""
    max_reasons: int = 50
    """Rejections that an answer lists; all of them are counted by reason."""
    max_waiting_bytes: int = 256 << 20
    """Bodies that are received or worked on, all together; beyond it new ones get 503."""
    max_workers: int = 4
    """Bodies unpacked, checked and handed on at once; the others wait, their bytes counted above."""
    body_timeout_s: float = 60.0
    """How long a body may take to arrive: 16 MiB at 2 Mbit/s."""
    ack_timeout_s: float = 10.0
    """How long the broker may take to acknowledge a body: a leader election takes a few seconds."""
    retry_after_s: int = 5
    """What a sender is told to wait when nothing can be taken."""

    def __post_init__(self) -> None:
        check_bounds(self, _BOUNDS)
        if self.max_waiting_bytes < self.max_body_bytes:
            rule = f"max_waiting_bytes must be >= max_body_bytes ({self.max_body_bytes})"
            raise ValueError(f"{rule}, got {self.max_waiting_bytes}")


_INT32 = (1 << 31) - 1
_BOUNDS = {
    **dict.fromkeys(("max_body_bytes", "max_unpacked_bytes", "max_json_bytes"), (1024, _INT32)),
    **dict.fromkeys(("max_lines", "max_runs"), (1, 10_000_000)),
    "max_message_bytes": (1024, 64 << 20),
    "max_reasons": (1, 10_000),
    "max_waiting_bytes": (1024, 1 << 40),
    "max_workers": (1, 256),
    **dict.fromkeys(("body_timeout_s", "ack_timeout_s"), (0.1, 3600.0)),
    "retry_after_s": (1, 3600),
}
