"""Settings of the probe; the standard library alone, as everything a training job imports."""

from __future__ import annotations

from dataclasses import dataclass, field

from .emitters.config import EmitterConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeConfig:
    """What the probe sends by itself, and how."""

    heartbeat_s: float = 10.0
    """How often a rank says where it is: six times in the minute after which a standstill is suspected."""
    last_words: bool = True
    """Whether an exception that ends the process is told: its type, iteration and phase."""
    on_sigterm: bool = True
    """Whether a SIGTERM that nobody else handles first lets out what waits, within a second."""
    emitter: EmitterConfig = field(default_factory=EmitterConfig)
    """How telemetry leaves the process."""

    def __post_init__(self) -> None:
        if not 0.05 <= self.heartbeat_s <= 3600:
            raise ValueError(f"heartbeat_s must be from 0.05 to 3600, got {self.heartbeat_s!r}")
