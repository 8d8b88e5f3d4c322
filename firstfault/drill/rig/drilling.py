"""One drill of the rig as a person asks for it: names and numbers become a job and a fault, and a log.

Standard library only, until a job runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from ...telemetry import Event, Record
from ..log import Progress, log_lines, log_path, write_log
from ..plans import MAX_SEED, DrillError, require_torch
from .catalogue import CATALOGUE, check, usual
from .layouts import LAYOUTS, next_at, ranks_at
from .spec import Fault, Job, Kind, Layout, LayoutName, ModelSize, Site
from .training import Restart, RigTraining

ENGINES = ("virtual", "processes")
_ITERATIONS = 600
"""Long enough that a slow fault shows behind one that strikes in the middle."""
_SGD_LR = 0.2
"""Learning rate of SGD: fifty times that of AdamW trains the same model."""
_MAX_MAGNITUDE = 1e30
"""Far over any usual one, and a float32 still holds the factor of an error of that size."""
Name = TypeVar("Name", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class RigDrill:
    """What is asked for. None takes the kind's usual value, or one drawn from the seed."""

    kind: str | None = None
    """None trains without a fault."""
    site: str | None = None
    layout: str | None = None
    ranks: int | None = None
    iterations: int | None = None
    seed: int | None = None
    rank: int | None = None
    at: int | None = None
    """First iteration in which the fault acts."""
    lasts: int | None = None
    """Iterations; 0 until the end."""
    rate: float | None = None
    bit: int | None = None
    dtype: str | None = None
    magnitude: float | None = None
    count: int | None = None
    place: str | None = None
    optimizer: str | None = None
    precision: str | None = None
    engine: str = "virtual"


def planned(drill: RigDrill) -> tuple[Job, Fault | None]:
    """The job and the fault of a drill: the same drill, the same of both.

    >>> job, fault = planned(RigDrill(kind="bit_flip", site="parameter", seed=4))
    >>> fault.site, 150 <= fault.iteration < 450, fault.rank < job.layout.ranks
    (<Site.PARAMETER: 'parameter'>, True, True)

    Raises:
        DrillError: a name is unknown, a value out of range, or the fault does not fit the job.
    """
    if drill.engine not in ENGINES:
        raise DrillError(f"engine must be {' or '.join(ENGINES)}, got {drill.engine!r}")
    if drill.iterations is not None and drill.iterations < 1:  # before a fault is drawn inside them
        raise DrillError(f"iterations must be >= 1, got {drill.iterations}")
    if drill.seed is not None and not 0 <= drill.seed <= MAX_SEED:
        raise DrillError(f"seed must be from 0 to {MAX_SEED}, got {drill.seed}")
    if drill.magnitude is not None and not 0 < drill.magnitude <= _MAX_MAGNITUDE:
        raise DrillError(f"magnitude must be over 0 and at most {_MAX_MAGNITUDE:g}, got {drill.magnitude}")
    layout = _layout(drill)
    fault = None if drill.kind is None else _fault(drill, layout)
    job = Job(
        seed=drill.seed or 0,
        run=drill.kind or "healthy",
        layout=layout,
        iterations=_iterations(drill),
        model=ModelSize(layers=max(2, layout.size("pp"))),
        training=_training(drill, fault),
    )
    check(job, fault)
    return job, fault


def write_drill(
    drill: RigDrill, out: Path | None = None, twin: Path | None = None, progress: Progress | None = None
) -> Path:
    """Run a drill and write its log, and the log of the same job without the fault to ``twin``.

    The twin's run is named after the other, with ``-twin``.

    Raises:
        DrillError: as of `planned`; or torch is not installed.
        OSError: a log cannot be written.
    """
    job, fault = planned(drill)
    if twin is not None and fault is None:
        raise DrillError("a twin is the run without the fault: it needs a kind")
    path = log_path(job.run, out)
    # A name of its own: the two may lie in one folder, or be sent to one service.
    healthy = replace(job, run=f"{job.run}-twin")
    twin_path = None if twin is None else log_path(healthy.run, twin)
    if twin_path is not None and twin_path.resolve() == path.resolve():
        raise DrillError(f"twin must be another file than the log with the fault, got {str(twin_path)!r}")
    write_log(log_lines(_said(drill, job, fault), job.iterations, progress), path)
    if twin_path is not None:
        write_log(log_lines(_said(drill, healthy, None), healthy.iterations, progress), twin_path)
    return path


