"""`/metrics` for Prometheus: what the worker says of itself, what is stored, and how the API fares.

A registry of its own, since a process-wide one would count what other libraries register. Labels are
bounded: labels of verdicts, reasons of rejection (the most frequent ones), routes by their template. Never
a run or a rank.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.metadata import version

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from service import reading
from service.errors import StoreError
from service.store_figures import notify_results, store_bytes, unsent_by_channel

from .context import Context
from .health import degradations, workers_of
from .metric_families import capped, counters, gauges
from .worker_metrics import of_workers

router = APIRouter(tags=["health"])

_METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})


class ApiMetrics:
    """The counters of one application, and the registry that shows them beside the store's."""

    def __init__(self, context: Context) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "firstfault_http_requests",
            "Answers by method, route and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "firstfault_http_request_seconds",
            "Time to the end of an answer; streams are left out.",
            ("route",),
            registry=self.registry,
        )
        self.failed_tokens = Counter(
            "firstfault_failed_tokens", "Requests with a wrong token.", registry=self.registry
        )
        self.streams = Gauge("firstfault_streams", "Event streams that are open.", registry=self.registry)
        self.registry.register(_StoreCollector(context))

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answer; status 0 is a client that left before it began."""
        known = method if method in _METHODS else "other"
        self._requests.labels(known, route, str(status)).inc()
        if route != "/v1/stream":
            self._seconds.labels(route).observe(seconds)


@router.get(
    "/metrics",
    response_class=Response,
    summary="Figures for Prometheus",
    responses={200: {"description": "Text.", "content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request) -> Response:
    """In Prometheus' text format; `firstfault_store_up` is 0 while the store cannot be read."""
    registry: CollectorRegistry = request.app.state.metrics.registry
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _StoreCollector(Collector):
    """Reads the store once for each look at the figures."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def describe(self) -> Iterator[Metric]:
        """Nothing: naming the figures must not need the store."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """The store's figures and the worker's."""
        build = GaugeMetricFamily("firstfault_build_info", "The release.", labels=["version"])
        build.add_metric([version("firstfault")], 1.0)
        yield build
        up = GaugeMetricFamily("firstfault_store_up", "Whether the store can be read.")
        try:
            found = list(self._from_store())
        except StoreError:
            up.add_metric([], 0.0)
            yield up
            return
        up.add_metric([], 1.0)
        yield up
        yield from found

    def _from_store(self) -> Iterator[Metric]:
        context = self._context
        with context.database.read() as db:
            runs, incidents = reading.label_counts(db)
            rejected = reading.rejected_counts(db)
            degraded = {one.code: 1.0 for one in degradations(db, context)}
            workers = workers_of(db, context)
            size_bytes, unsent = store_bytes(db), unsent_by_channel(db, context.clock())
            results = notify_results(db)
        yield gauges("firstfault_runs", "Runs by the label of their verdict.", ["label"], runs)
        held = "Incidents that stand, by label and certainty."
        yield gauges("firstfault_incidents", held, ["label", "certainty"], incidents)
        yield counters("firstfault_rejected", "Rejected records and values.", ["reason"], capped(rejected))
        yield gauges("firstfault_degraded", "1 for each thing that is amiss.", ["reason"], degraded)
        yield from _of_disk(context, size_bytes)
        waiting = "Messages for outside that nobody has taken yet, by channel."
        yield gauges(
            "firstfault_outbox_messages", waiting, ["channel"], {k: n for k, (n, _) in unsent.items()}
        )
        oldest = "Age of the oldest of them."
        ages = {k: max(0.0, context.clock() - since) for k, (_, since) in unsent.items()}
        yield gauges("firstfault_outbox_oldest_seconds", oldest, ["channel"], ages)
        text = "Messages that alert channels took or refused."
        yield counters("firstfault_notify", text, ["channel", "result"], results)
        yield from of_workers(workers, context.clock())


def _of_disk(context: Context, size_bytes: int) -> Iterator[Metric]:
    yield gauges("firstfault_store_bytes", "Size of the store's database.", [], {(): size_bytes})
    folder = context.database.data_dir
    if folder.exists():
        free = "Free bytes on the disk of the data folder."
        yield gauges("firstfault_disk_free_bytes", free, [], {(): shutil.disk_usage(folder).free})
