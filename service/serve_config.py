"""Settings of `firstfault serve`; free of web libraries, so that every command can read them."""

from __future__ import annotations

from dataclasses import dataclass

from ingest.bounds import check_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """Where the service listens, and how its worker is kept alive."""

    host: str = "127.0.0.1"
    """Address to listen on. Any but loopback needs tokens (`firstfault token create`)."""
    port: int = 8000
    """Port to listen on; 0 takes a free one."""
    restart_after_s: float = 0.5
    """Pause before a worker that ended is started again; it doubles each time, with jitter."""
    restart_max_s: float = 30.0
    """Longest such pause: a fault that passes is over within half a minute of it."""
    steady_after_s: float = 60.0
    """A worker that lived so long was well: the pauses begin anew."""
    crash_loop_after: int = 3
    """Early deaths in a row that `/readyz` calls a crash loop: one or two may be chance."""
    worker_stop_s: float = 3.5
    """How long the worker may take to save when the service stops: all is over within 5 s."""

    def __post_init__(self) -> None:
        if not self.host or self.host != self.host.strip():
            raise ValueError(f"host must be a name or an address, got {self.host!r}")
        check_bounds(self, _BOUNDS)


_BOUNDS = {
    "port": (0, 65_535),
    "restart_after_s": (0.01, 3600.0),
    "restart_max_s": (0.01, 86_400.0),
    "steady_after_s": (0.0, 86_400.0),
    "crash_loop_after": (1, 1000),
    "worker_stop_s": (0.1, 600.0),
}
