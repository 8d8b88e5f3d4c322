"""What the probes of the ranks say they lost: telemetry with holes is not a healthy run, but a run half seen.

Axes: T positions, R ranks.

A probe counts upwards for as long as its process lives, so the greatest count of a rank is all it lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ingest.blocks import IterationBlock

DROPPED, ERRORS = "probe_dropped", "probe_errors"
"""The metrics in which `firstfault.Probe` tells of lost records and of failures inside it."""


class ProbeLosses:
    """The greatest count of each metric and rank; bounded by the ranks that lost something."""

    def __init__(self) -> None:
        self.by_metric: dict[str, dict[int, int]] = {DROPPED: {}, ERRORS: {}}

    def update(self, block: IterationBlock) -> None:
        """Take the next settled positions."""
        for metric, most in self.by_metric.items():
            numbers = block.numbers.get(metric)
            if numbers is None:
                continue
            usable_TR = numbers.present_TR & np.isfinite(numbers.values_TR)
            count_R = np.where(usable_TR, numbers.values_TR, 0.0).max(axis=0)
            for at in np.flatnonzero(count_R >= 1).tolist():
                rank = int(block.ranks_R[at])
                most[rank] = max(most.get(rank, 0), int(count_R[at]))

    def notes(self) -> tuple[str, ...]:
        """In words, for the coverage of a verdict."""
        return tuple(self._notes())

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        return {metric: sorted(map(list, most.items())) for metric, most in self.by_metric.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        for metric, pairs in state.items():
            self.by_metric[metric] = dict(pairs)

    def _notes(self) -> Iterator[str]:
        dropped, errors = self.by_metric[DROPPED], self.by_metric[ERRORS]
        if dropped:
            yield f"the probe dropped {_told(dropped, 'record')}: what they said is missing here"
        if errors:
            yield f"the probe failed to measure or send {_told(errors, 'value')}"


def _told(counts: Mapping[int, int], what: str) -> str:
    """So many of one rank, or of several, the one with most of them named."""
    total = sum(counts.values())
    plural = what if total == 1 else f"{what}s"
    if len(counts) == 1:
        return f"{total} {plural} of rank {next(iter(counts))}"
    worst = min(counts, key=lambda rank: (-counts[rank], rank))
    return f"{total} {plural} of {len(counts)} ranks, {counts[worst]} of them of rank {worst}"
