"""What came in over HTTP, as figures for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from .intake import IntakeCounts


class IntakeCollector(Collector):
    """Reads the counts at each look; labels are few: statuses, and reasons up to a limit."""

    def __init__(self, counts: IntakeCounts) -> None:
        self._counts = counts

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


def _counter(name: str, text: str, label: str, samples: Mapping[str, int]) -> CounterMetricFamily:
    family = CounterMetricFamily(name, text, labels=[label] if label else [])
    for value, count in list(samples.items()):
        family.add_metric([value] if label else [], count)
    return family
