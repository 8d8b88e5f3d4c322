"""Log files as a source: the records of one job's files, in one order, through the same `poll`.

Files are recognised by their bytes. Several files are merged by iteration, a file that is sorted by
rank is put into the order of iterations, and restarts of files that do not number their attempts
are recognised by a counter that goes back. What was understood is in `FileSource.notes`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from .blocks import RecordBatch
from .columns import batch_from_records
from .diagnosed import Diagnosed
from .diagnostics.report import DiagnosticReport
from .errors import UnreadableInput
from .file_hints import has_disorder
from .file_reader import FileConfig, FileNotes, FileReader
from .file_stream import StreamConfig, ordered_records
from .follow import FollowedFile
from .jobs import STANDARD_INPUT, Job, JobFile
from .streams import join_processes, join_streams

__all__ = ["FileConfig", "FileNotes", "FileSource", "Progress", "StreamConfig"]

UNCOUNTED = frozenset({"row number", "record number"})
"""Counters of a stream that counts nothing of its own."""
_COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Progress:
    """How far reading has come, in bytes of the files as they lie; ``total_bytes`` None if unknown."""

    read_bytes: int
    total_bytes: int | None


class FileSource:
    """The files of one `Job` as a `Source`.

    With ``follow`` plain text files are read as they grow, in the order lines come, without end.
    Standard input is put into a temporary file first, so that it can be sorted too; when followed
    it is read as it comes.
    """

    def __init__(
        self,
        job: Job,
        *,
        follow: bool = False,
        stdin: BinaryIO | None = None,
        config: FileConfig | None = None,
        stream: StreamConfig | None = None,
        reports: Sequence[DiagnosticReport] = (),
    ) -> None:
        self._job = job
        self._config = replace(config or FileConfig(), wants_times=bool(reports))
        self._stream = stream or StreamConfig()
        self._stdin = stdin
        self._spooled: list[Path] = []
        self._readers: list[FileReader] = []
        self._failed: list[UnreadableInput] = []
        self._is_exhausted = False
        self._diagnosed = Diagnosed(reports)
        self._rows = 0
        self._followed = [
            FollowedFile(each, job.run, self._config, stdin if each.path == STANDARD_INPUT else None)
            for file in job.files
            for each in (file, *file.beside)
            if follow
        ]
        self._records = iter(()) if follow else self._merged()

    def poll(self, timeout_s: float) -> list[RecordBatch]:
        """The next batches, merged by iteration over the files of the job; empty at the end.

        Raises:
            UnreadableInput: none of the files holds a record, or one is damaged.
        """
        if self._followed:
            return self._poll_followed(timeout_s)
        if self._is_exhausted:
            return []
        batch = next(self._records, None)
        if batch is not None:
            self._rows += len(batch) + len(batch.events)
            self._diagnosed.watch(batch)
            return [batch]
        self._is_exhausted = True
        self.close()
        if not self._rows:
            raise self._why_empty()
        return self._diagnoses()

    def position(self) -> Mapping[str, int]:
        """Per file the bytes read so far."""
        if self._followed:
            return {each.notes.path: each.offset for each in self._followed}
        return {reader.notes.path: reader.read_bytes for reader in self._readers}

    @property
    def is_exhausted(self) -> bool:
        """Whether all files are read to their ends; when following, standard input alone has one."""
        if self._followed:
            return all(each.has_ended or each.failed for each in self._followed)
        return self._is_exhausted

    @property
    def progress(self) -> Progress:
        """How far reading has come; sorting reads a file to its end before it hands on its first record."""
        if self._followed:
            return Progress(sum(each.offset for each in self._followed), None)
        total = sum(reader.size_bytes for reader in self._readers)
        read = total if self._is_exhausted else sum(reader.read_bytes for reader in self._readers)
        return Progress(read, total)

    @property
    def notes(self) -> tuple[FileNotes, ...]:
        """What was understood of each file, so far."""
        if self._followed:
            return tuple(each.notes for each in self._followed)
        return tuple(reader.notes for reader in self._readers)

    def finish(self) -> list[RecordBatch]:
        """End following: the records that were held back for lines to come.

        Raises:
            UnreadableInput: none of the files holds a record.
        """
        batches = [batch for each in self._followed for batch in self._from_followed(each, each.finish)]
        self._rows += sum(len(batch) + len(batch.events) for batch in batches)
        if self._failed and not self._rows:
            raise self._failed[0]
        return [*batches, *self._diagnoses()]

    def _diagnoses(self) -> list[RecordBatch]:
        """The events of reports about hardware, which can be placed only once all records are known."""
        events = self._diagnosed.events()
        return [batch_from_records(events)] if events else []

    def close(self) -> None:
        """Let go of the files; safe to call twice."""
        for each in self._followed:
            each.close()
        if isinstance(self._records, Iterator) and hasattr(self._records, "close"):
            self._records.close()
        for path in self._spooled:
            path.unlink(missing_ok=True)
        self._spooled.clear()

    def _merged(self) -> Iterator[RecordBatch]:
        files = self._job.files
        readers = [[self._reader(stream) for stream in (file, *file.beside)] for file in files]
        cursors = [self._process_records(own) for own in readers]
        if len(cursors) == 1:
            yield from cursors[0]
        else:
            yield from join_processes(cursors, lambda at: any(map(_counts, readers[at])))

    def _process_records(self, readers: Sequence[FileReader]) -> Iterator[RecordBatch]:
        """The records of one process: of its file, or of the streams that it wrote."""
        records = [self._file_records(reader) for reader in readers]
        if len(records) == 1:
            return records[0]

        def leave(other: int, main: int) -> None:
            taken = Path(readers[main].notes.path).name
            readers[other].remark(f"another stream of the same process: values are taken from {taken}")

        return join_streams(records, lambda at: _counts(readers[at]), leave)

    def _reader(self, file: JobFile) -> FileReader:
        reader = FileReader(file, self._path(file), self._job.run, self._config)
        self._readers.append(reader)
        return reader

    def _file_records(self, reader: FileReader) -> Iterator[RecordBatch]:
        """One file's records; of several files one that cannot be read is remarked, the others are judged."""
        try:
            yield from ordered_records(
                reader, lambda: has_disorder(reader, self._stream.lateness_iterations), self._stream
            )
        except UnreadableInput as error:
            if len(self._readers) == 1 and reader.notes.rows:
                raise
            self._failed.append(error)
            reader.remark(f"not read: {error}")

    def _path(self, file: JobFile) -> Path:
        if file.path != STANDARD_INPUT:
            return Path(file.path)
        return self._spool()

    def _spool(self) -> Path:
        """Standard input as a temporary file, deleted on `close`."""
        source = self._stdin
        if source is None:
            raise UnreadableInput("-: standard input is not open")
        with tempfile.NamedTemporaryFile(prefix="firstfault-stdin-", delete=False) as file:
            path = Path(file.name)
            self._spooled.append(path)
            while chunk := source.read(_COPY_BYTES):
                file.write(chunk)
        return path

    def _poll_followed(self, timeout_s: float) -> list[RecordBatch]:
        share_s = timeout_s / len(self._followed)
        found: list[RecordBatch] = []
        for each in self._followed:
            found += self._from_followed(each, partial(each.poll, share_s))
        self._rows += sum(len(batch) + len(batch.events) for batch in found)
        for batch in found:
            self._diagnosed.watch(batch)
        return [batch for batch in found if len(batch) or batch.events or batch.rejected]

    def _from_followed(self, file: FollowedFile, read: Callable[[], list[RecordBatch]]) -> list[RecordBatch]:
        """What ``read`` gives; of several files one that cannot be read is left alone, the others go on."""
        if file.failed:
            return []
        try:
            return read()
        except UnreadableInput as error:
            file.failed = str(error)
            self._failed.append(error)
            if all(each.failed for each in self._followed):
                raise
            return []

    def _why_empty(self) -> UnreadableInput:
        if self._failed:
            return self._failed[0]
        names = ", ".join(file.path for file in self._job.files[:3])
        rejected = sum(reader.notes.rejected for reader in self._readers)
        if sum(reader.notes.understood.padding for reader in self._readers):
            return UnreadableInput(f"{names}: must hold records, but every row is padding (all values nan)")
        if not rejected:
            return UnreadableInput(f"{names}: must hold records, but none is in it")
        return UnreadableInput(f"{names}: must hold records, but all {rejected} lines in it were rejected")


def _counts(reader: FileReader) -> bool:
    """Whether records were read of a file, in a counter of its own."""
    return bool(reader.notes.rows) and reader.notes.understood.counter not in UNCOUNTED