def _said(drill: RigDrill, job: Job, fault: Fault | None) -> Iterator[Record | Event]:
    require_torch()
    if drill.engine == "processes":
        from .processes import run_in_processes

        return run_in_processes(job, fault)
    from .engine import run

    return run(job, fault)


def _fault(drill: RigDrill, layout: Layout) -> Fault:
    kind = _named(Kind, "kind", drill.kind)
    entry = CATALOGUE.get(kind)
    if entry is None:
        raise DrillError(f"kind must be one of {', '.join(CATALOGUE)}, got {drill.kind!r}")
    site = entry.sites[0] if drill.site is None else _named(Site, "site", drill.site)
    rng = random.Random(f"{kind}/{drill.seed or 0}")
    iterations = _iterations(drill)
    drawn = rng.randrange(max(1, iterations // 4), max(2, 3 * iterations // 4))
    at = min(next_at(layout, site, drawn), iterations - 1)
    rank = rng.choice(ranks_at(layout, site, kind))
    fault = usual(kind, at, rank=rank, site=site, seed=drill.seed or 0)
    given: dict[str, Any] = {
        "iteration": drill.at,
        "rank": drill.rank,
        "lasts": drill.lasts or None,
        "rate": drill.rate,
        "bit": drill.bit,
        "dtype": drill.dtype,
        "magnitude": drill.magnitude,
        "count": drill.count,
        "place": drill.place,
    }
    fault = replace(fault, **{name: value for name, value in given.items() if value is not None})
    return replace(fault, lasts=None) if drill.lasts == 0 else fault


def _training(drill: RigDrill, fault: Fault | None) -> RigTraining:
    """The usual training, with what the site of the fault needs."""
    site = None if fault is None else fault.site
    training = RigTraining(
        optimizer=drill.optimizer or "adamw",
        precision="fp16" if site is Site.LOSS_SCALE else drill.precision or "fp32",
    )
    if drill.optimizer == "sgd":
        training = replace(training, peak_lr=_SGD_LR, weight_decay=0.0)
    if fault is not None and site is Site.CHECKPOINT:
        training = replace(training, restarts=(Restart(iteration=fault.iteration),))
    return training


def _iterations(drill: RigDrill) -> int:
    return _ITERATIONS if drill.iterations is None else drill.iterations


def _layout(drill: RigDrill) -> Layout:
    name = _named(LayoutName, "layout", drill.layout or _usual_layout(drill))
    layout = LAYOUTS[name]
    if drill.ranks is None or drill.ranks == layout.ranks:
        return layout
    if len(layout.mesh) > 1:
        raise DrillError(f"ranks of layout {name} must be {layout.ranks}, got {drill.ranks}")
    return replace(layout, ranks=drill.ranks, mesh=((layout.mesh[0][0], drill.ranks),))


def _usual_layout(drill: RigDrill) -> LayoutName:
    """Plain data parallel, or the first layout that the kind needs."""
    entry = CATALOGUE.get(_named(Kind, "kind", drill.kind)) if drill.kind else None
    return LayoutName.DP if entry is None or LayoutName.DP in entry.layouts else entry.layouts[0]


def _named(names: type[Name], what: str, value: str | None) -> Name:
    try:
        return names(value or "")
    except ValueError:
        raise DrillError(f"{what} must be one of {', '.join(names)}, got {value!r}") from None
