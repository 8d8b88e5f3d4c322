"""The page of `firstfault replay --html` on its way to a file: whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from ingest.jobs import STANDARD_INPUT

from .errors import ConfigError
from .offline import JudgedJob
from .recognised import recognised


def write_page(jobs: Sequence[JudgedJob], target: str, command: str) -> None:
    """Write the page of ``jobs`` to the file ``target``, or to standard output where that is ``-``.

    Raises:
        ConfigError: the file cannot be written.
    """
    text = page_of(jobs, command)
    if target == STANDARD_INPUT:
        sys.stdout.write(text)
        return
    path = Path(target)
    # beside the target, so that it can be put in its place in one step: nobody reads half a page
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise ConfigError(f"--html {target}: {error.strerror}") from error


def check_target(target: str, paths: Sequence[str], *, as_json: bool) -> None:
    """Whether a page may go there.

    Raises:
        ConfigError: it would take the place of a log, or meet verdicts on standard output.
    """
    if target == STANDARD_INPUT:
        if as_json:
            raise ConfigError("--html - and --json cannot both write to standard output")
        return
    if any(os.path.realpath(target) == os.path.realpath(path) for path in paths):
        raise ConfigError(f"--html {target} would replace a log that is read: give another name")


def page_of(jobs: Sequence[JudgedJob], command: str) -> str:
    """The page as text."""
    from .html_page import html_report
    from .html_run import ShownRun

    runs = [
        ShownRun(
            verdict=body,
            recognised=recognised(job.notes, run.strides, int(body["coverage"]["ranks"]), is_long=True),
            pictures=run.pictures,
            notes=job.notes,
        )
        for job in jobs
        for run in job.runs
        for body in (run.body,)
    ]
    return html_report(runs, command=command, unread=[job.unreadable for job in jobs if job.unreadable])
