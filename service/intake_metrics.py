"""What came in over HTTP, as figures for Prometheus."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from ingest.errors import IngestError

from .intake import IntakeCounts


class IntakeCollector(Collector):
    """Reads the counts at each look; labels are few: statuses, and reasons up to a limit."""

    def __init__(self, counts: IntakeCounts, fill: Callable[[], tuple[int, int]] | None = None) -> None:
        """``fill`` tells the bytes that the spool holds and may hold, where there is one."""
        self._counts, self._fill = counts, fill

    def describe(self) -> Iterator[Metric]:
        """Nothing: the names are those of `collect`."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All counts since the start of this process."""
        counts = self._counts
        bodies = {str(status): count for status, count in counts.bodies.items()}
        yield _counter("firstfault_intake_bodies", "Bodies by the status of their answer.", "status", bodies)
        accepted = "Records and events accepted over HTTP, and durable."
        yield _counter("firstfault_intake_accepted", accepted, "", {"": counts.accepted})
        told = "Lines and values rejected over HTTP, also those of refused bodies."
        yield _counter("firstfault_intake_rejected", told, "reason", counts.rejected)
        size = "Bytes of bodies as they were sent."
        yield _counter("firstfault_intake_body_bytes", size, "", {"": counts.body_bytes})
        held, most = self._spool()
        yield GaugeMetricFamily("firstfault_spool_bytes", "Bodies that the spool holds.", value=held)
        yield GaugeMetricFamily("firstfault_spool_max_bytes", "What it may hold.", value=most)

    def _spool(self) -> tuple[float | None, float | None]:
        """What the spool holds and may hold; None where there is none, or it cannot be read just now."""
        if self._fill is None:
            return None, None
        with contextlib.suppress(IngestError):
            return self._fill()
        return None, None


def _counter(name: str, text: str, label: str, samples: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label] if label else [])
    for value, count in list(samples.items()):
        family.add_metric([value] if label else [], count)
    return family
