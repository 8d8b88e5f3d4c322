"""One run in the pipeline: its alignment, a judge and a curve for each attempt, and where it came from."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from detectors.judge import AttemptJudge
from detectors.registry import DetectorsConfig
from firstfault.telemetry import Event, EventKind
from ingest.alignment import AlignmentConfig, RunAligner
from ingest.blocks import IterationBlock

from .curves import CurveFold, CurvePoint


class RunFold:
    """The state of one run after all of its records so far."""

    def __init__(
        self, name: str, config: AlignmentConfig, detectors: DetectorsConfig, *, keeps_curves: bool = True
    ) -> None:
        self.name = name
        self.keeps_curves = keeps_curves
        self.detectors = detectors
        self.aligner = RunAligner(name, config)
        self.judges: dict[int, AttemptJudge] = {}
        self.curves: dict[int, CurveFold] = {}
        self.is_dirty = True
        """Whether something came since its last verdict."""
        self.is_unsaved = True
        """Whether something came since it was last saved."""
        self.records = 0
        self.newest_time = math.nan
        """Seconds since 1970 of the newest record that had a time."""
        self.parts: set[str] = set()
        """Parts of the source that it was seen in."""
        self.ended_attempt = -1
        """The newest attempt that has said that it is over; -1 for none."""

    def take(self, blocks: Iterable[IterationBlock]) -> None:
        """Judge settled blocks."""
        for block in blocks:
            if block.attempt not in self.judges:
                self.judges[block.attempt] = self.new_judge(block.attempt)
            self.judges[block.attempt].update(block)
            if self.keeps_curves:
                self.curves.setdefault(block.attempt, CurveFold()).update(block)

    def note_events(self, events: Iterable[Event]) -> None:
        """Look whether the run says that it is over."""
        for event in events:
            if event.kind is EventKind.RUN_END:
                self.ended_attempt = max(self.ended_attempt, event.attempt)

    @property
    def has_ended(self) -> bool:
        """Whether its newest attempt has said that it is over."""
        return 0 <= max(self.aligner.attempts, default=0) <= self.ended_attempt

    def new_judge(self, attempt: int) -> AttemptJudge:
        """A judge that has seen nothing of ``attempt`` yet."""
        return AttemptJudge(attempt, self.aligner.config.lateness_iterations, self.detectors)

    def curve_points(self, *, ended: bool) -> dict[int, dict[str, list[CurvePoint]]]:
        """Per attempt and metric the curve; with ``ended`` what has not settled is part of it."""
        found: dict[int, dict[str, list[CurvePoint]]] = {}
        for attempt, aligner in sorted(self.aligner.attempts.items()):
            fold = CurveFold()
            fold.restore(self.curves[attempt].snapshot() if attempt in self.curves else {})
            for block in aligner.pending() if ended else []:
                fold.update(block)
            found[attempt] = {metric: fold.points(metric) for metric in fold.metrics()}
        return found

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        return {
            "aligner": self.aligner.snapshot(),
            "judges": [[attempt, judge.snapshot()] for attempt, judge in sorted(self.judges.items())],
            "curves": [[attempt, fold.snapshot()] for attempt, fold in sorted(self.curves.items())],
            "dirty": self.is_dirty,
            "records": self.records,
            "newest_time": None if math.isnan(self.newest_time) else self.newest_time,
            "parts": sorted(self.parts),
            "ended_attempt": self.ended_attempt,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from what `snapshot` gave."""
        self.aligner.restore(saved["aligner"])
        for attempt, state in saved["judges"]:
            self.judges[attempt] = self.new_judge(attempt)
            self.judges[attempt].restore(state)
        for attempt, state in saved["curves"]:
            self.curves[attempt] = CurveFold()
            self.curves[attempt].restore(state)
        self.is_dirty, self.records, self.parts = saved["dirty"], saved["records"], set(saved["parts"])
        self.ended_attempt = saved["ended_attempt"]
        self.newest_time = math.nan if saved["newest_time"] is None else saved["newest_time"]
