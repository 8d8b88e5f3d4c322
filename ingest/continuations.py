"""Files that differ only by numbers, where one goes on where the other stopped: the attempts of one job.

A job that is queued again writes ``slurm-1002.out`` after ``slurm-1001.out``. A number alone does not say
so, but the iterations do: separate runs all begin at the start, an attempt begins near the end of the one
before it, at the last checkpoint.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .errors import UnreadableInput
from .file_reader import FileReader
from .job_names import CHAINED_KINDS, kind_of, natural
from .jobs import Job, JobFile
from .log_reader import FileConfig

MAX_PROBED_BYTES = 64 << 20
"""Size of a file that is read beforehand to see where it begins and ends: under a second at 100 MB/s. One
that is larger is a run of its own."""
MAX_FILES = 32
"""Files of one pattern that are read beforehand; more of them are a sweep, each with its own number."""
MIN_SHARE = 0.5
"""An attempt begins after at least this share of the iterations of the one before: later than a run that is
merely printed at other intervals would."""
MAX_GAP_SHARE = 0.1
"""How far behind the end it may begin, as a share of the iterations until then: what was not printed."""


@dataclass(frozen=True, slots=True)
class _Extent:
    """Where the records of a file begin and end."""

    first: int
    last: int
    metrics: frozenset[str]

    def goes_on_from(self, before: _Extent) -> bool:
        """Whether this file is the next attempt of the job that wrote ``before``."""
        if not before.metrics & self.metrics or self.first <= before.first:
            return False
        return before.last * MIN_SHARE <= self.first <= before.last * (1 + MAX_GAP_SHARE) + 1


def join_continuations(jobs: Sequence[Job], config: FileConfig | None = None) -> list[Job]:
    """The jobs, with those that go on from another one joined to it, in the order of the first."""
    followers: dict[str, Job | None] = {}
    for group in _candidates(jobs):
        extents = [_extent(job, config) for job in group]
        head = 0
        for at in range(1, len(group)):
            before, this = extents[at - 1], extents[at]
            if before is None or this is None or not this.goes_on_from(before):
                head = at
                continue
            first = followers.get(group[head].files[0].path) or group[head]
            followers[group[head].files[0].path] = _joined(first, group[at])
            followers[group[at].files[0].path] = None
    kept = [followers.get(job.files[0].path, job) for job in jobs]
    return [job for job in kept if job is not None]


def _candidates(jobs: Sequence[Job]) -> Iterator[list[Job]]:
    """Jobs of one file each whose names are equal but for their numbers, in the order of these."""
    groups: dict[tuple[str, str], list[Job]] = defaultdict(list)
    for job in jobs:
        (file, *others) = job.files
        path = Path(file.path)
        is_single = not others and file.rank is None
        if is_single and kind_of(path) in CHAINED_KINDS and path.is_file() and re.search(r"\d", path.name):
            groups[str(path.parent), re.sub(r"\d+", "#", path.name)].append(job)
    for group in groups.values():
        if 1 < len(group) <= MAX_FILES:
            yield sorted(group, key=lambda job: natural(Path(job.files[0].path).name))


def _extent(job: Job, config: FileConfig | None) -> _Extent | None:
    """Where the records of a job of one process begin and end: in the first stream that holds some."""
    (file,) = job.files
    return next((found for each in (file, *file.beside) if (found := _extent_of(each, job, config))), None)


def _extent_of(file: JobFile, job: Job, config: FileConfig | None) -> _Extent | None:
    reader = FileReader(file, Path(file.path), job.run, config)
    if reader.size_bytes > MAX_PROBED_BYTES:
        return None
    first: int | None = None
    try:
        for batch in reader.batches():
            if first is None and len(batch):
                first = int(batch.iteration_N[0])
    except UnreadableInput:
        return None
    if first is None or reader.notes.understood.counter == "row number":
        return None
    return _Extent(first, reader.notes.last, frozenset(reader.notes.metrics))


def _joined(first: Job, then: Job) -> Job:
    (file,), (more,) = first.files, then.files
    beside = [_longer(one, other) for one, other in zip(file.beside, more.beside, strict=False)]
    longer = replace(_longer(file, more), beside=(*beside, *file.beside[len(beside) :]))
    return replace(first, files=(longer,), is_named=first.is_named or then.is_named)


def _longer(file: JobFile, more: JobFile) -> JobFile:
    return replace(file, parts=(*file.parts, more.path, *more.parts))
