"""`firstfault replay --follow`: what is said while logs grow, until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace

from ingest.file_source import Progress
from ingest.jobs import Job

from .announcer import Announcer
from .edge import say, tell
from .ink import clean, cut
from .offline import JudgedJob, JudgedRun, ReplayOptions, follow_jobs

_BEAT_S = 1.0
"""Between two redrawings of the line that says how far reading has come."""
_CLEAR = "\r\x1b[K"
_NAMED = 4
"""Files that are named when following begins."""
_LINE = 79
"""Columns of that line: one less than a terminal has, so that it never breaks."""


def follow(jobs: Sequence[Job], options: ReplayOptions, *, as_json: bool) -> list[JudgedJob]:
    """Report changes until Ctrl-C or SIGTERM, then the last state as if the files ended there."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    heart = _Heart(jobs)

    def announce(line: str) -> None:
        heart.clear()
        tell(line)

    announcer = Announcer(announce, as_json=as_json)
    if jobs:
        say(_followed(jobs))

    def is_over() -> bool:
        heart.beat(announcer)
        return stop.is_set()

    def take(job: str, run: JudgedRun) -> None:
        announcer.take(job, run)

    try:
        judged = follow_jobs(jobs, replace(options, watcher=heart.note), take, is_over)
        if not as_json:
            announce("")  # what follows is the report
        return judged
    finally:
        heart.clear()
        for number, handler in before.items():
            signal.signal(number, handler)


def _followed(jobs: Sequence[Job]) -> str:
    """What is followed, and until when."""
    names = [clean(file.path, 60) for job in jobs for file in job.files]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"following {', '.join(names[:_NAMED])}{more} until Ctrl-C"


class _Heart:
    """A line on a terminal's standard error that says what is being waited for; nothing elsewhere."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._is_wanted = sys.stderr.isatty()
        self._files = sum(len(job.files) for job in jobs)
        self._read: dict[str, int] = {}
        self._changed_s = self._beaten_s = time.monotonic()
        self._is_shown = False

    def note(self, job: Job, progress: Progress) -> None:
        """Remember how far the files of a job were read."""
        if self._read.get(job.run) != progress.read_bytes:
            self._read[job.run] = progress.read_bytes
            self._changed_s = time.monotonic()

    def beat(self, announcer: Announcer) -> None:
        """Draw the line anew, now and then."""
        now_s = time.monotonic()
        if not self._is_wanted or now_s - self._beaten_s < _BEAT_S:
            return
        self._beaten_s, self._is_shown = now_s, True
        what = announcer.standing() or "waiting for a first record"
        files = "1 file" if self._files == 1 else f"{self._files} files"
        read = sum(self._read.values()) / 1e6
        words = f"{files}, {read:.1f} MB read, quiet for {now_s - self._changed_s:.0f} s: {what}"
        sys.stderr.write(_CLEAR + cut(words, _LINE))
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the line away, so that what comes next stands alone."""
        if self._is_shown:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._is_shown = False
