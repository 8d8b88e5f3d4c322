"""Settings of the HTTP API; free of web libraries, so that every command can read them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """How much a client may ask for, and when what is stored counts as stale."""

    host_names: tuple[str, ...] = ()
    """Names, beside those of the loopback address, that a request may be addressed to while no token
    exists: any page in a browser can reach loopback, and a rebound name of its own gives it away."""
    max_streams: int = 1000
    """Event streams open at once; each costs a socket and one small read of the store per change."""
    heartbeat_s: float = 15.0
    """Silence of a stream after which a comment is sent: proxies cut idle connections at 30 to 60 s."""
    change_poll_s: float = 0.25
    """How often the store is asked for new events, once for all streams together."""
    send_timeout_s: float = 10.0
    """How long a client of a stream may not read before its place is given to others."""
    max_body_bytes: int = 65_536
    """Greatest body of a request other than telemetry: a state and a note."""
    max_page_items: int = 500
    """Greatest `limit` of a list: some megabytes at 10 kB an incident."""
    max_curve_points: int = 20_000
    """Greatest `points` of a curve: a chart is a few thousand pixels wide."""
    max_matrix_cells: int = 1_000_000
    """Iterations times ranks of one answer: 10 MB of JSON."""
    max_heatmap_cells: int = 20_000
    """Rows times columns of one heat map: 0.7 MB of JSON, and more than a screen tells apart."""
    failed_tokens_per_minute: int = 30
    """Wrong tokens from one address before it is told to wait; right ones are never held up."""
    requests_per_second: float = 100.0
    """Requests of one token, or without one of one address, in the long run: a page that is looked at asks
    a few a second, and a core answers some thousand."""
    request_burst: int = 2000
    """Requests that may come at once before that rate holds: a script that reads many incidents, or a
    thousand open pages that come back after a restart."""
    telemetry_per_second: float = 2000.0
    """The same for telemetry, of which twice as many may come at once: every rank of a job may send with
    one token, each about one body a second."""
    logs_requests: bool = False
    """Whether every answer is a line in the log: route, status, time, address and token, never a query. A
    page that is looked at makes a few a second."""
    worker_silent_after_s: float = 15.0
    """Age of the worker's last sign of life that counts as dead; it writes one every second."""
    behind_after_messages: int = 100_000
    """Messages waiting at the source that count as behind: seconds of work, not the jitter of polls."""

    def __post_init__(self) -> None:
        for name in self.host_names:
            if not _HOST_NAME.fullmatch(name):
                raise ValueError(f"host_names must be lower-case names without a port, got {name!r}")
        for key, least, most in _BOUNDS:
            value = getattr(self, key)
            if not least <= value <= most:
                raise ValueError(f"{key} must be from {least} to {most}, got {value}")


_BOUNDS: tuple[tuple[str, float, float], ...] = (
    ("max_streams", 1, 100_000),
    ("heartbeat_s", 0.05, 3600.0),
    ("change_poll_s", 0.01, 60.0),
    ("send_timeout_s", 0.1, 600.0),
    ("max_body_bytes", 1024, 2**30),
    ("max_page_items", 1, 10_000),
    ("max_curve_points", 16, 1_000_000),
    ("max_matrix_cells", 1, 100_000_000),
    ("max_heatmap_cells", 1, 1_000_000),
    ("failed_tokens_per_minute", 1, 1_000_000),
    ("requests_per_second", 0.1, 1_000_000),
    ("request_burst", 1, 1_000_000),
    ("telemetry_per_second", 0.1, 1_000_000),
    ("worker_silent_after_s", 2.0, 86_400.0),
    ("behind_after_messages", 1, 2**62),
)
