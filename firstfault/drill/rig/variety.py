"""Seeds become jobs: healthy ones of great variety. Standard library only.

What real jobs do without anything being wrong is what false alarms are made of, so that each seed draws a
model, an optimizer, a schedule and a precision, and one or two benign events: the *varieties*.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from .catalogue import draw
from .layouts import LAYOUTS
from .spec import Fault, Job, LayoutName, ModelSize, data_parallel
from .training import Restart, RigTraining, Watch


class Variety(StrEnum):
    """What is special about a healthy job."""

    PLAIN = "plain"
    BATCH_RAMP = "batch_ramp"
    ACCUMULATION = "accumulation"
    DATA_SWITCH = "data_switch"
    """The mix of the data changes: the loss steps up, and is learnt down again."""
    EPOCHS = "epochs"
    """Data are read again: the loss steps down at the turn."""
    RESTART = "restart"
    """The job dies and repeats iterations from its last checkpoint."""
    RESUME_SPIKE = "resume_spike"
    """A restart that lost the optimizer's moments: a short rise, and back."""
    ELASTIC = "elastic"
    """A restart with another world size."""
    UNEVEN_RANKS = "uneven_ranks"
    """Ranks read data of unlike difficulty, as experts do."""
    FP16 = "fp16"
    """The loss scale searches: steps are skipped at the start and now and then."""
    BF16 = "bf16"
    LOG_INTERVAL = "log_interval"
    EVALUATION = "evaluation"
    """Evaluations, whose iterations take longer."""
    RECOVERED_SPIKE = "recovered_spike"
    """One batch of noise: the loss jumps and comes back."""
    SPARSE_CHECKS = "sparse_checks"
    """Checksums and canaries now and then."""
    FEW_RANKS = "few_ranks"
    LONG_WARMUP = "long_warmup"
    STEP_SCHEDULE = "step_schedule"
    UNCLIPPED = "unclipped"
    PIPELINE = "pipeline"
    """Four stages of two tensor-parallel ranks each, twice; only the last stages report a loss."""
    EXPERTS = "experts"
    """Ranks hold unlike experts, which get unlike shares of the tokens."""
    ZERO1 = "zero1"
    FULL_SHARD = "full_shard"
    LOCAL_SGD = "local_sgd"
    """Replicas that differ from one outer step to the next, as they are meant to."""


_WIDTHS, _LENGTHS = (8, 16, 16, 16, 24, 32), (16, 16, 32)
_SGD_FACTOR = 50.0
"""SGD wants about fifty times the learning rate of AdamW on models this small."""
_LAYERS_OF_SGD = 2
_SECOND_SHARE = 0.3
"""Share of jobs in which two varieties meet, as they do in real ones."""

_OF_RANKS = {
    Variety.ELASTIC,
    Variety.FEW_RANKS,
    Variety.PIPELINE,
    Variety.EXPERTS,
    Variety.ZERO1,
    Variety.FULL_SHARD,
    Variety.LOCAL_SGD,
}
"""Varieties that say which ranks there are: no two of them meet."""
_OF_PARTS = {Variety.PIPELINE, Variety.EXPERTS}
_OF_WHOLE_REPLICAS = {Variety.FP16, Variety.BF16, Variety.EVALUATION, Variety.RESUME_SPIKE}
"""What jobs cannot do whose ranks hold parts of the model."""

Change = Callable[[Job, random.Random], Job]


def healthy_job(seed: int, variety: Variety | None = None, iterations: int | None = None) -> Job:
    """The healthy job of a seed; ``variety`` picks what is special about it, else the seed does.

    >>> healthy_job(7) == healthy_job(7), healthy_job(7) == healthy_job(8)
    (True, False)
    """
    rng = random.Random(f"healthy/{seed}")
    job = _base(seed, rng, iterations)
    chosen = variety_of(seed) if variety is None else variety
    drawn = [chosen]
    if rng.random() < _SECOND_SHARE:
        drawn.insert(0, rng.choice(list(Variety)))
    # the one that was asked for comes last: a layout takes back what it cannot do
    for one in dict.fromkeys(drawn):
        if one is chosen or not _clash(one, chosen):
            job = _CHANGES[one](job, rng)
    return replace(_learning(job), run=f"{chosen.value}-{seed}")


