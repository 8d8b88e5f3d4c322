"""A recording cut down to what a tier of telemetry shows: metrics are dropped, or ranks averaged.

The curve of a job is the mean of its ranks, as trainers log it: one NaN makes it NaN. A line that is not a
record of a rank (an event) says as much in every tier, but where there is one curve nobody names a layout.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from firstfault.drill.rig.tiers import has

from .case import Tier

OF_CURVE = frozenset({"loss", "grad_norm", "lr", "loss_scale", "skipped"})
_PLACE = frozenset({"run", "attempt", "rank", "iteration", "microbatch", "time", "v"})
_PLACE_OF_CURVE = ("run", "attempt", "iteration", "time")
_SAID_OF_RANKS = frozenset({"run_start", "membership", "heartbeat", "hardware"})
"""Events that name ranks or their layout."""
NUMBERS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def cut(lines: Sequence[bytes], tier: Tier) -> list[bytes]:
    """What a job that reports no more than ``tier`` would have logged."""
    if tier is Tier.CANARY:
        return list(lines)
    if tier is Tier.CURVE:
        return list(_averaged(lines))
    return list(_without(lines, tier))


def _without(lines: Iterable[bytes], tier: Tier) -> Iterator[bytes]:
    for line in lines:
        record = json.loads(line)
        if "event" in record:
            yield line
            continue
        kept = {name: value for name, value in record.items() if name in _PLACE or _reports(tier, name)}
        yield json.dumps(kept).encode()


@lru_cache(maxsize=1024)
def _reports(tier: Tier, metric: str) -> bool:
    """Whether jobs of this tier report ``metric``, by the rule that the truth of the rig goes by."""
    return has(tier, metric)


def _averaged(lines: Iterable[bytes]) -> Iterator[bytes]:
    """One record without a rank for each iteration of each attempt, in the order in which they began."""
    place: tuple[Any, Any] | None = None
    group: list[dict[str, Any]] = []
    for line in lines:
        record = json.loads(line)
        if record.get("event") in _SAID_OF_RANKS:
            continue
        here = (record.get("attempt", 0), record["iteration"]) if "event" not in record else None
        if group and here != place:
            yield _mean(group)
            group = []
        if here is None:
            yield line
        else:
            place, group = here, [*group, record]
    if group:
        yield _mean(group)


def _mean(group: Sequence[dict[str, Any]]) -> bytes:
    """The records of all ranks at one iteration as one."""
    first = group[0]
    mean: dict[str, Any] = {name: first[name] for name in _PLACE_OF_CURVE if name in first}
    for metric in sorted(OF_CURVE):
        values = [
            float(NUMBERS.get(one[metric], one[metric])) for one in group if one.get(metric) is not None
        ]
        if values:
            mean[metric] = plain_number(sum(values) / len(values))
    return json.dumps(mean).encode()


def plain_number(value: float) -> float | str:
    """A float as JSON can hold it.

    >>> plain_number(math.inf), plain_number(1.5)
    ('Infinity', 1.5)
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def curve_columns(lines: Sequence[bytes]) -> dict[str, list[float]]:
    """The averaged curve as columns, for those who read nothing else; NaN where nothing was reported."""
    columns: dict[str, list[float]] = {"iteration": [], "loss": [], "grad_norm": [], "lr": []}
    for line in lines:
        record = json.loads(line)
        if "event" in record:
            continue
        for name, values in columns.items():
            value = record.get(name, math.nan)
            values.append(float(NUMBERS.get(value, value)))
    return columns
