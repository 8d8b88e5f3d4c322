"""The synthetic clock of a job: a pace, and a little noise for each rank. Standard library only."""

from __future__ import annotations

import random

from .spec import Job

EPOCH_S = 1_764_500_000.0
"""Start of every job's clock: an ordinary date, the same for all."""
RESTART_S = 240.0
"""Time a launcher takes to notice a dead job and to start it again."""
_PACE_S = 0.35
"""Usual duration of an iteration of one microbatch, that of a small job."""
_NOISE = 0.03
"""Relative spread of a rank's step time."""
_EVALUATION_FACTOR = 3.0


def step_times(job: Job, attempt: int, iteration: int, ranks: int) -> list[float]:
    """``step_time_s`` of each rank; the iteration lasts as long as its slowest rank."""
    training = job.training
    rng = random.Random(f"{job.seed}/{attempt}/{iteration}")
    pace_s = _PACE_S * training.microbatches(iteration)
    every = training.evaluation_every
    if every and iteration % every == 0 and training.is_evaluation_slow:
        pace_s *= _EVALUATION_FACTOR
    return [round(pace_s * rng.lognormvariate(0.0, _NOISE), 4) for _ in range(ranks)]