def faulty_job(seed: int) -> tuple[Job, Fault]:
    """The healthy job of a seed and a fault that fits it, drawn from the catalogue by its weights: single
    flips of memory at rest are rare.

    >>> job, fault = faulty_job(7)
    >>> fault.iteration < job.iterations
    True
    """
    job = healthy_job(seed)
    return job, draw(job, random.Random(f"fault/{seed}"))


def variety_of(seed: int) -> Variety:
    """Seeds go round the varieties, so that a hundred seeds hold each one five times."""
    return list(Variety)[seed % len(Variety)]


def _learning(job: Job) -> Job:
    """AdamW for deep models: under SGD these sit on the plateau of a uniform guess for half of the run,
    which no job does that people keep."""
    training = job.training
    if training.optimizer != "sgd" or job.model.layers <= _LAYERS_OF_SGD:
        return job
    training = replace(training, optimizer="adamw", peak_lr=training.peak_lr / _SGD_FACTOR)
    return replace(job, training=training)


def _clash(one: Variety, other: Variety) -> bool:
    """Whether no job can have both."""
    if {one, other} <= _OF_RANKS:
        return True
    return bool({one, other} & _OF_PARTS) and bool({one, other} & _OF_WHOLE_REPLICAS)


def _base(seed: int, rng: random.Random, iterations: int | None) -> Job:
    length = rng.choice(_LENGTHS)
    model = ModelSize(
        width=rng.choice(_WIDTHS),
        layers=rng.choice((1, 2, 2, 2, 3, 4)),
        length=length,
        # 2 samples of 16 tokens are enough for a gradient that learns; longer ones need fewer
        samples=rng.choice((2, 2, 4)) if length == 16 else 2,
    )
    optimizer = rng.choice(("adamw", "adamw", "adamw", "sgd"))
    lr = 2e-3 * 4 ** rng.random()
    training = RigTraining(
        optimizer=optimizer,
        peak_lr=lr * (_SGD_FACTOR if optimizer == "sgd" else 1.0),
        schedule=rng.choice(("constant", "cosine", "cosine", "linear", "wsd")),
        warmup_iterations=rng.choice((20, 40, 80)),
        final_lr_share=rng.choice((0.0, 0.1, 0.3)),
        weight_decay=rng.choice((0.0, 0.01, 0.1)),
        beta2=rng.choice((0.95, 0.99)),
        clip_norm=rng.choice((0.5, 1.0, 1.0, 2.0)),
    )
    ranks = rng.choice((4, 6, 8, 8, 8, 12))
    total = rng.randrange(400, 801, 50) if iterations is None else iterations
    return Job(seed=seed, layout=data_parallel(ranks), iterations=total, model=model, training=training)


def _trained(**fields: Callable[[Job, random.Random], object]) -> Change:
    """A change of the training by fields that are drawn."""

    def change(job: Job, rng: random.Random) -> Job:
        drawn = {name: draw(job, rng) for name, draw in fields.items()}
        return replace(job, training=replace(job.training, **drawn))  # type: ignore[arg-type]  # by name

    return change


def _within(low: float, high: float) -> Callable[[Job, random.Random], int]:
    """An iteration between two shares of the run."""
    return lambda job, rng: rng.randint(round(low * job.iterations), round(high * job.iterations))


def _ramp(job: Job, rng: random.Random) -> tuple[tuple[int, int], ...]:
    first = _within(0.2, 0.4)(job, rng)
    return ((0, 1), (first, 2), (first + _within(0.15, 0.3)(job, rng), 4))


def _restart(job: Job, rng: random.Random, *, ranks: int | None = None, is_spiking: bool = False) -> Job:
    at = _within(0.4, 0.7)(job, rng)
    restart = Restart(iteration=at, ranks=ranks, is_spiking=is_spiking)
    training = replace(job.training, restarts=(restart,))
    # a checkpoint well before the death, so that iterations are repeated
    return replace(job, training=training, watch=replace(job.watch, checkpoint=rng.choice((20, 50, 70))))


