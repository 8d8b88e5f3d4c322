"""Arrange history in one call: settled blocks of noise with faults in it, written and read back.

Axes: T positions, R ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ingest.blocks import Flags, Floats, IterationBlock
from service.history_config import HistoryConfig
from service.history_writer import HistoryWriter
from service.pipeline import Pipeline
from service.run_id import run_id_of
from tests.block_builders import block, masked

RUN = run_id_of("run")
EVERYTHING = HistoryConfig(keep_free_bytes=0)
"""The defaults, on a disk however full."""


def noise(
    positions: int, ranks: int = 4, *, start: int = 0, stride: int = 1, seed: int = 0, attempt: int = 0
) -> IterationBlock:
    """A loss with one cell in ten of each: NaN, +Inf, -Inf, not reported; and a checksum."""
    rng = np.random.default_rng([seed, start])
    values_TR = rng.normal(size=(positions, ranks))
    kind_TR = rng.integers(0, 10, size=values_TR.shape)
    for kind, value in ((0, np.nan), (1, np.inf), (2, -np.inf)):
        values_TR[kind_TR == kind] = value
    return block(
        {"loss": masked(values_TR, kind_TR == 3)},
        param_checksum=rng.integers(0, 1 << 62, size=values_TR.shape),
        iterations=start + stride * np.arange(positions),
        attempt=attempt,
    )


def write(folder: Path, *blocks: IterationBlock, config: HistoryConfig = EVERYTHING) -> HistoryWriter:
    """A writer that wrote the blocks, a file each."""
    writer = HistoryWriter(folder, config)
    for one in blocks:
        writer.update(one)
        assert writer.flush()
    return writer


def named(one: IterationBlock, run: str) -> IterationBlock:
    """The block as one of another run."""
    return dataclasses.replace(one, run=run)


def losses(blocks: Sequence[IterationBlock]) -> tuple[Floats, Flags]:
    """All losses of blocks with the same ranks, and which were reported."""
    found = [one.numbers["loss"] for one in blocks]
    return np.concatenate([o.values_TR for o in found]), np.concatenate([o.present_TR for o in found])


def plain_summary(values_TR: Floats, present_TR: Flags) -> dict[str, list[Any]]:
    """What a summary must say of each position, by plain numpy, one row after the other."""
    rows: dict[str, list[Any]] = {}
    for value_R, present_R in zip(values_TR, present_TR, strict=True):
        finite_R = value_R[present_R & np.isfinite(value_R)]
        reported = value_R[present_R]
        has_any = len(finite_R) > 0
        one = {
            "reported": len(reported),
            "missing": len(value_R) - len(reported),
            "nan": sum(np.isnan(reported)),
            "posinf": sum(reported == np.inf),
            "neginf": sum(reported == -np.inf),
            "min": min(finite_R, default=np.nan),
            "p25": np.percentile(finite_R, 25) if has_any else np.nan,
            "median": np.median(finite_R) if has_any else np.nan,
            "p75": np.percentile(finite_R, 75) if has_any else np.nan,
            "max": max(finite_R, default=np.nan),
            "min_rank": int(np.flatnonzero(value_R == min(finite_R))[0]) if has_any else -1,
            "max_rank": int(np.flatnonzero(value_R == max(finite_R))[0]) if has_any else -1,
        }
        for name, value in one.items():
            rows.setdefault(name, []).append(value)
    return rows


def pending_of(pipeline: Pipeline, run: str) -> list[IterationBlock]:
    """What would settle if the input of the run ended now."""
    return [one for aligner in pipeline.aligners(run) for one in aligner.pending()]
