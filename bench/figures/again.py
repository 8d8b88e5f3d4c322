"""Pictures of `reference`: an attempt that repeats iterations of the one before, and two logs by windows.

Axes: T common points.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from detectors import reference_windows as windows
from detectors.facts import AttemptFindings
from detectors.reference import _repeated, meet
from detectors.reference_nulls import nanmean
from ingest.blocks import Floats, IterationBlock
from ingest.decode import Decoder, RawMessage
from service.pipeline import Pipeline
from tests.block_builders import block

from .drawing import Drawn
from .svg import Figure, Line, Panel
from .trace import Trace, describe, log_lines, marks_of

RANKS, CHECK_EACH = 8, 5


def fires() -> Drawn:
    """From 160 on the repetition gives other parameters, the same wrong ones on all ranks."""
    return _attempts(
        "reference fires: 160 and after are not what they were at the first time", list(_run(160)), 160
    )


def quiet() -> Drawn:
    """The sample log ``restart``: a deterministic job that died and went on from its checkpoint."""
    return _attempts("reference stays quiet: a restart that computes the same again", log_lines("restart"))


def by_windows() -> Drawn:
    """`firstfault compare` of a run with one whose loss rises by 3 %, and with one of other noise."""
    one, two, off = (_curve(seed, rise) for seed, rise in ((1, 0.0), (2, 0.0), (3, 0.03)))
    panels, captions = [], []
    for name, other in (("3 % higher from 1200 on", off), ("the same job, other noise", two)):
        panel, caption = _windows(name, one, other)
        panels.append(panel)
        captions.append(caption)
    figure = Figure(
        title="firstfault compare, by windows of 100 points: one differs, the other does not",
        caption=" ".join(captions),
        x_label="iteration",
        panels=panels,
    )
    return Drawn(figure)


def _attempts(title: str, lines: list[bytes], onset: int | None = None) -> Drawn:
    pipeline = Pipeline()
    pipeline.feed(Decoder().decode([RawMessage("sample", 0, b"\n".join(lines))]))
    (name,) = pipeline.runs
    run = pipeline._runs[name]
    earlier, later = (pipeline._findings(run, aligner, ended=True) for aligner in pipeline.aligners(name))
    met = meet(later, [earlier], [])
    repeated = list(_repeated(earlier.trail, later.trail))
    trace = _told(met, later)
    differing = [float((~one.equal_R).sum()) for one in repeated]
    x_K = [float(one.row.iteration) for one in repeated]
    trace.iterations = [int(x) for x in x_K]
    panel = Panel(
        label="ranks whose checksum is not that of the earlier attempt",
        floor=0.0,
        top=8.0,
        lines=[
            Line(x_K=x_K, y_K=[0.0] * len(x_K), role="limit", name="a fault above"),
            Line(x_K=x_K, y_K=differing, name="at each check", dots=True),
        ],
    )
    marks, span = marks_of(trace, onset)
    figure = Figure(
        title=title,
        caption=f"{len(repeated)} checksums compared. {describe(trace)}",
        x_label="iteration",
        panels=[panel],
        marks=marks,
        span=span,
    )
    return Drawn(figure)


def _told(met: AttemptFindings, alone: AttemptFindings) -> Trace:
    """What meeting the earlier attempt added to the findings of the later one."""
    trace = Trace()
    for one in met.evidence:
        if one not in alone.evidence:
            trace.keep(one.alarm_iteration, [one])
    trace.keep(0, [one for one in met.annotations if one not in alone.annotations])
    return trace


def _run(wrong_from: int) -> Iterator[bytes]:
    """Two attempts; the second repeats 100 to 200, and from ``wrong_from`` on computes something else."""
    for attempt, (start, stop) in enumerate(((0, 200), (100, 260))):
        yield _line(attempt, start, 0, event="run_start", world_size=RANKS, deterministic=True)
        for iteration in range(start, stop):
            is_wrong = attempt == 1 and iteration >= wrong_from
            checked = {"param_checksum": f"{iteration * 7919 + (1 << 40) * is_wrong + 11:016x}"}
            for rank in range(RANKS):
                yield _line(
                    attempt, iteration, rank, **(checked if iteration % CHECK_EACH == 0 else {"loss": 2.0})
                )


def _line(attempt: int, iteration: int, rank: int, **fields: object) -> bytes:
    return json.dumps(
        {"run": "seeded", "attempt": attempt, "rank": rank, "iteration": iteration, **fields}
    ).encode()


def _curve(seed: int, rise: float) -> IterationBlock:
    t = np.arange(2000)
    loss_T = (2.0 + 2.0 * np.exp(-t / 300)) * np.exp(np.random.default_rng(seed).normal(0.0, 0.02, len(t)))
    loss_T[1200:] *= 1.0 + rise
    return block(loss=loss_T)


def _windows(name: str, one: IterationBlock, two: IterationBlock) -> tuple[Panel, str]:
    """The window means that are judged, as `reference_windows` takes them, and the bounds it found."""
    (answer,) = windows.compare_windows(one, two)
    size = answer.window_points
    difference_T: Floats = windows._relative(*(each.numbers["loss"].values_TR[:, 0] for each in (one, two)))
    difference_T = np.where(windows._spikes(difference_T), np.nan, difference_T)
    start = int(len(difference_T) * windows._SKIPPED_SHARE)
    edges = range(start, len(difference_T) - size + 1, size)
    x_K = [at + size / 2 for at in edges]
    mean_K = [100 * nanmean(difference_T[at : at + size]) for at in edges]
    low, high = (100 * (answer.level + sign * answer.threshold) for sign in (-1, 1))
    panel = Panel(
        label=f"difference of window means, %: {name}",
        floor=-4.0,
        top=4.0,
        lines=[
            Line(x_K=x_K, y_K=[high] * len(x_K), role="limit", name="differs beyond"),
            Line(x_K=x_K, y_K=[low] * len(x_K), role="limit"),
            Line(x_K=x_K, y_K=mean_K, name="window mean", dots=True),
        ],
    )
    where = (
        "" if answer.first_from is None else f", first in iterations {answer.first_from} to {answer.first_to}"
    )
    threshold = f"threshold {100 * answer.threshold:.2g} % from the {answer.null}"
    return panel, f"{name}: {answer.verdict}{where}; {threshold}."
