"""`firstfault replay`: files in, a report or JSON lines out, and the exit status."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ingest.errors import UnreadableInput
from ingest.file_source import Progress
from ingest.jobs import STANDARD_INPUT, Job

from .config import load_settings
from .edge import Exit, say
from .file_options import columns_of, file_config
from .ink import clean, ink_for
from .inputs import Inputs, find_inputs, is_strange, without_strangers
from .offline import JudgedJob, ReplayOptions, judge_jobs
from .recognised import recognised
from .rejects import Quarantine
from .sufficiency import TOO_LITTLE, has_confirmed_incident, why_too_little

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

_SHOW_PROGRESS_AFTER_S = 1.0
"""Shorter work needs no bar, and the bar's library costs a tenth of a second to load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """The command's arguments as they were given."""

    paths: tuple[str, ...]
    diagnostics: tuple[str, ...] = ()
    """Reports about hardware; those among ``paths`` are recognised too."""
    as_json: bool = False
    run: str | None = None
    format_name: str | None = None
    columns: tuple[str, ...] = ()
    """``NAME=COLUMN`` each."""
    is_following: bool = False
    quarantine: Path | None = None
    config: Path | None = None
    html: str | None = None
    """Where the page goes; ``-`` is standard output."""
    is_detailed: bool = False
    command: str = "firstfault replay"
    """How this was asked for, as the page says it."""


def run_replay(request: ReplayRequest) -> int:
    """Judge the files, print what was found, and give the exit status.

    Raises:
        ConfigError: the settings cannot be.
    """
    settings = load_settings(request.config)
    if request.html is not None:
        from .html_file import check_target

        check_target(request.html, request.paths, as_json=request.as_json)
    columns = columns_of(request.columns)
    config = file_config(settings, request.format_name, columns)
    inputs = find_inputs(request.paths, request.diagnostics, config, is_awaited=request.is_following)
    with _quarantine(request.quarantine) as quarantine, _ProgressBar() as bar, inputs:
        options = ReplayOptions(
            settings=settings,
            run=request.run,
            format_name=request.format_name,
            columns=columns,
            stdin=sys.stdin.buffer,
            quarantine=quarantine,
            watcher=None if request.is_following else bar.update,
            reports=inputs.reports,
            is_drawn=request.html is not None,
            is_plotted=not request.as_json,
        )
        judged: Iterable[JudgedJob] = judge_jobs(inputs.jobs, options)
        if request.is_following:
            from .follow_command import follow

            judged = follow(inputs.jobs, options, as_json=request.as_json)
        finished = list(_print_json(judged) if request.as_json else judged)
    return _tell(finished, inputs, request)


def _tell(finished: Sequence[JudgedJob], inputs: Inputs, request: ReplayRequest) -> Exit:
    """Write the page and the report, say the rest, and give the exit status."""
    logs = without_strangers(finished, inputs.passed)
    everything = [*inputs.missing, *logs]
    if request.html is not None:
        from .html_file import write_page

        write_page(everything, request.html, request.command)
    if not request.as_json and request.html != STANDARD_INPUT:
        _print_report(logs, is_detailed=request.is_detailed)
    _talk(everything, request)
    for line in inputs.passed.lines():
        say(clean(line, 400))
    _tell_reports(inputs, is_alone=not finished)
    return exit_status(everything)


def exit_status(jobs: Sequence[JudgedJob]) -> Exit:
    """1 with any confirmed incident, else 2 with anything unreadable or too little to judge, else 0."""
    judged = [(run.body, job.notes) for job in jobs for run in job.runs]
    if any(has_confirmed_incident(verdict) for verdict, _ in judged):
        return Exit.INCIDENT
    is_partial = any(job.unreadable for job in jobs)
    is_partial = is_partial or any(why_too_little(verdict, notes) for verdict, notes in judged)
    return Exit.UNUSABLE if is_partial or not judged else Exit.HEALTHY


def _print_json(jobs: Iterable[JudgedJob]) -> Iterator[JudgedJob]:
    """A line for each run once it is judged; of what the report passes over none, unless all is that."""
    held: list[JudgedJob] = []
    has_printed = False
    for job in jobs:
        if is_strange(job):
            held.append(job)
        else:
            has_printed = True
            _print_runs(job)
        yield job
    for job in () if has_printed else held:
        _print_runs(job)


def _print_runs(job: JudgedJob) -> None:
    for run in job.runs:
        sys.stdout.write(run.line + "\n")
        sys.stdout.flush()


def _print_report(jobs: Sequence[JudgedJob], *, is_detailed: bool) -> None:
    from .report import Judged, report

    judged = [
        Judged(
            source=job.name,
            verdict=run.body,
            metric=run.metric,
            curve=run.curve,
            attempt=run.attempt,
            notes=job.notes,
            strides=run.strides,
        )
        for job in jobs
        for run in job.runs
    ]
    if judged:
        sys.stdout.write(report(judged, ink_for(sys.stdout), is_detailed=is_detailed))


def _tell_reports(inputs: Inputs, *, is_alone: bool) -> None:
    """What reports about hardware say; without a run to join them to, that is the whole answer."""
    for diagnosis in inputs.reports:
        for line in diagnosis.lines():
            say(f"{clean(diagnosis.path, 200)}: {clean(line, 400)}")
    if inputs.reports and is_alone:
        say("no run to judge: give a log of training too, and these are joined to its ranks")


def _talk(jobs: Sequence[JudgedJob], request: ReplayRequest) -> None:
    """On standard error: what could not be read, what was rejected and why; beside JSON what was read."""
    for job in jobs:
        if job.unreadable:
            say(clean(job.unreadable, 400))
            for guess in dict.fromkeys(note.understood.guess for note in job.notes):
                if guess and guess not in job.unreadable:
                    say(f"{clean(job.name)}: {clean(guess, 400)}")
        if job.rejects.by_reason and (job.runs or not job.unreadable):
            say(f"{clean(job.name)}: {job.rejects.words}:")
            for line in job.rejects.lines():
                sys.stderr.write(line + "\n")
        if request.as_json and not job.unreadable:
            _talk_of_reading(job, is_detailed=request.is_detailed)


def _talk_of_reading(job: JudgedJob, *, is_detailed: bool) -> None:
    """What the other outputs begin with, where standard output has verdicts alone."""
    for at, run in enumerate(job.runs):
        ranks = int(run.body["coverage"]["ranks"])
        for words in recognised(job.notes, run.strides, ranks, is_long=is_detailed) if at == 0 else []:
            say(words)
        if why := why_too_little(run.body, job.notes):
            say(f"{clean(run.verdict.run)}: {TOO_LITTLE}: {why}")


@contextmanager
def _quarantine(path: Path | None) -> Iterator[Quarantine | None]:
    if path is None:
        yield None
        return
    try:
        quarantine = Quarantine(path)
    except OSError as error:
        raise UnreadableInput(f"--quarantine {path}: {error.strerror}") from error
    try:
        yield quarantine
    finally:
        quarantine.close()


class _ProgressBar:
    """A bar on a terminal's standard error, once the work has taken a moment."""

    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._is_wanted = sys.stderr.isatty()
        self._bar: Bar | None = None
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> _ProgressBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, job: Job, progress: Progress) -> None:
        """Show how far ``job`` is."""
        if not self._is_wanted or time.monotonic() - self._started_s < _SHOW_PROGRESS_AFTER_S:
            return
        if self._bar is None:
            self._bar = _start_bar()
        if job.run not in self._tasks:
            self._tasks = {job.run: self._bar.add_task(clean(job.run, 28), total=progress.total_bytes)}
        self._bar.update(self._tasks[job.run], completed=progress.read_bytes, total=progress.total_bytes)


def _start_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    # markup off: a run name is data
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar
