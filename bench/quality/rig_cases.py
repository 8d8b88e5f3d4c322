"""Jobs of the fault-injection rig as cases: of each seed one healthy job, and faults that strike it.

The healthy run is the golden twin of the others, which are computed from where their faults strike. A seed
makes one *group*; every second data parallel one trains without clipping and norm layers, since nothing
explodes with them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from firstfault.drill.plans import DrillError
from firstfault.drill.rig.catalogue import CATALOGUE, check, draw
from firstfault.drill.rig.layout_entries import LAYOUT_ENTRIES
from firstfault.drill.rig.layouts import has_site
from firstfault.drill.rig.spec import Fault, Job, Kind, LayoutName, Site
from firstfault.drill.rig.truth import TierTruth, judge_truth
from firstfault.drill.rig.truth import Truth as RigTruth
from firstfault.drill.rig.variety import healthy_job, variety_of
from firstfault.telemetry import Event, Record
from firstfault.wire import encode_event, encode_record

from .case import TIERS, Origin, Recording, Spec, Tier, Truth

TAIL_ITERATIONS = 200
"""How long a run goes on behind its fault: slow ones show within it, and the rest says nothing new."""
LOUD = (Kind.NAN, Kind.INF, Kind.INF_MINUS_INF, Kind.NAN_INPUT, Kind.LOG_OF_ZERO, Kind.EXPONENT_OVERFLOW)
"""Faults that end in a non-finite value at once."""
_GROWING = (
    Kind.LR_JUMP,
    Kind.LR_JUMP,
    Kind.HIGH_LR,
    Kind.NO_WARMUP,
    Kind.BAD_BATCHES,
    Kind.WRONG_NORMALIZATION,
)
STATE = (
    Kind.MISSING_SYNC,
    Kind.NORM_DESYNC,
    Kind.STUCK_BIT,
    Kind.BIT_FLIP,
    Kind.CORRUPT_RESTORE,
    Kind.INCOMPLETE_RESTORE,
)
"""Faults that break the agreement of replicated state, where they find it."""
_STATE_SITES = (Site.PARAMETER, Site.FIRST_MOMENT, Site.SECOND_MOMENT, Site.REDUCE_OUT)
_COMPUTED = (
    Kind.RELATIVE_ERROR,
    Kind.TILE_ERROR,
    Kind.STALE,
    Kind.DROPPED,
    Kind.WRONG_ORDER,
    Kind.FP8_SCALE,
    Kind.DUPLICATE_DATA,
    Kind.RANDOM_DESYNC,
    Kind.LOST_UPDATES,
    Kind.MULTI_FLIP,
)
_HEALTHY = "healthy"
_TRIES = 50
"""Draws of a fault until one fits the job: most do at once."""


def rig_specs(seed: int) -> list[Spec]:
    """The cases of one group, the healthy one first."""
    job = job_of(seed)
    names = [f"{_HEALTHY}:{variety_of(seed).value}", *(family_of(fault) for fault in faults_of(seed, job))]
    return [Spec(origin=Origin.RIG, family=name, seed=seed, tiers=TIERS) for name in names]


def job_of(seed: int) -> Job:
    """The healthy job of a seed."""
    job = healthy_job(seed)
    if seed % 2 == 0 or job.layout.name is not LayoutName.DP:
        return job
    model = replace(job.model, is_normalised=False)
    return replace(job, model=model, training=replace(job.training, clip_norm=None, weight_decay=0.0))


def faults_of(seed: int, job: Job) -> list[Fault]:
    """The faults that strike the job of a seed: no two of one kind at one site."""
    rng = random.Random(f"quality/{seed}")
    menus: tuple[Sequence[Kind], ...] = (LOUD, STATE, _COMPUTED, _COMPUTED)
    if seed % 2:
        menus = (LOUD, _GROWING, _GROWING, STATE)
    if job.layout.name is not LayoutName.DP:
        menus = (LOUD, STATE, tuple(LAYOUT_ENTRIES), _COMPUTED)
    found: dict[str, Fault] = {}
    for menu in menus:
        fault = drawn_fault(job, rng, menu, is_state=menu is STATE)
        found.setdefault(family_of(fault), fault)
    return list(found.values())


def make_group(seed: int) -> Iterator[tuple[Spec, Recording]]:
    """Run the jobs of a group: each case with its recording."""
    job = job_of(seed)
    yield from zip(rig_specs(seed), recordings(job, faults_of(seed, job), TAIL_ITERATIONS), strict=True)


def recordings(job: Job, faults: Sequence[Fault], tail_iterations: int) -> Iterator[Recording]:
    """The recording of the healthy job, and of each fault that strikes it."""
    from firstfault.drill.rig.engine import fork
    from firstfault.drill.rig.recording import record_run

    twin = None
    golden: list[bytes] = []
    for branch in fork(job, faults, tail_iterations):
        said = record_run(branch.said)
        # what is the golden twin's own was put into words with it
        lines = (
            _lines(branch.said)
            if twin is None
            else [*golden[: branch.shared], *_lines(branch.said[branch.shared :])]
        )
        if branch.fault is None or twin is None:
            twin, golden = said, lines
            truths = {tier: Truth(label=_HEALTHY) for tier in Tier}
            yield _recording(job, lines, truths, logged=len(said), healthy_points=len(said))
            continue
        judged = judge_truth(said, twin, branch.fault)
        truths = {
            Tier(tier.value): _truth(job, branch.fault, judged, here, tail_iterations)
            for tier, here in judged.tiers.items()
        }
        before = sum(1 for at in said.iterations_T.tolist() if at < branch.fault.iteration)
        yield _recording(job, lines, truths, logged=len(said), healthy_points=before)


def _truth(job: Job, fault: Fault, judged: RigTruth, here: TierTruth, tail_iterations: int) -> Truth:
    """What our scores ask of the truth of one tier."""
    interval = job.training.log_every
    if here.onset is not None and here.is_exact and here.last_clean is not None:
        interval = max(here.onset - here.last_clean, 1)
    is_of_rank = fault.rank is not None and fault.rank in here.ranks
    return Truth(
        label=here.label,
        onset=here.onset,
        injected_at=judged.injected_at,
        is_observable=here.is_observable,
        mattered=judged.damage.mattered,
        ranks=(fault.rank,) if is_of_rank and fault.rank is not None else (),
        suspects=here.ranks or None,
        causes=judged.causes,
        stage=None if judged.stage == "unknown" else judged.stage,
        interval=interval,
        replicas=_replicas(here) if is_of_rank else 0,
        facts=_facts(job, fault, tail_iterations),
    )


def _replicas(here: TierTruth) -> int:
    """Members of the group whose agreement on replicated state is broken: 3 stands for three and more, which
    can outvote the odd one; 0 where none is broken."""
    metrics = {name.partition("/")[0] for name in here.metrics}
    return {1: 3, 2: 2}.get(len(here.ranks), 0) if metrics & {"param_checksum", "optim_checksum"} else 0


def _facts(job: Job, fault: Fault, tail_iterations: int) -> dict[str, float]:
    """Of a bad unit: its rate in each pass, and the passes of the canary that it may strike."""
    is_unit = fault.kind in (Kind.RELATIVE_ERROR, Kind.TILE_ERROR) and fault.site in (
        Site.FORWARD,
        Site.ACT_GRAD,
        Site.WEIGHT_GRAD,
    )
    if not is_unit or fault.lasts is not None or not job.watch.canary:
        return {}
    end = min(job.iterations, fault.iteration + tail_iterations)
    due = sum(job.watch.is_due("canary", at) for at in range(fault.iteration, end))
    # the canary is computed twice each time
    return {"rate": fault.rate, "passes": 2.0 * due}


def drawn_fault(job: Job, rng: random.Random, menu: Sequence[Kind], *, is_state: bool) -> Fault:
    """A fault of the menu that fits the job."""
    fitting = [kind for kind in menu if _is_possible(job, kind)] or [Kind.BIT_FLIP]
    for _ in range(_TRIES):
        fault = _one_drawn(job, rng, rng.choice(fitting), is_state=is_state)
        try:
            check(job, fault)
        except DrillError:
            continue
        return fault
    raise DrillError(f"one of {', '.join(fitting)} must fit layout {job.layout.name}, none did")


def _one_drawn(job: Job, rng: random.Random, kind: Kind, *, is_state: bool) -> Fault:
    """A fault of one kind; of replicated state it strikes what the replicas must agree on."""
    fault = draw(job, rng, kind)
    entry = CATALOGUE[kind]
    if not is_state or not entry.has_bit or fault.site is Site.CHECKPOINT:
        return fault
    sites = [site for site in _STATE_SITES if site in entry.sites]
    return replace(fault, site=rng.choice(sites), rank=rng.randrange(job.layout.ranks))


def _is_possible(job: Job, kind: Kind) -> bool:
    entry = CATALOGUE[kind]
    needs_restart = entry.sites == (Site.CHECKPOINT,)
    has_places = any(has_site(job.layout, site) for site in entry.sites)
    is_ready = not needs_restart or bool(job.training.restarts)
    return job.layout.name in entry.layouts and has_places and is_ready


def family_of(fault: Fault) -> str:
    return f"{fault.kind.value}@{fault.site.value}"


def _lines(said: Sequence[Record | Event]) -> list[bytes]:
    return [(encode_record(one) if isinstance(one, Record) else encode_event(one)).encode() for one in said]


def _recording(
    job: Job, lines: list[bytes], truths: dict[Tier, Truth], *, logged: int, healthy_points: int
) -> Recording:
    return Recording(
        lines=lines,
        truths=truths,
        logged=logged,
        log_interval=job.training.log_every,
        healthy_points=healthy_points,
    )
