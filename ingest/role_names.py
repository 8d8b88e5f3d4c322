"""The names that tools give to counters, ranks, times and the like; metrics are in `role_words`."""

from __future__ import annotations

import re
from enum import StrEnum


class Role(StrEnum):
    """What a column or key is for."""

    ITERATION = "iteration"
    EPOCH = "epoch"
    BATCH = "batch in epoch"
    TOTAL = "total of iterations"
    EPOCHS = "total of epochs"
    BATCHES = "batches per epoch"
    RUN = "run"
    RANK = "rank"
    ATTEMPT = "attempt"
    MICROBATCH = "microbatch"
    TIME = "time"
    SPLIT = "split"
    """Says of each record whether it is of training or of validation."""
    METRIC = "metric"
    CONTEXT = "context"
    """A metric that is a duration, a rate, a count or a memory: it never tells of a fault by itself."""


ITERATION_NAMES = (
    *(
        "iteration",
        "global_step",
        "step",
        "iterations",
        "iter",
        "it",
        "steps",
        "current_steps",
        "current_step",
    ),
    *(
        "cur_step",
        "cur_iter",
        "current_iteration",
        "trainer/global_step",
        "train/global_step",
        "global_steps",
    ),
    *("global_iteration", "global_iter", "iteration_number", "iter_num", "step_num", "step_number", "_step"),
    *("train_step", "train_steps", "train/step", "train/iteration", "training_step", "optimizer_step"),
    *(
        "optimizer_steps",
        "opt_step",
        "opt_steps",
        "num_updates",
        "n_updates",
        "nupdates",
        "update",
        "updates",
    ),
    *("update_step", "num_steps", "num_iters", "niter", "n_iter", "itr", "training_iteration", "batch_num"),
    *(
        "optim/step",
        "iters",
        "idx_step",
        "global_batch",
        "total_iterations",
        "tick",
        "round",
        "boosting_round",
    ),
    *(
        "num_iterations",
        "n_iterations",
        "steps_done",
        "step_id",
        "iter_id",
        "trainer/step",
        "time/iterations",
    ),
    *("iteration/current", "step/current", "time/step", "time/batch"),
    *("acc_iter", "accumulated_iter", "glob_iter", "it_num", "itn", "iter_count"),
    *("num_timesteps", "timesteps", "timestep", "total_timesteps", "time/total_timesteps", "timesteps_total"),
    *("num_env_steps", "env_steps", "total_num_steps", "total_env_steps", "frames", "episode", "episodes"),
    *("env_step", "env_interaction"),
    *("generation", "samples_seen", "consumed_samples", "consumed_train_samples", "examples_seen"),
    *("tokens_seen", "consumed_tokens", "num_tokens_seen", "cumulative_tokens"),
)
"""Names of what counts iterations, the best first; as `spelling` writes them."""
COUNTERS_BEHIND_SLASH = frozenset({"iteration", "itr", "global_step"})
"""Names that count whatever stands in front: ``Diagnostics/Iteration``; ``timing_s/step`` does not."""
EPOCH_NAMES = ("epoch", "epochs", "cur_epoch", "current_epoch", "epoch_num", "train/epoch", "trainer/epoch")
BATCH_NAMES = (
    *("batch", "batch_idx", "batch_id", "batch_index", "minibatch", "iter_in_epoch", "step_in_epoch"),
    *(
        "epoch_step",
        "epoch_iter",
        "batch_number",
        "batch_in_epoch",
        "train/batch",
        "inner_iter",
        "inner_step",
    ),
)
TOTALS = (
    (
        Role.TOTAL,
        re.compile(r"(total|max|num|n)_(train_|training_|optimizer_)?(step|iter|iteration|update)s?"),
    ),
    (Role.EPOCHS, re.compile(r"(total|max|num|n)_(train_|training_)?epochs?")),
    (Role.BATCHES, re.compile(r"((total|max|num|n)_batch(es)?|(steps|iters|iterations|batches)_per_epoch)")),
)
"""What a counter counts up to."""
IDENTITY_NAMES: dict[Role, tuple[str, ...]] = {
    Role.RUN: ("run", "run_name", "run_id", "trial_id", "experiment_name"),
    Role.RANK: ("rank", "global_rank", "process_index", "worker_rank", "process_rank"),
    Role.ATTEMPT: ("attempt",),
    Role.MICROBATCH: ("microbatch",),
    Role.TIME: ("time", "timestamp", "_timestamp", "wall_time", "unix_time", "time_unix", "ts"),
    Role.SPLIT: ("mode", "split", "phase", "stage", "subset", "dataset_split", "type"),
}
SPELLED: dict[str, tuple[Role, int]] = {
    **{name: (Role.ITERATION, at) for at, name in enumerate(ITERATION_NAMES)},
    **{name: (Role.EPOCH, at) for at, name in enumerate(EPOCH_NAMES)},
    **{name: (Role.BATCH, at) for at, name in enumerate(BATCH_NAMES)},
    **{name: (role, at) for role, names in IDENTITY_NAMES.items() for at, name in enumerate(names)},
}
"""Each name with its role, and its place among those of that role."""
