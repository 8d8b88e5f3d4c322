"""Log files judged without a broker or a store: the same pipeline over a file source, job by job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from detectors.evidence import Certainty
from detectors.verdict import Verdict, canonical_bytes, to_json
from ingest.blocks import IterationBlock, RecordBatch
from ingest.diagnostics.report import DiagnosticReport
from ingest.errors import UnreadableInput
from ingest.file_source import FileNotes, FileSource, Progress, StreamConfig
from ingest.jobs import Job

from .config import Settings
from .curves import CurvePoint
from .file_options import file_config
from .pipeline import Pipeline
from .rejects import Quarantine, RejectTally
from .strides import Strides, StrideWatch

if TYPE_CHECKING:
    from .picture import AttemptPicture, Pictures

_POLL_S = 0.5
"""Longest wait for a growing file: how late a Ctrl-C or a new line is noticed at worst."""
_PLOTTED = ("loss", "global_loss", "grad_norm", "local_grad_norm")
"""Curves in the order in which one is chosen for the plot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """One run of one job: its verdict and the curve to plot beside it."""

    verdict: Verdict
    metric: str = ""
    curve: Sequence[CurvePoint] = ()
    attempt: int = 0
    """The attempt whose curve it is."""
    strides: Strides = field(default_factory=Strides)
    pictures: Sequence[AttemptPicture] = ()
    """What the page is drawn from, where one was asked for."""

    @property
    def body(self) -> dict[str, Any]:
        """The verdict as a JSON object."""
        return dict(to_json(self.verdict))

    @property
    def line(self) -> str:
        """The canonical verdict as one line of JSON."""
        return canonical_bytes(self.verdict).decode("ascii")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedJob:
    """What became of one job: its runs, or why it could not be read."""

    name: str
    runs: tuple[JudgedRun, ...] = ()
    rejects: RejectTally = field(default_factory=RejectTally)
    notes: tuple[FileNotes, ...] = ()
    unreadable: str = ""
    """Why there is no or only half a verdict: a sentence that names the input; empty when all was read."""
    is_named: bool = True
    """Whether its file was given by name; else it was found in a folder, and may be no log at all."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files of the job, those that were opened."""
        return tuple(note.path for note in self.notes)


class Watcher(Protocol):
    """Is told how far reading has come; a progress bar, or nothing."""

    def __call__(self, job: Job, progress: Progress) -> None:
        """``progress`` of the files of ``job``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What `firstfault replay` was asked for."""

    settings: Settings = field(default_factory=Settings)
    run: str | None = None
    """Judge only the run of this name."""
    format_name: str | None = None
    """How to read the files, where their names and bytes do not tell."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Metric or role to the name that the files have for it."""
    stdin: BinaryIO | None = None
    quarantine: Quarantine | None = None
    watcher: Watcher | None = None
    reports: tuple[DiagnosticReport, ...] = ()
    """What diagnoses and kernels say of the hardware; joined to every job."""
    is_drawn: bool = False
    """Whether pictures of the runs are wanted."""
    is_plotted: bool = True
    """Whether the curve of a run is wanted beside its verdict."""


def judge_jobs(jobs: Sequence[Job], options: ReplayOptions) -> Iterator[JudgedJob]:
    """Each job read to its end and judged, in order; a job that cannot be read is a value too."""
    for job in jobs:
        yield _judge_job(job, options)


def follow_jobs(
    jobs: Sequence[Job],
    options: ReplayOptions,
    on_judged: Callable[[str, JudgedRun], object],
    is_over: Callable[[], bool],
) -> list[JudgedJob]:
    """Judge jobs whose files are still being written, until ``is_over``.

    ``on_judged`` gets the job's name and a run whenever there are new records of it. Returns the last state.
    """
    followed = [_Reading(job, options, is_following=True) for job in jobs]
    try:
        while not is_over() and any(not one.is_over for one in followed):
            for one in followed:
                one.step(_POLL_S / len(followed))
                for run in one.changed():
                    on_judged(one.job.run, run)
        for one in followed:
            # what was written up to the moment of stopping still counts
            while not one.unreadable and one.step(0.0):
                pass
            one.finish()
        return [one.result() for one in followed]
    finally:
        for one in followed:
            one.close()


