"""What telemetry history keeps and how much disk it may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryConfig:
    """Curves for the whole run, values of every rank for the latest iterations; no verdict depends on it."""

    budget_bytes: int = 2 << 30
    """Disk that all of it may take, 2 GiB: a million iterations of ten metrics take about half of that.
    What goes first when it is full: values of single ranks, then fine curves of the runs silent longest."""
    keep_free_bytes: int = 256 << 20
    """History stops writing while less than this is free on its disk: the store of incidents, which
    usually lies beside it, must never be the one that finds the disk full."""
    recorder_iterations: int = 1024
    """Latest iterations of each attempt of which the values of every rank are kept: eight times what the
    slowest confirmation of a fault looks back (128 points)."""
    recorder_bytes: int = 64 << 20
    """Older values of single ranks are kept too while those of an attempt take less than this: a job of 8
    ranks then keeps some 100 000 iterations, so that a worker that catches up still freezes the onset."""
    window_bytes: int = 64 << 20
    """Largest frozen window of one incident; a wider one is cut to the iterations nearest to where the
    fault was seen. 70 iterations of ten metrics of 10 000 ranks."""
    window_margin_iterations: int = 128
    """Iterations frozen before and after an incident's interval: enough to see what was normal."""
    flush_every_s: float = 5.0
    """Longest wait until a reader can see what settled; each flush costs two small files a live run."""
    pending_bytes: int = 64 << 20
    """Settled values held in memory for all runs; more are written at once."""

    def __post_init__(self) -> None:
        for name, least in (
            ("budget_bytes", 1 << 20),
            ("keep_free_bytes", 0),
            ("recorder_iterations", 1),
            ("recorder_bytes", 0),
            ("window_bytes", 1 << 16),
            ("window_margin_iterations", 0),
            ("pending_bytes", 1 << 16),
        ):
            if not least <= getattr(self, name) <= 1 << 50:
                raise ValueError(f"{name} must be from {least} to {1 << 50}, got {getattr(self, name)}")
        if not 0.0 <= self.flush_every_s <= 3600.0:
            raise ValueError(f"flush_every_s must be from 0 to 3600, got {self.flush_every_s}")
