"""`/metrics` for Prometheus: what the worker says of itself, what is stored, and how the API fares.

A registry of its own, since a process-wide one would count what other libraries register. Labels are
bounded: labels of verdicts, reasons of rejection (the most frequent ones), routes by their template. Never
a run or a rank.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.metadata import version
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from service import reading
from service.errors import StoreError

from .context import Context
from .health import degradations, workers_of
from .workers import Workers

router = APIRouter(tags=["health"])

_Family = TypeVar("_Family", GaugeMetricFamily, CounterMetricFamily)

_MAX_REASONS = 50
"""Reasons of rejection with a series of their own; the rest is summed up as `other`."""
_METHODS = frozenset({"GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE"})

_WORKER_COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "firstfault_records": ("Records judged since the workers started.", ("counts", "records")),
    "firstfault_events": ("Events taken in.", ("counts", "events")),
    "firstfault_verdicts": ("Verdicts made.", ("counts", "verdicts")),
    "firstfault_late": ("Records that came after their iteration had settled.", ("late_records",)),
    "firstfault_skipped_messages": ("Messages that could not be read or were gone.", ("skipped_messages",)),
    "firstfault_published": ("Verdicts that the topic took.", ("published",)),
    "firstfault_dropped_verdicts": ("Verdicts that could not be published.", ("dropped_verdicts",)),
    "firstfault_dropped_dead_letters": (
        "Rejected lines that could not be handed on.",
        ("dropped_dead_letters",),
    ),
    "firstfault_store_failures": ("Writes that the store refused.", ("counts", "store_failures")),
    "firstfault_parts_lost": ("Times that another worker took over.", ("counts", "parts_lost")),
}
"""Sums over the workers that live: help, and where the number stands in what a worker says."""
_WORKER_GAUGES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "firstfault_lag_messages": ("Messages of the source that wait to be judged.", ("lag_messages",)),
    "firstfault_runs_held": ("Runs that the workers hold in memory.", ("runs",)),
    "firstfault_history_bytes": ("Disk that telemetry history takes.", ("history", "used_bytes")),
    "firstfault_checkpoint_bytes": ("Size of the last checkpoints.", ("checkpoint_bytes",)),
}


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
        yield _gauges("firstfault_runs", "Runs by the label of their verdict.", ["label"], runs)
        held = "Incidents that stand, by label and certainty."
        yield _gauges("firstfault_incidents", held, ["label", "certainty"], incidents)
        yield _counters("firstfault_rejected", "Rejected records and values.", ["reason"], _capped(rejected))
        yield _gauges("firstfault_degraded", "1 for each thing that is amiss.", ["reason"], degraded)
        yield from _of_workers(workers, context.clock())


def _of_workers(workers: Workers, now: float) -> Iterator[Metric]:
    """What the living workers say; what none of them says has no sample."""
    for name, (text, path) in _WORKER_COUNTERS.items():
        yield _counters(name, text, [], _sample(workers.total(*path)))
    for name, (text, path) in _WORKER_GAUGES.items():
        yield _gauges(name, text, [], _sample(workers.total(*path)))
    yield _gauges("firstfault_workers", "Workers that live.", [], {(): len(workers.living)})
    age = "Time since any worker last spoke."
    yield _gauges("firstfault_worker_age_seconds", age, [], _sample(workers.age_s))
    away_since = workers.least("unavailable_since")
    away_s = 0.0 if away_since is None else max(0.0, now - away_since)
    yield _gauges("firstfault_source_away_seconds", "Time that the source is away.", [], {(): away_s})
    spans = {at: workers.worst("verdict_seconds", at) for at in ("median", "longest")}
    spans_known = {at: span for at, span in spans.items() if span is not None}
    yield _gauges("firstfault_verdict_seconds", "Time to make a verdict.", ["of"], spans_known)


def _sample(value: float | None) -> dict[tuple[()], float]:
    return {} if value is None else {(): value}


def _capped(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent reasons, and the sum of all others."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    kept = dict(ordered[:_MAX_REASONS])
    rest = sum(count for _, count in ordered[_MAX_REASONS:])
    return kept | {"other": kept.get("other", 0) + rest} if rest else kept


def _gauges(name: str, text: str, labels: list[str], samples: Mapping[Any, float]) -> GaugeMetricFamily:
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def _counters(name: str, text: str, labels: list[str], samples: Mapping[Any, float]) -> CounterMetricFamily:
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def _filled(family: _Family, samples: Mapping[Any, float]) -> _Family:
    for label, value in samples.items():
        family.add_metric(
            [str(part) for part in (label if isinstance(label, tuple) else (label,))], float(value)
        )
    return family
