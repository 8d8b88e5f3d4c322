"""From record batches to verdicts: what the worker and replay share.

    RecordBatch → RunAligner → IterationBlock → AttemptJudge → AttemptFindings → fuse → Verdict

A verdict never needs to wait for anything: it is what would be concluded if the input ended now, and
the settled state it starts from is not touched by asking.

Who wants the settled blocks themselves (telemetry history does) gives ``on_block``: it is called with each,
once and in order, after it was judged; what is only pending can be asked for (`Pipeline.aligners`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detectors.facts import AttemptFindings, InputFacts
from detectors.fuse import fuse
from detectors.registry import DetectorsConfig
from detectors.verdict import Verdict
from ingest.alignment import AlignmentConfig, AttemptAligner
from ingest.blocks import IterationBlock, RecordBatch

from .batch_runs import by_run, origins_of, parts_by_run
from .curves import CurvePoint
from .run_fold import RunFold
from .snapshot import from_bytes, to_bytes

STATE_VERSION = 7
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


class Pipeline:
    """Any number of runs from record batches to verdicts."""

    def __init__(
        self,
        config: PipelineConfig | None = None,
        detectors: DetectorsConfig | None = None,
        *,
        on_block: Callable[[IterationBlock], None] | None = None,
        keeps_curves: bool = True,
    ) -> None:
        """``on_block`` is shown every settled block once, in order; `curves` has none that are not kept."""
        self.config = config or PipelineConfig()
        self.detectors = detectors or DetectorsConfig()
        self.on_block, self.keeps_curves = on_block, keeps_curves
        self._runs: dict[str, RunFold] = {}
        self.rejected: dict[str, Counter[str]] = {}
        """What could not be attributed to a run, per part of the source by field and rule."""
        self._sole: dict[str, str | None] = {}
        """The run of each part while it is the only one there: what nobody claims counts towards it."""
        self.fetch: Callable[[str], bytes | None] = lambda _: None
        """Gives the state of a run that was let go of, when a record of it comes."""
        self.records = 0

    @property
    def runs(self) -> list[str]:
        """Names of the runs seen, in order of first record."""
        return list(self._runs)

    @property
    def version(self) -> str:
        """What a saved state must have been made with: the same layout, and the same settings."""
        settings = f"{self.config.alignment!r} {self.detectors!r}"
        return f"{STATE_VERSION}-{hashlib.blake2b(settings.encode(), digest_size=8).hexdigest()}"

    def feed(self, batch: RecordBatch) -> None:
        """Take the next records; settled iterations are judged at once."""
        # First, since `fetch` may fail for a time: nothing of the batch counts then; it can be given again.
        runs = [(self._run(name), name, rows, events) for name, rows, events in by_run(batch)]
        self.records, first_parts = self.records + len(batch), parts_by_run(batch)
        for rejected in batch.rejected:
            part = "" if batch.origins is None else rejected.source
            self._reject(part, f"{rejected.field}: {rejected.rule}", 1)
        for run, name, rows, events in runs:
            if run is None:
                limit = f"run: at most {self.config.max_runs} at once"
                self._reject(first_parts.get(name, ""), limit, len(events) + len(rows))
                continue
            run.is_dirty = run.is_unsaved = True
            run.records += len(rows)
            if len(rows):
                run.newest_time = float(np.fmax(run.newest_time, np.fmax.reduce(batch.time_N[rows])))
            run.note_events(event for _, event in events)
            settled = run.aligner.push(batch, rows, events)
            run.take(settled)
            if self.on_block is not None:
                for block in settled:
                    self.on_block(block)
        self._note_origins(batch)
        for row, label, text in batch.labels:
            known = self._runs.get(batch.runs[int(batch.run_N[row])])
            if known is not None:
                attempt, rank = int(batch.attempt_N[row]), int(batch.rank_N[row])
                known.aligner.note_label(attempt, rank, int(batch.iteration_N[row]), label, text)

    def dirty_runs(self) -> list[str]:
        """Runs that have got records since their last verdict."""
        return [name for name, run in self._runs.items() if run.is_dirty]

    def mark_dirty(self, name: str) -> None:
        """The run's verdict was not used: it is to be given again."""
        self._runs[name].is_dirty = True

    def unsaved_runs(self) -> list[str]:
        """Runs whose state has changed since it was last marked as saved."""
        return [name for name, run in self._runs.items() if run.is_unsaved]

    def mark_saved(self) -> None:
        """All states are saved as they are."""
        for run in self._runs.values():
            run.is_unsaved = False

    def mark_unsaved(self, name: str) -> None:
        """What is stored of the run beside its state has changed."""
        self._runs[name].is_unsaved = True

    def has_ended(self, name: str) -> bool:
        """Whether the newest attempt of the run has said that it is over."""
        return self._runs[name].has_ended

    def late_records(self) -> int:
        """Records of the runs held now that came too late to count."""
        runs = self._runs.values()
        return sum(one.admission.late for run in runs for one in run.aligner.attempts.values())

    def let_go(self, name: str) -> None:
        """Forget a run, which must be saved and judged; `fetch` gives it back if it goes on."""
        del self._runs[name]

    def note_parts(self, name: str, parts: Iterable[str]) -> None:
        """A run that may not be held now was seen in these parts."""
        for part in parts:
            if self._sole.setdefault(part, name) != name:
                self._sole[part] = None

    def parts_of(self, name: str) -> tuple[str, ...]:
        """Parts of the source that the run was seen in, in order."""
        return tuple(sorted(self._runs[name].parts))

    def newest_time(self, name: str) -> float | None:
        """Newest time of a record of the run, seconds since 1970; None where none had one."""
        time = self._runs[name].newest_time
        return None if np.isnan(time) else time

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

    def aligners(self, name: str) -> list[AttemptAligner]:
        """The attempts of a run in order, to ask what is pending: later records may still change that."""
        return [aligner for _, aligner in sorted(self._runs[name].aligner.attempts.items())]

    def curves(self, name: str, *, ended: bool = True) -> dict[int, dict[str, list[CurvePoint]]]:
        """Per attempt and metric the curve of a run, at most `MAX_BUCKETS` points each."""
        return self._runs[name].curve_points(ended=ended)

    def snapshot_run(self, name: str) -> bytes:
        """The state of one run, for a checkpoint."""
        return to_bytes({"version": STATE_VERSION, "run": name, "state": self._runs[name].snapshot()})

    def restore_run(self, data: bytes) -> str:
        """Go on with the run whose state `snapshot_run` gave; gives its name.

        Raises:
            SnapshotError: damaged bytes.
            ValueError: written by a release with another state.
        """
        state = from_bytes(data)
        _check_version(state)
        self._adopt(state["run"], state["state"])
        return str(state["run"])

    def snapshot(self) -> bytes:
        """The whole state as one."""
        return to_bytes(
            {
                "version": STATE_VERSION,
                "records": self.records,
                "rejected": [[part, dict(counts)] for part, counts in self.rejected.items()],
                "runs": [[name, run.snapshot()] for name, run in self._runs.items()],
            }
        )

    def restore(self, data: bytes) -> None:
        """Continue from what `snapshot` gave.

        Raises:
            SnapshotError: damaged bytes.
            ValueError: written by a release with another state.
        """
        state = from_bytes(data)
        _check_version(state)
        self.records = state["records"]
        self.rejected = {part: Counter(counts) for part, counts in state["rejected"]}
        self._runs, self._sole = {}, {}
        for name, saved in state["runs"]:
            self._adopt(name, saved)

    def _run(self, name: str) -> RunFold | None:
        run = self._runs.get(name)
        if run is None and len(self._runs) < self.config.max_runs:
            saved = self.fetch(name)
            if saved is None:
                run = self._runs[name] = self._new_run(name)
            else:
                self.restore_run(saved)
                run = self._runs[name]
        return run

    def _adopt(self, name: str, saved: Mapping[str, Any]) -> None:
        run = self._runs[name] = self._new_run(name)
        run.restore(saved)
        for part in run.parts:
            self._note_origin(name, part)
        run.is_dirty, run.is_unsaved = saved["dirty"], False  # to have been told of a part is no news

    def _new_run(self, name: str) -> RunFold:
        return RunFold(name, self.config.alignment, self.detectors, keeps_curves=self.keeps_curves)

    def _note_origins(self, batch: RecordBatch) -> None:
        for name, part in origins_of(batch):
            if name in self._runs and part not in self._runs[name].parts:
                self._note_origin(name, part)

    def _note_origin(self, name: str, part: str) -> None:
        self._runs[name].parts.add(part)
        sole = self._sole.setdefault(part, name)
        if sole is not None and sole != name:
            self._sole[part] = None
            self._mark_news(sole)  # while it was the only one, what nobody claimed counted towards it

    def _reject(self, part: str, reason: str, count: int) -> None:
        self.rejected.setdefault(part, Counter())[reason] += count
        self._mark_news(self._sole.get(part))

    def _mark_news(self, name: str | None) -> None:
        run = None if name is None else self._runs.get(name)
        if run is not None:
            run.is_dirty = run.is_unsaved = True

    def _findings(self, run: RunFold, aligner: AttemptAligner, *, ended: bool) -> AttemptFindings:
        judge = run.judges.get(aligner.attempt) or run.new_judge(aligner.attempt)
        held = aligner.labels.items()
        labels = {rank: {name: text for name, (_, text) in names.items()} for rank, names in held}
        return judge.findings(aligner.pending() if ended else aligner.complete(), labels)

    def _inputs(self, run: RunFold) -> InputFacts:
        attempts = run.aligner.attempts.values()
        rejected = sum((attempt.admission.rejected for attempt in attempts), Counter(run.aligner.rejected))
        for part in run.parts:
            if self._sole.get(part) == run.name:
                # what was not understood there can only have been meant for this run
                rejected = rejected + self.rejected.get(part, Counter())
        return InputFacts(
            records=run.records,
            rejected=sum(rejected.values()),
            rejected_by=dict(sorted(rejected.items())),
            late=sum(attempt.admission.late for attempt in attempts),
            conflicts=sum(a.conflicts + a.window.conflicts(len(a.window)) for a in attempts),
        )


def _check_version(state: Mapping[str, Any]) -> None:
    if state["version"] != STATE_VERSION:
        raise ValueError(f"checkpoint version must be {STATE_VERSION}, got {state['version']}")
