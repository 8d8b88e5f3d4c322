"""What is kept of a run while it is read so that it can be drawn afterwards: bounded, whatever its length.

pictures = Pictures()
pipeline = Pipeline(…, on_block=pictures.update)
…                                               # all records
pictures.take("llama-7b", pipeline.aligners("llama-7b"), onset)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from detectors.reports import is_report
from firstfault.telemetry import UNNAMED_RANK, Event, EventKind
from ingest.alignment import AttemptAligner
from ingest.blocks import IterationBlock

from .picture_curve import CurveBucket, CurveFolder
from .picture_ranks import RankFolder, RankStrip, kind_of

MAX_CURVES = 48
"""Metrics of an attempt that are kept: a log with more of them has one for each layer."""
MAX_STRIPS = 16
"""Metrics of an attempt kept for every rank; 2.6 MB each at most."""
MAX_MARKS = 400
"""Events kept of one kind: more cannot be told apart in a chart."""
_MARKED = frozenset(EventKind) - {EventKind.HEARTBEAT, EventKind.RUN_START, EventKind.MEMBERSHIP}
_FIRST = ("loss", "global_loss", "grad_norm", "local_grad_norm", "lr", "step_time_s")
"""Metrics that are kept whatever else there is."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at an iteration, to be pointed at."""

    kind: str
    iteration: int
    rank: int | None = None
    fields: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AttemptPicture:
    """One attempt: its curves by metric, its strips, its events."""

    attempt: int
    curves: Mapping[str, Sequence[CurveBucket]]
    strips: Mapping[str, RankStrip]
    marks: Sequence[Mark] = ()
    marks_left_out: Mapping[str, int] = field(default_factory=dict)


class Pictures:
    """Folds the settled blocks of any number of runs."""

    def __init__(self) -> None:
        self._attempts: dict[str, dict[int, _AttemptFold]] = {}

    def update(self, block: IterationBlock) -> None:
        """Take the next settled block."""
        self._fold(block.run, block.attempt).update(block)

    def take(
        self, run: str, aligners: Iterable[AttemptAligner], onset: tuple[int, int] | None
    ) -> list[AttemptPicture]:
        """The attempts of ``run`` in order, with what has not settled; ``onset`` is (attempt, iteration).

        What was kept of the run is let go of.
        """
        for aligner in aligners:
            for block in aligner.pending():
                self.update(block)
        folds = self._attempts.pop(run, {})
        at = {} if onset is None else dict([onset])
        return [fold.picture(attempt, at.get(attempt)) for attempt, fold in sorted(folds.items())]

    def _fold(self, run: str, attempt: int) -> _AttemptFold:
        return self._attempts.setdefault(run, {}).setdefault(attempt, _AttemptFold())


class _AttemptFold:
    def __init__(self) -> None:
        self._curves: dict[str, CurveFolder] = {}
        self._strips: dict[str, RankFolder] = {}
        self._marks: dict[str, list[Mark]] = {}
        self._left_out: Counter[str] = Counter()

    def update(self, block: IterationBlock) -> None:
        for event in block.events:
            if not is_report(event):  # the verdict tells of those, where they belong
                self._note(event)
        for metric, number in block.numbers.items():
            if metric in self._curves or metric in _FIRST or len(self._curves) < MAX_CURVES:
                self._curves.setdefault(metric, CurveFolder()).update(block.iteration_T, number)
        if len(block.ranks_R) > 1:
            for metric in (*block.numbers, *block.checksums):
                if metric in self._strips or metric in _FIRST or len(self._strips) < MAX_STRIPS:
                    self._strips.setdefault(metric, RankFolder(metric, kind_of(block, metric))).update(block)

    def picture(self, attempt: int, onset: int | None) -> AttemptPicture:
        strips = {metric: fold.strip(onset) for metric, fold in self._strips.items()}
        return AttemptPicture(
            attempt=attempt,
            curves={metric: found for metric, fold in self._curves.items() if (found := fold.buckets())},
            strips={metric: strip for metric, strip in strips.items() if strip is not None},
            marks=sorted(
                (mark for marks in self._marks.values() for mark in marks),
                key=lambda mark: (mark.iteration, mark.kind),
            ),
            marks_left_out=dict(self._left_out),
        )

    def _note(self, event: Event) -> None:
        if event.kind not in _MARKED:
            return
        kept = self._marks.setdefault(event.kind.value, [])
        rank = None if event.rank == UNNAMED_RANK else event.rank
        if kept and (kept[-1].kind, kept[-1].iteration) == (event.kind.value, event.iteration):
            return  # every rank says it
        if len(kept) >= MAX_MARKS:
            self._left_out[event.kind.value] += 1
            return
        kept.append(Mark(event.kind.value, event.iteration, rank, dict(event.fields)))
