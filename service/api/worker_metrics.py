"""What the living workers say of themselves, as figures for Prometheus.

Workers have no port of their own: each writes a row of the store about once a second, and these are the
sums, or the worst, over the rows. A counter begins anew when its worker does, which `rate()` allows for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import HistogramMetricFamily, Metric

from .metric_families import capped, counters, gauges, sample
from .workers import Workers

_WORKER_COUNTERS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "firstfault_records": ("Records judged since the workers started.", ("counts", "records")),
    "firstfault_events": ("Events taken in.", ("counts", "events")),
    "firstfault_verdicts": ("Verdicts made.", ("counts", "verdicts")),
    "firstfault_late": ("Records that came after their iteration had settled.", ("late_records",)),
    "firstfault_skipped_messages": ("Messages that could not be read or were gone.", ("skipped_messages",)),
    "firstfault_published": ("Verdicts that the topic took.", ("published",)),
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
_DROPPED: Mapping[str, tuple[str, ...]] = {
    "verdict": ("dropped_verdicts",),
    "dead_letter": ("dropped_dead_letters",),
    "message": ("skipped_messages",),
    "history_iteration": ("history", "dropped_iterations"),
    "incident_window": ("history", "unfrozen_windows"),
}
"""What was lost, by what it was: not published, not handed on, not readable, not kept."""


def of_workers(workers: Workers, now: float) -> Iterator[Metric]:
    """What the living workers say; what none of them says has no sample."""
    for name, (text, path) in _WORKER_COUNTERS.items():
        yield counters(name, text, [], sample(workers.total(*path)))
    for name, (text, path) in _WORKER_GAUGES.items():
        yield gauges(name, text, [], sample(workers.total(*path)))
    yield gauges("firstfault_workers", "Workers that live.", [], {(): len(workers.living)})
    age = "Time since any worker last spoke."
    yield gauges("firstfault_worker_age_seconds", age, [], sample(workers.age_s))
    away_since = workers.least("unavailable_since")
    away_s = 0.0 if away_since is None else max(0.0, now - away_since)
    yield gauges("firstfault_source_away_seconds", "Time that the source is away.", [], {(): away_s})
    spans = {at: workers.worst("verdict_seconds", at) for at in ("median", "longest")}
    spans_known = {at: span for at, span in spans.items() if span is not None}
    yield gauges("firstfault_verdict_seconds", "Time to make a verdict.", ["of"], spans_known)
    yield from _ages(workers, now)
    yield from _by_label(workers)
    yield _detection(workers)


def _ages(workers: Workers, now: float) -> Iterator[Metric]:
    polled_at, newest_at = workers.least("polled_at"), workers.worst("newest_record_at")
    text = "Time since the source last answered the worker that it keeps waiting longest."
    polled_s = None if polled_at is None else max(0.0, now - polled_at)
    yield gauges("firstfault_poll_age_seconds", text, [], sample(polled_s))
    text = "Age of the newest record that was judged, by the clocks of the trainers."
    behind_s = None if newest_at is None else now - newest_at
    yield gauges("firstfault_watermark_age_seconds", text, [], sample(behind_s))


def _by_label(workers: Workers) -> Iterator[Metric]:
    lags: Counter[str] = Counter()
    for body in workers.living.values():
        found = body.get("lag_by_part")
        for part, lag in found.items() if isinstance(found, dict) else ():
            if isinstance(lag, int | float):
                lags[str(part)] += round(lag)
    text = "Messages that wait, by part of the source; those with most of them."
    yield gauges("firstfault_partition_lag_messages", text, ["part"], capped(lags))
    lost = {reason: workers.total(*path) for reason, path in _DROPPED.items()}
    known = {reason: count for reason, count in lost.items() if count is not None}
    yield counters("firstfault_dropped", "What was lost, by what it was.", ["reason"], known)


def _detection(workers: Workers) -> HistogramMetricFamily:
    """From the first record that a verdict newly counts reaching the worker to that verdict in the store."""
    text = "Time from the arrival of a record at the worker to the stored verdict that counts it."
    family = HistogramMetricFamily("firstfault_detect_seconds", text)
    bodies = [one for body in workers.living.values() if isinstance(one := body.get("detection"), dict)]
    by_bounds = Counter(tuple(one["bounds_s"]) for one in bodies)
    if by_bounds:
        # workers of another release may have other buckets: those of most workers are shown
        bounds = by_bounds.most_common(1)[0][0]
        same = [one for one in bodies if tuple(one["bounds_s"]) == bounds]
        counts = [sum(column) for column in zip(*(one["counts"] for one in same), strict=True)]
        names = [*map(str, bounds), "+Inf"]
        buckets = [(name, sum(counts[: at + 1])) for at, name in enumerate(names)]
        family.add_metric([], buckets, math.fsum(one["sum_s"] for one in same))
    return family
