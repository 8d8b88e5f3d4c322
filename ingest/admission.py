"""Which records of an attempt may enter alignment: in time, in bounds, of a rank and metric within limits.

Axes: N records.

Each decision depends on the records before and not on how they are batched (law 4); what is refused
is counted under its rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from firstfault.telemetry import Kind, contract_of

from .blocks import Flags, Ints, Ranks, RecordBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignmentConfig:
    """How long to wait for whom, and what one run may take up."""

    lateness_iterations: int = 64
    """Iterations that a record may come late. Partitions of one topic drift apart by about one fetch
    (65 iterations were seen after a seek); more costs memory and waiting, less loses records."""
    max_ranks: int = 1 << 17
    """Distinct ranks of a run, 131072: above the largest jobs, and 65 pending iterations of five
    metrics of them still fit in half a gigabyte."""
    max_metrics: int = 4096
    """Distinct names of metrics without a contract in an attempt; beyond, new names are rejected (a name
    with a number in it would otherwise make one for every iteration). Twice the layers of a large model.
    Metrics with a contract are always let in."""
    max_metric_ranks: int = 1 << 22
    """Names of metrics without a contract times ranks, 4 M: with 65 pending iterations of nine bytes a
    value that is 2.5 GB. A job of 10 000 ranks may report 400 such metrics a rank."""
    max_attempts: int = 1024
    """Distinct attempts of a run."""
    max_iteration_jump: int = 10**9
    """Greatest step ahead of the furthest iteration. One corrupt counter would otherwise make every
    later record late. Token counters advance by millions a step, so the bound is far above those."""
    max_pending_events: int = 100_000
    """Events of an attempt waiting to settle."""

    def __post_init__(self) -> None:
        for name in (
            "lateness_iterations",
            "max_ranks",
            "max_metrics",
            "max_metric_ranks",
            "max_attempts",
            "max_iteration_jump",
            "max_pending_events",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"alignment.{name} must be >= 1, got {getattr(self, name)}")


class Admission:
    """Counts what it refuses; ``first`` and ``furthest`` bound the iterations let in so far."""

    def __init__(self, config: AlignmentConfig) -> None:
        self.config = config
        self.first: int | None = None
        self.furthest: int | None = None
        self.metrics: set[str] = set()
        """Names without a contract that were let in."""
        self.rejected: Counter[str] = Counter()
        self.late = 0

    @property
    def settled_before(self) -> int:
        """Iterations below this are settled; what arrives for them is late."""
        if self.furthest is None:
            return -1
        return self.furthest - self.config.lateness_iterations

    def rows_in_time(self, batch: RecordBatch, rows: Ints, known_R: Ranks) -> Ints:
        """The rows that are neither late, nor an impossible jump, nor of one rank too many."""
        iteration_N = batch.iteration_N[rows]
        if not len(rows):
            return rows
        if self.first is None or self.furthest is None:
            self.first = self.furthest = int(iteration_N[0])
        if int(iteration_N.max()) - self.furthest > self.config.max_iteration_jump:
            rows = rows[self._without_jumps(iteration_N)]
            iteration_N = batch.iteration_N[rows]
        reached_N = np.maximum.accumulate(np.append(self.furthest, iteration_N))
        in_time_N = iteration_N >= reached_N[:-1] - self.config.lateness_iterations
        self.furthest = int(reached_N[-1])
        if not in_time_N.all():
            self.late += int(np.count_nonzero(~in_time_N))
            rows = rows[in_time_N]
        return self._within_ranks(batch, rows, known_R)

    def admits_metric(self, name: str, present_N: Flags, ranks: int) -> bool:
        """Whether a metric of some records is let in: reported at all, and not one name too many."""
        if not present_N.any():
            return False
        if name not in self.metrics and contract_of(name).kind is Kind.SUPPORTING:
            limit = min(self.config.max_metrics, max(1, self.config.max_metric_ranks // max(1, ranks)))
            if len(self.metrics) >= limit:
                self.reject(f"metric: at most {limit} names a run", int(np.count_nonzero(present_N)))
                return False
            self.metrics.add(name)
        return True

    def reject(self, rule: str, count: int = 1) -> None:
        """Count ``count`` refusals under ``rule``."""
        if count:
            self.rejected[rule] += count

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        return {
            "first": self.first,
            "furthest": self.furthest,
            "metrics": sorted(self.metrics),
            "rejected": dict(self.rejected),
            "late": self.late,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        self.first, self.furthest = state["first"], state["furthest"]
        self.metrics, self.rejected = set(state["metrics"]), Counter(state["rejected"])
        self.late = state["late"]

    def _without_jumps(self, iteration_N: Ints) -> Flags:
        reached = self.furthest or 0
        kept = []
        for iteration in iteration_N.tolist():
            kept.append(iteration - reached <= self.config.max_iteration_jump)
            if kept[-1]:
                reached = max(reached, iteration)
        self.reject(
            f"iteration: must be within {self.config.max_iteration_jump} of the last", kept.count(False)
        )
        return np.array(kept, np.bool_)

    def _within_ranks(self, batch: RecordBatch, rows: Ints, known: Ranks) -> Ints:
        limit = self.config.max_ranks
        if not len(rows):
            return rows
        greatest = max(int(batch.rank_N[rows].max()), int(known[-1]) if len(known) else 0)
        if len(known) + len(rows) <= limit or greatest + 2 <= limit:  # + 2: ranks from -1 (unnamed) on
            return rows
        new = np.setdiff1d(batch.rank_N[rows], known)
        if len(known) + len(new) <= limit:
            return rows
        _, first_at = np.unique(batch.rank_N[rows], return_index=True)
        arrival = batch.rank_N[rows][np.sort(first_at)]
        admitted = arrival[~np.isin(arrival, known)][: max(0, limit - len(known))]
        kept_N = np.isin(batch.rank_N[rows], known) | np.isin(batch.rank_N[rows], admitted)
        self.reject(f"rank: at most {limit} ranks a run", int(np.count_nonzero(~kept_N)))
        return rows[kept_N]
