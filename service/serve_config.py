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
    tls_cert: str = ""
    """File with the certificate and what it is signed with (PEM): with it the service speaks TLS alone."""
    tls_key: str = ""
    """File with the key of the certificate, where it is not in the same file."""
    trusted_proxies: tuple[str, ...] = ("127.0.0.1", "::1")
    """Addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed. A proxy of this
    machine is: else whoever comes through it would be taken for this machine."""
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
        if self.tls_key and not self.tls_cert:
            raise ValueError("tls_key needs tls_cert: a key without its certificate proves nothing")
        if self.trusted_proxies:
            import ipaddress  # most services have none
        for address in self.trusted_proxies:
            try:
                ipaddress.ip_network(address)
            except ValueError as error:
                raise ValueError(f"trusted_proxies must be addresses or networks: {error}") from error
        check_bounds(self, _BOUNDS)


_BOUNDS = {
    "port": (0, 65_535),
    "restart_after_s": (0.01, 3600.0),
    "restart_max_s": (0.01, 86_400.0),
    "steady_after_s": (0.0, 86_400.0),
    "crash_loop_after": (1, 1000),
    "worker_stop_s": (0.1, 600.0),
}
