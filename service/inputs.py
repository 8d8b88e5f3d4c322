"""What the paths of a command hold: jobs to judge, reports about hardware, and what is neither."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType

from detectors.evidence import Label
from ingest.archives import is_archive, unpack
from ingest.continuations import join_continuations
from ingest.diagnostics.recognise import diagnostics_of, named_report
from ingest.diagnostics.report import DiagnosticReport
from ingest.errors import UnreadableInput
from ingest.follow import require_followable
from ingest.job_folders import PassedOver, expand
from ingest.jobs import STANDARD_INPUT, Job, find_jobs
from ingest.log_reader import FileConfig
from ingest.special_files import Special, kind_of, readable_copy

from .offline import JudgedJob
from .open_files import allow_open_files

MAX_SUMMARY_RECORDS = 2
"""Records up to which a file of a folder is a summary (final results, one evaluation), and no run."""
_OTHER_FILES = 256
"""Files that are open beside those of a job: modules, pipes, temporary files."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What was found in the paths of a command."""

    jobs: tuple[Job, ...]
    reports: tuple[DiagnosticReport, ...]
    missing: tuple[JudgedJob, ...]
    """For each path that cannot be read the reason."""
    passed: PassedOver = field(default_factory=PassedOver)
    """What was not taken of folders."""
    unpacked: ExitStack = field(default_factory=ExitStack)
    """The folders that archives were unpacked into."""

    def __enter__(self) -> Inputs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete what archives were unpacked into."""
        self.unpacked.close()


def find_inputs(
    paths: Sequence[str | Path],
    diagnostics: Sequence[str | Path] = (),
    config: FileConfig | None = None,
    *,
    is_awaited: bool = False,
) -> Inputs:
    """The jobs and the reports in ``paths``; those in ``diagnostics`` must be reports.

    With ``is_awaited`` a file of which nothing is there yet may come later.
    """
    passed, unpacked = PassedOver(), ExitStack()
    missing: list[JudgedJob] = []
    reports: list[DiagnosticReport] = []
    files: list[Path | str] = []
    for path in paths:
        is_to_come = is_awaited and not os.path.lexists(path)
        try:
            if str(path) == STANDARD_INPUT or is_to_come:
                found: list[Path | str] = [path]
            elif is_awaited:
                found = [_followable(each) for each in expand(Path(path), passed)]
            else:
                found = [*_opened(expand(Path(path), passed), passed, unpacked)]
        except UnreadableInput as error:
            missing.append(JudgedJob(name=str(path), unreadable=str(error)))
            continue
        for file in found:
            report = None if is_to_come else _report_in(file)
            if report is None:
                files.append(file)
            else:
                reports.append(report)
    for path in diagnostics:
        try:
            reports.append(named_report(Path(path)))
        except UnreadableInput as error:
            missing.append(JudgedJob(name=str(path), unreadable=str(error)))
    jobs = find_jobs(files, named=map(Path, paths), is_awaited=is_awaited)
    if not is_awaited:
        jobs = join_continuations(jobs, config)
    # a rank has a file, and all of a job are read at once
    allow_open_files(2 * max((len(job.files) for job in jobs), default=0) + _OTHER_FILES)
    return Inputs(tuple(jobs), tuple(reports), tuple(missing), passed, unpacked)


def without_strangers(jobs: Sequence[JudgedJob], passed: PassedOver) -> list[JudgedJob]:
    """The jobs less those of files in folders that turned out to be no logs, which ``passed`` is told.

    All stay where none could be judged: then the reasons are what a person needs to know.
    """
    strange = [job for job in jobs if is_strange(job)]
    if len(strange) == len(jobs):
        return list(jobs)
    for job in strange:
        passed.add(Path(job.paths[0] if job.paths else job.name), "not recognised as a log of training")
    return [job for job in jobs if job not in strange]


def is_strange(job: JudgedJob) -> bool:
    """Whether a file of a folder turned out to be no log: nothing was read of it, numbers of which no check
    could judge one, or a record or two of no harm."""
    if job.is_named or any(run.verdict.incidents for run in job.runs):
        return False
    is_short = sum(note.rows for note in job.notes) <= MAX_SUMMARY_RECORDS
    return is_short or all(run.verdict.label is Label.UNDETERMINED for run in job.runs)


def _opened(files: Sequence[Path], passed: PassedOver, unpacked: ExitStack) -> list[Path]:
    """The files, with what is in archives instead of the archives."""
    found: list[Path] = []
    for path in files:
        if kind_of(path) is not Special.NONE:
            found.append(unpacked.enter_context(readable_copy(path)))
            continue
        if not is_archive(path):
            found.append(path)
            continue
        folder = Path(unpacked.enter_context(TemporaryDirectory(prefix="firstfault-archive-")))
        inside = folder / path.name.partition(".")[0]
        inside.mkdir()
        unpack(path, inside)
        found += expand(inside, passed)
    return found


def _followable(path: Path) -> Path:
    """The path, if it is a file that may grow.

    Raises:
        UnreadableInput: an archive, a pipe or a device.
    """
    require_followable(path)
    if is_archive(path):
        raise UnreadableInput(f"{path}: an archive does not grow: judge it without --follow")
    return path


def _report_in(file: str | Path) -> DiagnosticReport | None:
    if str(file) == STANDARD_INPUT or Path(file).is_dir():
        return None
    try:
        return diagnostics_of(Path(file))
    except UnreadableInput:  # said when it is read as a log
        return None
