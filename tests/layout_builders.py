"""Small jobs of every layout of the rig, with faults, and what their ranks say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from firstfault.drill.rig import LAYOUTS, Fault, Job, Kind, LayoutName, ModelSize, RigTraining, Site, Watch
from firstfault.telemetry import Event, Record, Value

STRIKE = 5
"""Iteration in which faults strike, or the first one from there on that has their site."""
ITERATIONS = 12
"""Two more than the second outer step of local SGD."""
_LOCAL_STRIKE = 9
"""An outer step of local SGD."""


def layout_job(name: LayoutName, *, iterations: int = ITERATIONS, **watch: int) -> Job:
    """A job of a layout that looks at everything in each iteration."""
    is_piped = name is LayoutName.PP4_TP2_DP2
    looks = {"optim_checksum": 1, "canary": 2, "checkpoint": 4, "recompute": 0, "gathered_checksum": 1}
    looks |= watch
    return Job(
        seed=3,
        run=name.value,
        layout=LAYOUTS[name],
        iterations=iterations,
        model=ModelSize(layers=4 if is_piped else 2),
        training=RigTraining(warmup_iterations=4),
        watch=Watch(**looks),
    )


def fault(kind: Kind, site: Site, rank: int | None, **more: Any) -> Fault:
    """A fault that strikes at `STRIKE`."""
    return Fault(kind=kind, site=site, rank=rank, **{"iteration": STRIKE, **more})


SHARD_OWNER = fault(Kind.SHARD_OWNER, Site.FIRST_MOMENT, 3, bit=28)
WRONG_GATHER = fault(Kind.WRONG_GATHER, Site.GATHER, 3)
NORM_DESYNC = fault(Kind.NORM_DESYNC, Site.REDUCE_OUT, 5, lasts=None)
TIED_DESYNC = fault(Kind.TIED_DESYNC, Site.REDUCE_OUT, 13, lasts=None)
TP_DESYNC = fault(Kind.TP_DESYNC, Site.REDUCE_OUT, 5, lasts=None, magnitude=1e-3)
NAN_MESSAGE = fault(Kind.NAN, Site.MESSAGE, 6, place="activation")
WRONG_MESSAGE = fault(Kind.CORRUPT_MESSAGE, Site.MESSAGE, 5, place="activation", count=64)
WRONG_TOKENS = fault(Kind.CORRUPT_MESSAGE, Site.MESSAGE, 5, place="dispatch", count=64)
SAME_DATA = fault(Kind.DUPLICATE_DATA, Site.DATA, 3, lasts=None)
FLIPPED_COPY = fault(Kind.BIT_FLIP, Site.REDUCE_OUT, 3, bit=27)
FLIPPED_PARAMETER = fault(Kind.BIT_FLIP, Site.PARAMETER, 3, bit=25)
LOST_CONTRIBUTION = fault(Kind.DROPPED, Site.REDUCE_IN, 3, lasts=None)
LOST_IN_OUTER_STEP = fault(Kind.DROPPED, Site.REDUCE_IN, 3, iteration=_LOCAL_STRIKE)
ALONE_IN_OUTER_STEP = fault(Kind.MISSING_SYNC, Site.REDUCE_OUT, 3, iteration=_LOCAL_STRIKE)
FAULTS: Mapping[LayoutName, Sequence[Fault]] = {
    LayoutName.DP: (),
    LayoutName.PP4_TP2_DP2: (NORM_DESYNC, TIED_DESYNC, TP_DESYNC, NAN_MESSAGE, WRONG_MESSAGE, SAME_DATA),
    LayoutName.ZERO1: (SHARD_OWNER, WRONG_GATHER, FLIPPED_COPY),
    LayoutName.FULL_SHARD: (SHARD_OWNER, WRONG_GATHER, LOST_CONTRIBUTION),
    LayoutName.EXPERT: (FLIPPED_PARAMETER, WRONG_TOKENS),
    LayoutName.LOCAL_SGD: (FLIPPED_PARAMETER, LOST_IN_OUTER_STEP, ALONE_IN_OUTER_STEP),
}
"""The faults that are tried in each layout."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a job said."""

    job: Job
    said: Sequence[Record | Event]
    placed: Mapping[tuple[int, int], Mapping[str, Value]]
    """Metrics by (iteration, rank)."""

    def of(self, iteration: int, metric: str) -> list[Value | None]:
        """The metric of every rank, in rank order; None where a rank does not report it."""
        ranks = range(self.job.layout.ranks)
        return [self.placed[iteration, rank].get(metric) for rank in ranks]

    def odd(self, iteration: int, metric: str, peers: Sequence[int]) -> list[int]:
        """Those of ``peers`` whose metric is not that of most of them; all, where there is no majority."""
        column = self.of(iteration, metric)
        values = [column[rank] for rank in peers]
        return [
            rank for rank, value in zip(peers, values, strict=True) if 2 * values.count(value) <= len(values)
        ]

    def differing(self, other: Said, iteration: int, metric: str) -> list[int]:
        """The ranks whose metric differs from that of another run."""
        pairs = zip(self.of(iteration, metric), other.of(iteration, metric), strict=True)
        return [rank for rank, (one, another) in enumerate(pairs) if one != another]


@cache
def said_by(name: LayoutName) -> Mapping[Fault | None, Said]:
    """The golden twin of a layout's job (None), and each of its `FAULTS`, all of one fork."""
    from firstfault.drill.rig.engine import fork

    job = layout_job(name)
    tail = 5 if name is LayoutName.LOCAL_SGD else 3  # to its outer step
    return {one.fault: _said(job, one.said) for one in fork(job, FAULTS[name], tail_iterations=tail)}


def write(said: Sequence[Record | Event], path: Path) -> Path:
    """Write the log of a run: its path."""
    from firstfault.wire import encode_event, encode_record

    lines = [encode_record(one) if isinstance(one, Record) else encode_event(one) for one in said]
    path.write_text("\n".join(lines) + "\n")
    return path


def _said(job: Job, said: Sequence[Record | Event]) -> Said:
    records = [one for one in said if isinstance(one, Record)]
    return Said(job, said, {(one.iteration, one.rank): one.metrics for one in records})