def _elastic(job: Job, rng: random.Random) -> Job:
    ranks = job.layout.ranks
    return _restart(job, rng, ranks=rng.choice((max(2, ranks // 2), ranks - 1, ranks + 2)))


def _few_ranks(job: Job, rng: random.Random) -> Job:
    return replace(job, layout=data_parallel(rng.choice((1, 2, 2, 3))))


def _sparse(job: Job, rng: random.Random) -> Job:
    watch = Watch(
        param_checksum=rng.choice((5, 10, 20)),
        optim_checksum=rng.choice((0, 20, 50)),
        grad_checksum=rng.choice((0, 10)),
        data_checksum=rng.choice((0, 1, 10)),
        canary=rng.choice((0, 50)),
        recompute=rng.choice((0, 20)),
        grad_sketch=rng.choice((0, 5)),
        checkpoint=job.watch.checkpoint,
    )
    return replace(job, watch=watch)


def _laid_out(name: LayoutName) -> Change:
    """A change of the layout; what only plain data parallel jobs do is taken back."""

    def change(job: Job, _: random.Random) -> Job:
        is_in_parts = name in (LayoutName.PP4_TP2_DP2, LayoutName.EXPERT)
        restarts = [replace(one, ranks=None) for one in job.training.restarts]
        training, model = job.training, job.model
        if is_in_parts:
            restarts = [replace(one, is_spiking=False) for one in restarts]
            training = replace(training, precision="fp32", evaluation_every=0)
        if name is LayoutName.PP4_TP2_DP2:
            model = replace(model, layers=4)  # one a stage
        training = replace(training, restarts=tuple(restarts))
        return replace(job, layout=LAYOUTS[name], model=model, training=training)

    return change


def _keep(job: Job, _: random.Random) -> Job:
    return job


_CHANGES: dict[Variety, Change] = {
    Variety.PLAIN: _keep,
    Variety.BATCH_RAMP: _trained(batch_ramp=_ramp),
    Variety.ACCUMULATION: _trained(accumulation=lambda _, rng: rng.choice((2, 4))),
    Variety.DATA_SWITCH: _trained(
        data_switch=_within(0.3, 0.7), data_switch_share=lambda _, rng: rng.uniform(0.1, 0.5)
    ),
    Variety.EPOCHS: _trained(epoch_iterations=_within(0.2, 0.45)),
    Variety.RESTART: _restart,
    Variety.RESUME_SPIKE: lambda job, rng: _restart(job, rng, is_spiking=True),
    Variety.ELASTIC: _elastic,
    Variety.UNEVEN_RANKS: _trained(rank_spread=lambda _, rng: rng.uniform(0.1, 0.6)),
    Variety.FP16: _trained(
        precision=lambda _, __: "fp16",
        initial_scale=lambda _, rng: 2.0 ** rng.choice((16, 20, 24)),
        scale_growth_iterations=lambda _, rng: rng.choice((60, 150, 300)),
    ),
    Variety.BF16: _trained(precision=lambda _, __: "bf16"),
    Variety.LOG_INTERVAL: _trained(log_every=lambda _, rng: rng.choice((2, 5, 10))),
    Variety.EVALUATION: _trained(evaluation_every=lambda _, rng: rng.choice((25, 50, 100))),
    Variety.RECOVERED_SPIKE: _trained(bad_batch=_within(0.3, 0.7)),
    Variety.SPARSE_CHECKS: _sparse,
    Variety.FEW_RANKS: _few_ranks,
    Variety.LONG_WARMUP: _trained(warmup_iterations=_within(0.2, 0.4)),
    Variety.STEP_SCHEDULE: _trained(schedule=lambda _, __: "step"),
    Variety.UNCLIPPED: _trained(clip_norm=lambda _, __: None),
    Variety.PIPELINE: _laid_out(LayoutName.PP4_TP2_DP2),
    Variety.EXPERTS: _laid_out(LayoutName.EXPERT),
    Variety.ZERO1: _laid_out(LayoutName.ZERO1),
    Variety.FULL_SHARD: _laid_out(LayoutName.FULL_SHARD),
    Variety.LOCAL_SGD: _laid_out(LayoutName.LOCAL_SGD),
}
