"""Every kind of fault: where it can act, how hard it usually is, and what may be named as its cause.

Standard library only. `usual` makes a fault of a kind with its usual values, `draw` one at random, and
`check` says whether a fault fits a job.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from ..plans import DrillError
from .entries import ENTRIES, STATE_SITES, Entry
from .layout_entries import LAYOUT_ENTRIES
from .layouts import MESSAGES, has_site, next_at, ranks_at
from .spec import BITS, Fault, Job, Kind, Site, places

CATALOGUE: Mapping[Kind, Entry] = {**ENTRIES, **LAYOUT_ENTRIES}
"""What is known of each kind, in whatever layout it is."""
_AT_REST_WEIGHT = 0.2
"""Share of the draws that memory at rest gets beside computed values: under ECC its flips are rare."""
_STAGES = {
    Site.REDUCE_IN: "reduce",
    Site.REDUCE_ALL: "reduce",
    Site.REDUCE_OUT: "reduce",
    Site.PARAMETER: "after_reduce",
    Site.FIRST_MOMENT: "after_reduce",
    Site.SECOND_MOMENT: "after_reduce",
    Site.SCHEDULE: "after_reduce",
    Site.LOSS_SCALE: "after_reduce",
    Site.GATHER: "after_reduce",
    Site.CHECKPOINT: "after_reduce",
}
"""The part of an iteration that a verdict's cause names; every other site lies before the reduction."""


def usual(
    kind: Kind, iteration: int, *, rank: int | None = 0, site: Site | None = None, seed: int = 0
) -> Fault:
    """A fault of a kind with its usual values: the middle of each range.

    >>> usual(Kind.LR_JUMP, 50).magnitude
    54.772255750516614
    """
    entry = CATALOGUE[kind]
    return Fault(
        kind=kind,
        site=site or entry.sites[0],
        iteration=0 if entry.from_start else iteration,
        rank=rank if _is_of_one_rank(entry, site or entry.sites[0]) else None,
        lasts=entry.lasts,
        rate=_middle(entry.rates),
        magnitude=_middle(entry.magnitudes),
        count=round(_middle(entry.counts)),
        seed=seed,
    )


def draw(job: Job, rng: random.Random, kind: Kind | None = None) -> Fault:
    """A fault at random: kind, site, iteration, rank, bit and size.

    It strikes between a quarter and three quarters of the run, where its kind leaves the choice.
    """
    known = [one for one, entry in CATALOGUE.items() if _fits(entry, job)]
    chosen = rng.choices(known, [CATALOGUE[one].weight for one in known])[0] if kind is None else kind
    entry = CATALOGUE[chosen]
    sites = [site for site in entry.sites if _has_site(job, site)]
    site = rng.choices(sites, [_AT_REST_WEIGHT if one in STATE_SITES else 1.0 for one in sites])[0]
    iteration = rng.randint(job.iterations // 4, 3 * job.iterations // 4)
    if site is Site.CHECKPOINT:
        iteration = rng.choice(job.training.restarts).iteration
    iteration = min(next_at(job.layout, site, iteration), job.iterations - 1)
    rank = rng.choice(ranks_at(job.layout, site, chosen))
    dtype = rng.choice(list(BITS))
    return replace(
        usual(chosen, iteration, rank=rank, site=site, seed=rng.getrandbits(32)),
        rate=_between(entry.rates, rng),
        magnitude=_between(entry.magnitudes, rng),
        count=round(_between(entry.counts, rng)),
        dtype=dtype if entry.has_bit else "fp32",
        bit=rng.randrange(BITS[dtype]) if entry.has_bit else None,
    )


def stage(fault: Fault) -> str:
    """The part of the iteration in which the fault is: what a verdict's cause should say.

    >>> stage(usual(Kind.NAN_INPUT, 5))
    'before_reduce'
    """
    return _STAGES.get(fault.site, "before_reduce")


def check(job: Job, fault: Fault | None) -> None:
    """Whether the fault can act in this job.

    Raises:
        DrillError: the kind does not act at the site or in the layout, or the job lacks what it strikes.
    """
    if fault is None:
        return
    entry = CATALOGUE.get(fault.kind)
    if entry is None or job.layout.name not in entry.layouts:
        raise DrillError(f"fault.kind must be one that acts in layout {job.layout.name}, got {fault.kind}")
    if fault.site not in entry.sites:
        raise DrillError(
            f"fault.site of {fault.kind} must be one of {', '.join(entry.sites)}, got {fault.site}"
        )
    if not _has_site(job, fault.site):
        raise DrillError(f"fault.site must be one that this job has, got {fault.site}")
    _check_where(job, fault)
    if fault.iteration >= job.iterations:
        raise DrillError(f"fault.iteration must be below {job.iterations}, got {fault.iteration}")


def _check_where(job: Job, fault: Fault) -> None:
    """Whether place, rank and iteration are ones at which the fault meets its site."""
    known = [*places(job.model), *MESSAGES.get(job.layout.name, ())]
    if fault.place is not None and fault.place not in known:
        raise DrillError(f"fault.place must be one of {', '.join(known)}, got {fault.place!r}")
    if fault.rank is not None and fault.rank >= job.layout.ranks:
        raise DrillError(f"fault.rank must be below {job.layout.ranks}, got {fault.rank}")
    possible = ranks_at(job.layout, fault.site, fault.kind)
    if fault.rank is not None and fault.rank not in possible:
        ranks = ", ".join(map(str, possible))
        raise DrillError(f"fault.rank must be one that has the site ({ranks}), got {fault.rank}")
    at = next_at(job.layout, fault.site, fault.iteration)
    if fault.lasts is not None and at >= fault.iteration + fault.lasts:
        raise DrillError(f"fault.iteration must be one that has the site, as {at}, got {fault.iteration}")


def _fits(entry: Entry, job: Job) -> bool:
    return job.layout.name in entry.layouts and any(_has_site(job, site) for site in entry.sites)


def _has_site(job: Job, site: Site) -> bool:
    """Whether the job has what the site names."""
    if not has_site(job.layout, site):
        return False
    if site is Site.SECOND_MOMENT:
        return job.training.optimizer == "adamw"
    if site is Site.LOSS_SCALE:
        return job.training.precision == "fp16"
    return site is not Site.CHECKPOINT or bool(job.training.restarts)


def _is_of_one_rank(entry: Entry, site: Site) -> bool:
    return entry.is_of_one_rank and site is not Site.REDUCE_ALL


def _middle(bounds: tuple[float, float]) -> float:
    return float((bounds[0] * bounds[1]) ** 0.5)


def _between(bounds: tuple[float, float], rng: random.Random) -> float:
    low, high = bounds
    return float(low * (high / low) ** rng.random())
