"""Columns of small made-up runs, healthy and with an effect put in by hand. Axes: T positions, R ranks."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import numpy as np

from firstfault.drill.rig.recording import Floats, Recording
from firstfault.drill.rig.spec import Fault, Kind, Site
from firstfault.mesh import Layout

FAULT = Fault(kind=Kind.BIT_FLIP, site=Site.PARAMETER, iteration=200, rank=3, bit=25)
NOISE = 0.05
"""Standard deviation of one rank's loss."""


def healthy(ranks: int = 8, iterations: int = 400, seed: int = 5, layout: Layout | None = None) -> Recording:
    """A data parallel run that learns: noisy losses and norms, equal checksums, clean counts."""
    rng = np.random.default_rng(seed)
    trend_T1 = 2.0 + 2.0 * np.exp(-np.arange(iterations) / 100.0)[:, None]
    shape = (iterations, ranks)
    numbers = {
        "loss": trend_T1 + NOISE * rng.standard_normal(shape),
        "local_grad_norm": np.exp(0.1 * rng.standard_normal(shape)),
        "grad_norm": np.repeat(np.exp(0.1 * rng.standard_normal((iterations, 1))), ranks, axis=1),
        "nonfinite_grad": np.zeros(shape),
        "nonfinite_act": np.zeros(shape),
    }
    state_T1 = rng.integers(1, 2**63, (iterations, 1), dtype=np.uint64)
    sums = {"param_checksum": np.repeat(state_T1, ranks, axis=1)}
    sums["canary_checksum"] = sums["param_checksum"] + np.uint64(1)
    sums["repeat_checksum/canary"] = sums["canary_checksum"].copy()
    present = {name: np.ones(shape, dtype=np.bool_) for name in (*numbers, *sums)}
    iterations_T = np.arange(iterations)
    return Recording(
        np.zeros(iterations, dtype=np.int64), iterations_T, np.arange(ranks), numbers, sums, present, layout
    )


def changed(
    run: Recording, change: Callable[[MutableMapping[str, Any], MutableMapping[str, Any]], None]
) -> Recording:
    """A copy whose numbers and checksums ``change`` may write to."""
    numbers = {name: values.copy() for name, values in run.numbers.items()}
    sums = {name: values.copy() for name, values in run.checksums.items()}
    change(numbers, sums)
    return Recording(run.attempts_T, run.iterations_T, run.ranks_R, numbers, sums, run.present, run.layout)


def with_metric(run: Recording, metric: str, values: Floats) -> Recording:
    """A copy that reports one metric more, everywhere."""
    numbers, present = dict(run.numbers), dict(run.present)
    numbers[metric], present[metric] = values, np.ones(values.shape, dtype=np.bool_)
    return Recording(
        run.attempts_T, run.iterations_T, run.ranks_R, numbers, run.checksums, present, run.layout
    )


def with_number(run: Recording, metric: str, values: Floats | float, where: object) -> Recording:
    """A copy with ``values`` added to one metric at ``where`` (NaN and infinity replace)."""

    def change(numbers: MutableMapping[str, Any], _: MutableMapping[str, Any]) -> None:
        numbers[metric][where] = numbers[metric][where] + values

    return changed(run, change)


def with_checksum(run: Recording, metric: str, where: object) -> Recording:
    """A copy with other bits in one checksum at ``where``."""

    def change(_: MutableMapping[str, Any], sums: MutableMapping[str, Any]) -> None:
        sums[metric][where] += np.uint64(7)

    return changed(run, change)
