"""The learning rate of a job, and what a fault of the schedule makes of it. Standard library only."""

from __future__ import annotations

import math

from .spec import Fault, Job, Kind, Site
from .training import RigTraining

_WSD_FALLS_FROM = 0.8
_STEP_AT = 2 / 3
_STEP_FACTOR = 0.1
"""Where the wsd schedule starts to fall and the step schedule steps, as shares of the run."""


def scheduled_lr(job: Job, iteration: int) -> float:
    """The learning rate that the schedule gives.

    >>> scheduled_lr(Job(training=RigTraining(peak_lr=1.0, warmup_iterations=10)), 4)
    0.5
    """
    training = job.training
    if iteration < training.warmup_iterations:
        return training.peak_lr * (iteration + 1) / training.warmup_iterations
    return settled_lr(job, iteration)


def settled_lr(job: Job, iteration: int) -> float:
    """The learning rate without its warm-up."""
    training = job.training
    rest = max(1, job.iterations - training.warmup_iterations)
    share = min(1.0, max(0, iteration - training.warmup_iterations) / rest)
    return training.peak_lr * _shape(training, share)


def faulty_lr(job: Job, fault: Fault, iteration: int) -> float:
    """What a fault of the schedule makes of the learning rate while it acts.

    ``magnitude`` is the factor of a rate that is too high. A job without warm-up starts at that many times
    its peak, which only a warm-up would have made it bear, and is on its schedule when the warm-up ends.

    >>> job = Job(training=RigTraining(peak_lr=1.0, warmup_iterations=10, schedule="constant"))
    >>> fault = Fault(kind=Kind.NO_WARMUP, site=Site.SCHEDULE, iteration=0, lasts=None, magnitude=3.0)
    >>> faulty_lr(job, fault, 0), faulty_lr(job, fault, 10)
    (3.0, 1.0)
    """
    if fault.site is not Site.SCHEDULE:
        return scheduled_lr(job, iteration)
    if fault.kind is Kind.NO_WARMUP:
        is_warming = iteration < job.training.warmup_iterations
        return settled_lr(job, iteration) * (fault.magnitude if is_warming else 1.0)
    return scheduled_lr(job, iteration) * fault.magnitude


def _shape(training: RigTraining, share: float) -> float:
    low = training.final_lr_share
    match training.schedule:
        case "cosine":
            return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * share))
        case "linear":
            return 1 - (1 - low) * share
        case "wsd":
            return 1 - (1 - low) * max(0.0, (share - _WSD_FALLS_FROM) / (1 - _WSD_FALLS_FROM))
        case "step":
            return _STEP_FACTOR if share >= _STEP_AT else 1.0
        case _:
            return 1.0