class _Reading:
    """One job on its way from files to verdicts."""

    def __init__(self, job: Job, options: ReplayOptions, *, is_following: bool = False) -> None:
        self.job = job
        self.unreadable = ""
        self._options = options
        self._tally = RejectTally()
        self._strides = StrideWatch()
        self._pictures = _pictures() if options.is_drawn else None
        settings = options.settings
        self._pipeline = Pipeline(
            settings.pipeline, settings.detectors, on_block=self._see, keeps_curves=options.is_plotted
        )
        self._source = FileSource(
            job,
            follow=is_following,
            stdin=options.stdin,
            config=file_config(settings, options.format_name, options.columns),
            stream=StreamConfig(lateness_iterations=settings.pipeline.alignment.lateness_iterations),
            reports=options.reports,
        )

    def step(self, timeout_s: float) -> bool:
        """Take the next batches; whether any came."""
        if self.unreadable:
            return False
        try:
            batches = self._source.poll(timeout_s)
        except UnreadableInput as error:
            self.unreadable = str(error)
            return False
        self._take(batches)
        return bool(batches)

    def finish(self) -> None:
        """End following: what was held back for lines to come counts too."""
        if not self.unreadable:
            try:
                self._take(self._source.finish())
            except UnreadableInput as error:
                self.unreadable = str(error)

    def _take(self, batches: Sequence[RecordBatch]) -> None:
        for batch in batches:
            self._tally.add(batch.rejected)
            if self._options.quarantine is not None:
                self._options.quarantine.add(batch.rejected)
            self._pipeline.feed(batch)
        if self._options.watcher is not None:
            self._options.watcher(self.job, self._source.progress)

    @property
    def is_over(self) -> bool:
        """Whether nothing more can come."""
        return bool(self.unreadable) or self._source.is_exhausted

    def changed(self) -> list[JudgedRun]:
        """Runs with records since they were last judged, judged by what is complete."""
        return [
            self._judged(name, ended=False) for name in self._pipeline.dirty_runs() if self._is_wanted(name)
        ]

    def result(self) -> JudgedJob:
        """All runs, judged as ended here."""
        names = [name for name in self._pipeline.runs if self._is_wanted(name)]
        runs = tuple(self._judged(name, ended=True) for name in names)
        unreadable = self.unreadable
        if not unreadable and not runs:
            unreadable = self._why_empty()
        return JudgedJob(
            name=self.job.run,
            runs=runs,
            rejects=self._tally,
            notes=self._source.notes,
            unreadable=unreadable,
            is_named=self.job.is_named,
        )

    def close(self) -> None:
        self._source.close()

    def _is_wanted(self, name: str) -> bool:
        return self._options.run is None or name == self._options.run

    def _judged(self, name: str, *, ended: bool) -> JudgedRun:
        verdict = self._pipeline.verdict(name, ended=ended)
        if not ended:
            return JudgedRun(verdict=verdict)
        aligners = self._pipeline.aligners(name)
        is_plotted = self._options.is_plotted
        run = _with_curve(self._pipeline, name, verdict) if is_plotted else JudgedRun(verdict=verdict)
        run = replace(run, strides=self._strides.take(name, aligners))
        if self._pictures is None:
            return run
        first = verdict.incidents[0].first if verdict.incidents else None
        onset = None if first is None else (first.attempt, first.iteration)
        return replace(run, pictures=self._pictures.take(name, aligners, onset))

    def _see(self, block: IterationBlock) -> None:
        """Keep of a settled block what is told beside the verdict."""
        self._strides.update(block)
        if self._pictures is not None:
            self._pictures.update(block)

    def _why_empty(self) -> str:
        paths = ", ".join(file.path for file in self.job.files[:3])
        if self._pipeline.runs:
            return f"{paths}: no run named {self._options.run}; there is {', '.join(self._pipeline.runs[:5])}"
        if not self._tally.by_reason:
            return f"{paths}: empty, not one record"
        reason = max(self._tally.by_reason, key=lambda name: self._tally.by_reason[name])
        return f"{paths}: not one usable record; {self._tally.words}, most because of {reason}"


def _pictures() -> Pictures:
    from .picture import Pictures  # only a page needs them

    return Pictures()


def _judge_job(job: Job, options: ReplayOptions) -> JudgedJob:
    try:
        reading = _Reading(job, options)
    except UnreadableInput as error:
        return JudgedJob(name=job.run, unreadable=str(error), is_named=job.is_named)
    try:
        while not reading.is_over:
            reading.step(_POLL_S)
        return reading.result()
    finally:
        reading.close()


def _with_curve(pipeline: Pipeline, name: str, verdict: Verdict) -> JudgedRun:
    """The loss curve, or the next best, of the attempt in which the root incident lies, else the last."""
    attempts = pipeline.curves(name)
    faulty = [one.first.attempt for one in verdict.incidents if one.certainty is Certainty.CONFIRMED]
    attempt = next((one for one in faulty if one in attempts), max(attempts, default=0))
    curves = attempts.get(attempt, {})
    metric = next((one for one in _PLOTTED if curves.get(one)), "")
    return JudgedRun(verdict=verdict, metric=metric, curve=curves.get(metric, ()), attempt=attempt)
