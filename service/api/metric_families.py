"""Families of samples out of numbers by label, with bounded labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

_Family = TypeVar("_Family", GaugeMetricFamily, CounterMetricFamily)

MAX_LABELS = 50
"""Values of a label, such as reasons of rejection, with a series of their own; the rest is `other`."""


def capped(counts: Mapping[str, float]) -> dict[str, float]:
    """The greatest, and the sum of all others.

    >>> capped({"a": 2.0, "b": 1.0})
    {'a': 2.0, 'b': 1.0}
    """
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    kept = dict(ordered[:MAX_LABELS])
    rest = sum(count for _, count in ordered[MAX_LABELS:])
    return kept | {"other": kept.get("other", 0) + rest} if rest else kept


def gauges(name: str, text: str, labels: list[str], samples: Mapping[Any, float]) -> GaugeMetricFamily:
    """A family of gauges; the keys of ``samples`` are one label or a tuple of them."""
    return _filled(GaugeMetricFamily(name, text, labels=labels), samples)


def counters(name: str, text: str, labels: list[str], samples: Mapping[Any, float]) -> CounterMetricFamily:
    """A family of counters."""
    return _filled(CounterMetricFamily(name, text, labels=labels), samples)


def sample(value: float | None) -> dict[tuple[()], float]:
    """The one sample of a family without labels; none of what nobody has said."""
    return {} if value is None else {(): value}


def _filled(family: _Family, samples: Mapping[Any, float]) -> _Family:
    for label, value in samples.items():
        family.add_metric(
            [str(part) for part in (label if isinstance(label, tuple) else (label,))], float(value)
        )
    return family
