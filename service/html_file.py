"""The page of `firstfault replay --html` on its way to a file: whole or not at all."""

from __future__ import annotations

import sys
import tempfile
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
    try:
        # beside the target, so that it can be put in its place in one step: nobody reads half a page
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            part = Path(file.name)
            file.write(text)
        # a temporary file is readable by its owner alone; a page is made to be passed on
        part.chmod(0o644)
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"--html {target}: {error.strerror}") from error


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
