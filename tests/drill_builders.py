"""A short drill in one call, and what its records say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from firstfault.drill.plans import DrillConfig, Plan, plan
from firstfault.drill.training import Cadence
from firstfault.telemetry import Event, EventKind, Record


@dataclass(frozen=True, slots=True)
class Told:
    """What a job said."""

    plan: Plan
    records: Sequence[Record]
    events: Sequence[Event]

    def of(self, iteration: int, metric: str, attempt: int = 0) -> list[Any]:
        """The metric of every rank at one iteration, in rank order."""
        return [
            record.metrics[metric]
            for record in self.records
            if (record.attempt, record.iteration) == (attempt, iteration)
        ]

    def ranks_where(self, iteration: int, is_bad: Callable[[Record], bool]) -> list[int]:
        """The ranks whose record of one iteration fulfils a condition."""
        return [record.rank for record in self.records if record.iteration == iteration and is_bad(record)]

    def kinds(self) -> list[EventKind]:
        """The kinds of the events, in order."""
        return [event.kind for event in self.events]


def short_plan(scenario: str, *, ranks: int = 3, iterations: int = 22, canary: int = 8) -> Plan:
    """A plan that looks at the state in every iteration, and at the dear canary every ``canary``."""
    planned = plan(DrillConfig(scenario=scenario, ranks=ranks, iterations=iterations))
    cadence = Cadence(param_checksum=1, optim_checksum=1, canary=canary, checkpoint=8)
    return replace(planned, scenario=replace(planned.scenario, cadence=cadence))


@cache
def told(planned: Plan) -> Told:
    """Run the job of a plan in this process."""
    from firstfault.drill.cluster import VirtualCluster
    from firstfault.drill.job import run_job

    said = list(run_job(planned, VirtualCluster(planned.ranks)))
    records = [thing for thing in said if isinstance(thing, Record)]
    return Told(planned, records, [thing for thing in said if isinstance(thing, Event)])


def odd_ones(values: Sequence[object]) -> list[int]:
    """The places whose value is not that of the majority."""
    return [at for at, value in enumerate(values) if values.count(value) * 2 <= len(values)]
