"""From record batches to verdicts: what the worker and replay share.

    RecordBatch → RunAligner → IterationBlock → AttemptJudge → AttemptFindings → fuse → Verdict

A verdict never needs to wait for anything: it is what would be concluded if the input ended now, and
the settled state it starts from is not touched by asking.

Who wants the settled blocks themselves (telemetry history does) gives ``on_block``: it is called with each,
once and in order, after it was judged; what is only pending can be asked for (`Pipeline.pending`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detectors.facts import AttemptFindings, InputFacts
from detectors.fuse import fuse
from detectors.judge import AttemptJudge
from detectors.registry import DetectorsConfig
from detectors.verdict import Verdict
from firstfault.telemetry import Event
from ingest.alignment import AlignmentConfig, AttemptAligner, RunAligner
from ingest.blocks import Ints, IterationBlock, RecordBatch

from .curves import CurveFold, CurvePoint
from .snapshot import from_bytes, to_bytes

STATE_VERSION = 2
"""Raised when what a checkpoint holds changes its meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineConfig:
    """How records become verdicts."""

    alignment: AlignmentConfig = field(default_factory=AlignmentConfig)
    max_runs: int = 4096
    """Runs held at once; records of a further one are rejected, so that random run ids cannot push
    out the runs that are watched."""

    def __post_init__(self) -> None:
        if self.max_runs < 1:
            raise ValueError(f"pipeline.max_runs must be >= 1, got {self.max_runs}")


class _Run:
    """One run: its alignment, a judge and a curve for each attempt."""

    def __init__(self, name: str, config: AlignmentConfig, detectors: DetectorsConfig) -> None:
        self.name = name
        self.detectors = detectors
        self.aligner = RunAligner(name, config)
        self.judges: dict[int, AttemptJudge] = {}
        self.curves: dict[int, CurveFold] = {}
        self.is_dirty = True
        self.records = 0

    def take(self, blocks: list[IterationBlock]) -> None:
        for block in blocks:
            if block.attempt not in self.judges:
                self.judges[block.attempt] = self.new_judge(block.attempt)
            self.judges[block.attempt].update(block)
            self.curves.setdefault(block.attempt, CurveFold()).update(block)

    def new_judge(self, attempt: int) -> AttemptJudge:
        """A judge that has seen nothing of ``attempt`` yet."""
        return AttemptJudge(attempt, self.aligner.config.lateness_iterations, self.detectors)


