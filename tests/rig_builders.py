"""A small job of the rig, its faults, and what they change against the run without them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from firstfault.drill.rig import (
    Fault,
    Job,
    Kind,
    Layout,
    ModelSize,
    Restart,
    RigTraining,
    Site,
    Watch,
    data_parallel,
)
from firstfault.drill.rig.catalogue import CATALOGUE, usual
from firstfault.telemetry import Record, Value

STRUCK = 1
"""The rank that faults of one rank strike."""
STRIKE = 4
"""The iteration in which they strike; the job of `small_job` restarts before it, from iteration 3."""
RANKS = 3
DOUBLING_BIT = 23
"""The lowest bit of the exponent of a float32: a factor of two either way."""


def small_job(
    *, ranks: int = RANKS, iterations: int = 6, layout: Layout | None = None, **training: Any
) -> Job:
    """A job of a few iterations that looks at everything in each of them."""
    return Job(
        seed=3,
        layout=layout or data_parallel(ranks),
        iterations=iterations,
        model=ModelSize(layers=1),
        training=RigTraining(**{"warmup_iterations": 2, **training}),
        watch=Watch(optim_checksum=1, canary=1, recompute=1, checkpoint=3),
    )


def job_for(site: Site) -> Job:
    """A small job that has what a site names."""
    if site is Site.LOSS_SCALE:
        # unclipped: clipping would take off again what a wrong scale multiplies
        return small_job(precision="fp16", initial_scale=1024.0, clip_norm=None)
    if site is Site.CHECKPOINT:
        return small_job(restarts=(Restart(iteration=STRIKE),))
    return small_job()


def sure_fault(kind: Kind, site: Site) -> Fault:
    """A fault of a kind that acts in each of its passes and is large enough to be seen in each."""
    fault = replace(usual(kind, STRIKE, rank=STRUCK, site=site), rate=1.0)
    return replace(fault, bit=DOUBLING_BIT) if CATALOGUE[kind].has_bit else fault


@dataclass(frozen=True, slots=True)
class Effect:
    """In which metrics a faulty run differs from its golden twin when it first does."""

    at: tuple[int, int] | None
    """(attempt, iteration); None if it never does."""
    ranks: Mapping[str, Sequence[int]]
    """The ranks that differ then, by metric."""


@cache
def effects(site: Site) -> Mapping[Kind, Effect]:
    """The first effect of every kind that acts at a site of a data parallel job."""
    from firstfault.drill.rig.engine import fork

    job = job_for(site)
    kinds = [kind for kind, entry in CATALOGUE.items() if site in entry.sites and fits(job, kind)]
    golden, *branches = fork(job, [sure_fault(kind, site) for kind in kinds])
    clean = by_place(golden.said)
    return {
        kind: _first_difference(clean, by_place(branch.said))
        for kind, branch in zip(kinds, branches, strict=True)
    }


def fits(job: Job, kind: Kind) -> bool:
    """Whether a kind can be in a job of this layout."""
    return job.layout.name in CATALOGUE[kind].layouts


def by_place(said: Sequence[object]) -> dict[tuple[int, int, int], Mapping[str, Value]]:
    """The metrics of each (attempt, iteration, rank)."""
    records = [thing for thing in said if isinstance(thing, Record)]
    return {(one.attempt, one.iteration, one.rank): one.metrics for one in records}


def _first_difference(
    clean: Mapping[tuple[int, int, int], Mapping[str, Value]],
    faulty: Mapping[tuple[int, int, int], Mapping[str, Value]],
) -> Effect:
    ranks: dict[str, list[int]] = {}
    at: tuple[int, int] | None = None
    for (attempt, iteration, rank), metrics in sorted(faulty.items()):
        if at is not None and (attempt, iteration) != at:
            break
        for name, value in metrics.items():
            if not _is_same(clean[attempt, iteration, rank][name], value):
                at = (attempt, iteration)
                ranks.setdefault(name, []).append(rank)
    return Effect(at, ranks)


def _is_same(one: Value, other: Value) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
