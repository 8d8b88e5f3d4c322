"""The study: a grid of single faults on one small job, and what became of the training in each case.

Standard library only; `study_run` runs it. The grid goes seed by seed, and within a seed over training
recipes, sites, kinds and bits, so that a study that is stopped early is balanced over everything but seeds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .spec import Fault, Job, Kind, ModelSize, Site, data_parallel
from .training import RigTraining, Watch

RECIPES = {
    "adamw, clipped": RigTraining(optimizer="adamw", peak_lr=4e-3, clip_norm=1.0),
    "adamw, unclipped": RigTraining(optimizer="adamw", peak_lr=4e-3, clip_norm=None),
    "sgd, clipped": RigTraining(optimizer="sgd", peak_lr=0.2, clip_norm=1.0),
    "sgd, unclipped": RigTraining(optimizer="sgd", peak_lr=0.2, clip_norm=None),
}
FLIP_SITES = (
    Site.FORWARD,
    Site.ACT_GRAD,
    Site.WEIGHT_GRAD,
    Site.REDUCE_ALL,
    Site.PARAMETER,
    Site.FIRST_MOMENT,
    Site.SECOND_MOMENT,
)
UNIT_SITES = (Site.FORWARD, Site.ACT_GRAD, Site.WEIGHT_GRAD)
"""Where a unit computes: stuck bits and wrong tiles are of units, not of memory."""
BITS = 32
NO_WATCH = Watch(
    param_checksum=0,
    optim_checksum=0,
    grad_checksum=0,
    data_checksum=0,
    act_grad_norm=0,
    canary=0,
    recompute=0,
    grad_sketch=0,
)
"""The study asks for the loss alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPlan:
    """How large a study is."""

    seeds: int = 3
    iterations: int = 180
    """Long enough for the loss to settle behind a fault, short enough for a thousand cases in minutes."""
    ranks: int = 4
    """Data-parallel replicas: what one of them computes wrong is a quarter of the update."""
    first_seed: int = 0
    strikes: tuple[int, ...] = (40, 60, 80)
    """Iterations at which faults strike: in the steep part of the curve, at its knee, and behind it."""
    bit_step: int = 3
    """Every so many-th bit of a float32 flips, one case each; which ones moves on by one with each seed and
    site, so that three seeds flip each bit of each site once."""

    recipes: tuple[str, ...] = tuple(RECIPES)
    """Training recipes, all of them unless said."""

    def total(self) -> int:
        """Cases in all."""
        return sum(1 for _ in cases(self))


QUICK = StudyPlan(seeds=1, iterations=140, strikes=(50,), bit_step=8)
"""Some 250 cases in about two minutes: to see that it works. Its intervals are wide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One fault in one job."""

    recipe: str
    seed: int
    fault: Fault

    @property
    def key(self) -> str:
        """Names the case in the file of results, so that a study goes on where it was stopped."""
        fault = self.fault
        what = f"{fault.magnitude:g}" if fault.bit is None else fault.bit
        return f"{self.recipe}/{self.seed}/{fault.site}/{fault.kind}/{what}/{fault.count}/{fault.iteration}"


def job_of(plan: StudyPlan, recipe: str, seed: int) -> Job:
    """The job that the cases of one recipe and seed share."""
    return Job(
        seed=seed,
        run=f"study-{seed}",
        layout=data_parallel(plan.ranks),
        iterations=plan.iterations,
        model=ModelSize(),
        training=replace(RECIPES[recipe], warmup_iterations=20),
        watch=NO_WATCH,
    )


def cases(plan: StudyPlan) -> Iterator[Case]:
    """The grid, in the order in which it is run."""
    for seed in range(plan.first_seed, plan.first_seed + plan.seeds):
        for recipe in plan.recipes:
            yield from _cases_of(plan, recipe, seed)


def _cases_of(plan: StudyPlan, recipe: str, seed: int) -> Iterator[Case]:
    # the same draws for every recipe: recipes are compared on the same faults
    rng = random.Random(f"study/{seed}")
    for site in FLIP_SITES:
        for bit in range((seed + FLIP_SITES.index(site)) % plan.bit_step, BITS, plan.bit_step):
            fault = _drawn(plan, rng, Kind.BIT_FLIP, site, bit=bit)
            if site is not Site.SECOND_MOMENT or RECIPES[recipe].optimizer == "adamw":
                yield Case(recipe=recipe, seed=seed, fault=fault)
    for site in UNIT_SITES:
        for bit in (20, 24, 26, 28, 30):  # from a small relative error to an infinite one
            fault = _drawn(plan, rng, Kind.STUCK_BIT, site, bit=bit, lasts=None)
            yield Case(recipe=recipe, seed=seed, fault=fault)
        for magnitude in (1e-5, 1e-3):
            fault = _drawn(plan, rng, Kind.TILE_ERROR, site, magnitude=magnitude, lasts=None, count=64)
            yield Case(recipe=recipe, seed=seed, fault=replace(fault, rate=0.25))
        for count in (2, 4, 8, 16):
            fault = _drawn(plan, rng, Kind.MULTI_FLIP, site, count=count)
            yield Case(recipe=recipe, seed=seed, fault=fault)
        for magnitude in (1e-2, 1e-1):
            fault = _drawn(plan, rng, Kind.RELATIVE_ERROR, site, magnitude=magnitude, lasts=None)
            yield Case(recipe=recipe, seed=seed, fault=fault)


def _drawn(
    plan: StudyPlan,
    rng: random.Random,
    kind: Kind,
    site: Site,
    *,
    bit: int | None = None,
    magnitude: float = 1.0,
    lasts: int | None = 1,
    count: int = 1,
) -> Fault:
    return Fault(
        kind=kind,
        site=site,
        iteration=rng.choice(plan.strikes),
        rank=None if site is Site.REDUCE_ALL else rng.randrange(plan.ranks),
        lasts=lasts,
        bit=bit,
        magnitude=magnitude,
        count=count,
        seed=rng.randrange(1 << 30),
    )