class Pipeline:
    """Any number of runs from record batches to verdicts."""

    def __init__(
        self,
        config: PipelineConfig | None = None,
        detectors: DetectorsConfig | None = None,
        *,
        on_block: Callable[[IterationBlock], None] | None = None,
    ) -> None:
        """``on_block`` is shown every settled block once, in order."""
        self.config = config or PipelineConfig()
        self.detectors = detectors or DetectorsConfig()
        self.on_block = on_block
        self._runs: dict[str, _Run] = {}
        self.rejected: Counter[str] = Counter()
        """What could not be attributed to a run, by field and rule."""
        self.records = 0

    @property
    def runs(self) -> list[str]:
        """Names of the runs seen, in order of first record."""
        return list(self._runs)

    def feed(self, batch: RecordBatch) -> None:
        """Take the next records; settled iterations are judged at once."""
        self.records += len(batch)
        for rejected in batch.rejected:
            self.rejected[f"{rejected.field}: {rejected.rule}"] += 1
        if batch.rejected and len(self._runs) == 1:
            self._mark_dirty()  # it counts towards the only run
        for name, rows, events in _by_run(batch):
            run = self._run(name)
            if run is None:
                limit = f"run: at most {self.config.max_runs} at once"
                self.rejected[limit] += len(events) + len(rows)
                continue
            run.is_dirty = True
            run.records += len(rows)
            settled = run.aligner.push(batch, rows, events)
            run.take(settled)
            if self.on_block is not None:
                for block in settled:
                    self.on_block(block)
        for row, label, text in batch.labels:
            known = self._runs.get(batch.runs[int(batch.run_N[row])])
            if known is not None:
                attempt, rank = int(batch.attempt_N[row]), int(batch.rank_N[row])
                known.aligner.note_label(attempt, rank, int(batch.iteration_N[row]), label, text)

    def dirty_runs(self) -> list[str]:
        """Runs that have got records since their last verdict."""
        return [name for name, run in self._runs.items() if run.is_dirty]

    def verdict(self, name: str, *, ended: bool = True) -> Verdict:
        """The verdict of a run from all of its records.

        With ``ended`` every record counts: the canonical verdict once no more will come. Without,
        iterations that some live rank has yet to report are left out, since half of a vote is none.
        """
        run = self._runs[name]
        run.is_dirty = False
        attempts = [
            self._findings(run, aligner, ended=ended) for _, aligner in sorted(run.aligner.attempts.items())
        ]
        return fuse(name, attempts, self._inputs(run))

    def verdicts(self, *, ended: bool = True) -> list[Verdict]:
        """The verdict of every run, in order of first record."""
        return [self.verdict(name, ended=ended) for name in self._runs]

    def pending(self, name: str) -> list[IterationBlock]:
        """What would settle if the input of a run ended now; later records may still change it."""
        aligners = sorted(self._runs[name].aligner.attempts.items())
        return [block for _, aligner in aligners for block in aligner.pending()]

    def curves(self, name: str, *, ended: bool = True) -> dict[int, dict[str, list[CurvePoint]]]:
        """Per attempt and metric the curve of a run, at most `MAX_BUCKETS` points each."""
        run = self._runs[name]
        found: dict[int, dict[str, list[CurvePoint]]] = {}
        for attempt, aligner in sorted(run.aligner.attempts.items()):
            fold = CurveFold()
            fold.restore(run.curves[attempt].snapshot() if attempt in run.curves else {})
            for block in aligner.pending() if ended else []:
                fold.update(block)
            found[attempt] = {metric: fold.points(metric) for metric in fold.metrics()}
        return found

    def snapshot(self) -> bytes:
        """The whole state, for a checkpoint."""
        return to_bytes(
            {
                "version": STATE_VERSION,
                "records": self.records,
                "rejected": dict(self.rejected),
                "runs": [[name, _run_state(run)] for name, run in self._runs.items()],
            }
        )

    def restore(self, data: bytes) -> None:
        """Continue from what `snapshot` gave.

        Raises:
            SnapshotError: damaged bytes.
            ValueError: written by a release with another state.
        """
        state = from_bytes(data)
        if state["version"] != STATE_VERSION:
            raise ValueError(f"checkpoint version must be {STATE_VERSION}, got {state['version']}")
        self.records, self.rejected = state["records"], Counter(state["rejected"])
        self._runs = {}
        for name, saved in state["runs"]:
            self._runs[name] = _restored(saved, self._new_run(name))

    def _run(self, name: str) -> _Run | None:
        run = self._runs.get(name)
        if run is None and len(self._runs) < self.config.max_runs:
            if len(self._runs) == 1:
                self._mark_dirty()  # while it was the only one, what nobody claimed counted towards it
            run = self._runs[name] = self._new_run(name)
        return run

    def _new_run(self, name: str) -> _Run:
        return _Run(name, self.config.alignment, self.detectors)

    def _mark_dirty(self) -> None:
        for run in self._runs.values():
            run.is_dirty = True

    def _findings(self, run: _Run, aligner: AttemptAligner, *, ended: bool) -> AttemptFindings:
        judge = run.judges.get(aligner.attempt) or run.new_judge(aligner.attempt)
        labels = {
            rank: {name: text for name, (_, text) in names.items()} for rank, names in aligner.labels.items()
        }
        pending = aligner.pending() if ended else aligner.complete()
        return judge.findings(pending, labels)

    def _inputs(self, run: _Run) -> InputFacts:
        attempts = run.aligner.attempts.values()
        rejected = sum((attempt.admission.rejected for attempt in attempts), Counter(run.aligner.rejected))
        if len(self._runs) == 1:  # then whatever was not understood can only have been meant for this run
            rejected = rejected + self.rejected
        return InputFacts(
            records=run.records,
            rejected=sum(rejected.values()),
            rejected_by=dict(sorted(rejected.items())),
            late=sum(attempt.admission.late for attempt in attempts),
            conflicts=sum(a.conflicts + a.window.conflicts(len(a.window)) for a in attempts),
        )


def _by_run(batch: RecordBatch) -> Iterator[tuple[str, Ints, list[tuple[int, Event]]]]:
    """Each run in the batch with its rows and its events."""
    if len(batch.runs) == 1 and all(event.run == batch.runs[0] for _, event in batch.events):
        yield batch.runs[0], np.arange(len(batch)), list(batch.events)
        return
    names = list(dict.fromkeys([*batch.runs, *(event.run for _, event in batch.events)]))
    for index, name in enumerate(names):
        rows = np.flatnonzero(batch.run_N == index) if index < len(batch.runs) else np.empty(0, np.int64)
        events = [(int(np.searchsorted(rows, at)), event) for at, event in batch.events if event.run == name]
        if len(rows) or events:
            yield name, rows, events


def _run_state(run: _Run) -> Mapping[str, Any]:
    return {
        "aligner": run.aligner.snapshot(),
        "judges": [[attempt, judge.snapshot()] for attempt, judge in sorted(run.judges.items())],
        "curves": [[attempt, fold.snapshot()] for attempt, fold in sorted(run.curves.items())],
        "dirty": run.is_dirty,
        "records": run.records,
    }


def _restored(saved: Mapping[str, Any], run: _Run) -> _Run:
    run.aligner.restore(saved["aligner"])
    for attempt, state in saved["judges"]:
        run.judges[attempt] = run.new_judge(attempt)
        run.judges[attempt].restore(state)
    for attempt, state in saved["curves"]:
        run.curves[attempt] = CurveFold()
        run.curves[attempt].restore(state)
    run.is_dirty, run.records = saved["dirty"], saved["records"]
    return run
