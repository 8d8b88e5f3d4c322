"""Log files as a source: the records of one job's files, in one order, through the same `poll`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import BinaryIO

from .blocks import RecordBatch
from .jobs import Job


@dataclass(frozen=True, slots=True)
class FileNotes:
    """What was understood of one file.

    ``counter`` names the column used as iteration (``row number`` when there is none), ``metrics``
    the metrics found so far, ``padding`` the rows whose metrics are all nan and hence not reported,
    ``remarks`` sentences for a person.
    """

    path: str
    format: str
    rows: int = 0
    rejected: int = 0
    padding: int = 0
    counter: str = "iteration"
    metrics: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How far reading has come, in bytes of the files as they lie; ``total_bytes`` None if unknown."""

    read_bytes: int
    total_bytes: int | None


class FileSource:
    """The files of one `Job` as a `Source`."""

    def __init__(self, job: Job, *, follow: bool = False, stdin: BinaryIO | None = None) -> None:
        raise NotImplementedError

    def poll(self, timeout_s: float) -> list[RecordBatch]:
        """The next batches, merged by iteration over the files of the job."""
        raise NotImplementedError

    def position(self) -> Mapping[str, int]:
        """Per file the bytes read so far."""
        raise NotImplementedError

    @property
    def is_exhausted(self) -> bool:
        """Whether all files are read to their ends; never, when following."""
        raise NotImplementedError

    @property
    def progress(self) -> Progress:
        """How far reading has come."""
        raise NotImplementedError

    @property
    def notes(self) -> tuple[FileNotes, ...]:
        """What was understood of each file, so far."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the files; safe to call twice."""
        raise NotImplementedError
