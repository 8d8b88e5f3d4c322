"""Small jobs of the rig: few ranks, few iterations, struck by one kind of fault again and again.

What must hold of replicas that part, of bad units behind a canary and of whose NaN was first asks for more
cases than the great jobs of a quick run hold. These count for nothing else, neither for labels nor for
false alarms.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from firstfault.drill.rig.spec import Fault, Job, Kind, data_parallel
from firstfault.drill.rig.training import Watch
from firstfault.drill.rig.variety import Variety, healthy_job

from .case import Origin, Recording, Spec, Tier
from .rig_cases import LOUD, STATE, drawn_fault, family_of, recordings
from .tiers import cut

ITERATIONS = 80
"""Long enough for a baseline of exact equality, which needs two checks."""
TAIL_ITERATIONS = 40
"""Two checks of the slowest checksum, or ten canaries, behind a fault."""
LOST_TAIL_ITERATIONS = 5
"""What comes after a NaN says nothing new of whose it was."""
FAULTS_EACH = 6
"""Faults that strike one job: each is computed from where it strikes."""
_PIPELINE_STATE = (Kind.MISSING_SYNC, Kind.NORM_DESYNC, Kind.TIED_DESYNC, Kind.STUCK_BIT, Kind.BIT_FLIP)
_UNITS = (Kind.RELATIVE_ERROR, Kind.TILE_ERROR)
KINDS = ("two", "few", "stages", "units", "lost")
"""What the jobs are, seed by seed: two replicas, three to five, a pipeline of two, bad units, NaN."""

_OF_REPLICAS = (Variety.PLAIN, Variety.PLAIN, Variety.RESTART)
_VARIETIES = {
    "two": _OF_REPLICAS,
    "few": _OF_REPLICAS,
    "stages": (Variety.PIPELINE,),
    "units": (Variety.PLAIN,),
    "lost": (Variety.PLAIN, Variety.PIPELINE, Variety.EXPERTS, Variety.ZERO1),
}


def small_specs(seed: int) -> list[Spec]:
    """The cases of one small job."""
    kind = KINDS[seed % len(KINDS)]
    tier = {"units": Tier.CANARY, "lost": Tier.RANKS}.get(kind, Tier.CHECKSUMS)
    return [
        Spec(origin=Origin.SMALL, family=_family(kind, at, fault), seed=seed, tiers=(tier,))
        for at, fault in enumerate(faults_of(seed, job_of(seed)))
    ]


def make_small(seed: int) -> Iterator[tuple[Spec, Recording]]:
    """Run a small job: each of its cases with its recording."""
    job = job_of(seed)
    specs = small_specs(seed)
    is_lost = KINDS[seed % len(KINDS)] == "lost"
    tail = LOST_TAIL_ITERATIONS if is_lost else TAIL_ITERATIONS
    made = recordings(job, faults_of(seed, job), tail)
    next(made)  # the golden twin is no case
    for spec, recording in zip(specs, made, strict=True):
        kept = {tier: truth for tier, truth in recording.truths.items() if tier in spec.tiers}
        (tier,) = spec.tiers
        yield spec, replace(recording, truths=kept, lines=cut(recording.lines, tier))


def job_of(seed: int) -> Job:
    """The job of a seed: a third of the plain replicas restarts, so that state may come back wrong."""
    kind = KINDS[seed % len(KINDS)]
    rng = random.Random(f"small/{seed}")
    job = healthy_job(seed, rng.choice(_VARIETIES[kind]), ITERATIONS)
    training = replace(job.training, warmup_iterations=10, log_every=1)
    model = replace(job.model, width=8)
    watch = Watch(
        param_checksum=rng.choice((1, 1, 1, 2, 5)), optim_checksum=rng.choice((0, 10)), checkpoint=20
    )
    if kind == "units":
        watch = replace(Watch(), canary=4)
    ranks = {"two": 2, "few": rng.choice((3, 4, 5)), "units": 4}.get(kind)
    if ranks is not None:
        job = replace(job, layout=data_parallel(ranks))
    return replace(job, model=model, training=training, watch=watch)


def faults_of(seed: int, job: Job) -> Sequence[Fault]:
    """The faults that strike the job of a seed."""
    rng = random.Random(f"small faults/{seed}")
    kind = KINDS[seed % len(KINDS)]
    menu = {"units": _UNITS, "stages": _PIPELINE_STATE, "lost": LOUD}.get(kind, STATE)
    is_state = menu not in (_UNITS, LOUD)
    return [drawn_fault(job, rng, menu, is_state=is_state) for _ in range(FAULTS_EACH)]


def _family(kind: str, at: int, fault: Fault) -> str:
    return f"{kind}:{family_of(fault)}:{at}"
