"""The ``run_start`` of a job: what it says of itself before the first iteration."""

from __future__ import annotations

import random

import torch

from .spec import Job

RANKS_PER_HOST = 4
_CADENCES = {
    "param_checksum": "param_checksum",
    "optim_checksum": "optim_checksum",
    "grad_checksum": "grad_checksum",
    "data_checksum": "data_checksum",
    "canary_checksum": "canary",
    "canary_loss": "canary",
    "repeat_checksum/canary": "canary",
    "recompute_checksum": "recompute",
    "repeat_checksum/recompute": "recompute",
    "grad_sketch_in": "grad_sketch",
    "grad_sketch_out": "grad_sketch",
}
"""Metrics and the setting of `Watch` that says how often they come."""


def run_start(job: Job) -> dict[str, object]:
    """All but what the layout says."""
    training, watch, ranks = job.training, job.watch, job.layout.ranks
    fields: dict[str, object] = {
        "world_size": ranks,
        "hosts": [host(rank) for rank in range(ranks)],
        "device_models": ["virtual-cpu"] * ranks,
        "device_ids": [device(job, rank) for rank in range(ranks)],
        "precision": training.precision,
        "microbatches": training.microbatches(0),
        "loss_convention": "local mean over tokens, nats",
        "norm_convention": "L2, unscaled, before clipping",
        "optimizer": training.optimizer,
        "cadence": {
            metric: getattr(watch, name) for metric, name in _CADENCES.items() if getattr(watch, name)
        },
        "deterministic": True,
        "software": f"torch {torch.__version__.partition('+')[0]}",
        "checkpoint_directory": "checkpoints",
    }
    if training.clip_norm is not None:
        fields["clip_norm"] = training.clip_norm
    if training.precision == "fp16":
        growth = training.scale_growth_iterations
        fields["scaler"] = {
            "kind": "dynamic",
            "initial_scale": training.initial_scale,
            "growth_interval": growth,
        }
    return fields


def host(rank: int) -> str:
    """The machine of a rank."""
    return f"node-{rank // RANKS_PER_HOST:02d}"


def device(job: Job, rank: int) -> str:
    """The device of a rank."""
    return f"dev-{random.Random(f'{job.seed}/device/{rank}').getrandbits(32):08x}"
