"""Verdicts as a notebook shows them: the page of `firstfault replay --html`, in a frame that runs nothing."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ingest.errors import UnreadableInput

from .config import Settings
from .inputs import find_inputs, without_strangers
from .offline import JudgedJob, ReplayOptions, judge_jobs

_HEIGHT_PX = 640
"""A screen's worth; the page scrolls inside."""


class Verdicts(list[dict[str, Any]]):
    """Verdicts as JSON objects, in order of the jobs; a plain list for everything but a notebook."""

    def __init__(self, verdicts: Iterable[dict[str, Any]], jobs: Sequence[JudgedJob]) -> None:
        super().__init__(verdicts)
        self._jobs = tuple(jobs)

    def _repr_html_(self) -> str:
        """The page, quoted into a frame: what a log holds stays text, in a document of its own."""
        from .html_file import page_of  # only a page needs it

        page = html.escape(page_of(self._jobs, "firstfault replay"), quote=True)
        style = f"width:100%;height:{_HEIGHT_PX}px;border:0"
        return f'<iframe sandbox title="firstfault" srcdoc="{page}" style="{style}"></iframe>'


def replay_files(paths: Sequence[str | Path], settings: Settings | None = None) -> Verdicts:
    """The canonical verdicts of all runs in ``paths`` as JSON objects, in order of the jobs.

    Raises:
        UnreadableInput: a path that is not there, or an input without one usable record.
    """
    with find_inputs(paths) as inputs:
        options = ReplayOptions(settings=settings or Settings(), reports=inputs.reports, is_drawn=True)
        judged = without_strangers([*inputs.missing, *judge_jobs(inputs.jobs, options)], inputs.passed)
    for job in judged:
        if job.unreadable:
            raise UnreadableInput(job.unreadable)
    return Verdicts((json.loads(run.line) for job in judged for run in job.runs), judged)
