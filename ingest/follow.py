"""A growing text file read as it grows, like ``tail -f``; also standard input as it comes."""

from __future__ import annotations

import io
import os
import select
import time
from pathlib import Path
from typing import BinaryIO

from .attempts import AttemptAssigner, AttemptConfig
from .blocks import RecordBatch
from .documents import DOCUMENTS
from .errors import UnreadableInput
from .file_reader import FileConfig, FileNotes, FileReader
from .jobs import STANDARD_INPUT, JobFile
from .log_reader import LineDecoder
from .missing_loss import MissingLoss
from .sniff import COMPRESSED_SUFFIXES, HEAD_BYTES, Format, Packing, packing_of, sniff
from .special_files import Special, kind_of
from .text_pieces import last_line_end

_POLL_S = 0.1
"""Between two looks at a file that did not grow: well below what a person notices."""
_READ_BYTES = 1 << 20
_WHOLE = frozenset({*DOCUMENTS, Format.ARROW, Format.PARQUET}) - {Format.JSON}
"""Formats that are read as a whole, and known by their first bytes; more lines may make JSON lines of it."""
_HEAD_LINES = 2
"""Lines that a new file must have before its format is told: a header and a row."""


def require_followable(path: Path) -> None:
    """Refuse what cannot be opened without waiting, or never ends.

    Raises:
        UnreadableInput: a pipe or a device.
    """
    kind = kind_of(path)
    if kind is not Special.NONE:
        raise UnreadableInput(f"{path}: only files can be followed, this is {kind.value}: follow - instead")


class FollowedFile:
    """One file (or standard input) that is still being written.

    Only complete lines are read. A file that shrinks was begun anew, one that was replaced under its
    name (rotated) is read on from the new file's beginning; both are remarked.
    """

    def __init__(self, file: JobFile, run: str, config: FileConfig, stdin: BinaryIO | None = None) -> None:
        self._file, self._run, self._config = file, run, config
        self._paths = _plain_pieces(file)
        self._stdin = stdin
        self._stream: BinaryIO | None = None
        self._reader = FileReader(file, Path(file.path), run, config)
        self._lines: LineDecoder | None = None
        self._missing = MissingLoss()
        self._assigner: AttemptAssigner | None = None
        self._carry, self._head = b"", b""
        self._form: Format | None = None
        self.failed = ""
        """Why it is read no longer."""
        self.has_ended = False
        """Whether nothing can come any more: standard input whose writer is gone."""
        self.offset = 0
        """Bytes of complete lines that were read so far, over all files of that name."""

    @property
    def notes(self) -> FileNotes:
        """What was understood so far."""
        return self._reader.notes

    def poll(self, timeout_s: float) -> list[RecordBatch]:
        """The records of the lines that are new, waiting at most ``timeout_s`` for some.

        Raises:
            UnreadableInput: the file holds no text in a format that is read.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            batches = self._take(self._read(deadline))
            if batches or self.has_ended or time.monotonic() >= deadline:
                return batches
            if self._file.path != STANDARD_INPUT:
                time.sleep(min(_POLL_S, max(deadline - time.monotonic(), 0)))

    def finish(self) -> list[RecordBatch]:
        """What was held back for a line to come, now that nobody waits any longer.

        Raises:
            UnreadableInput: nothing in it was recognised.
        """
        batches: list[RecordBatch] = []
        if self._carry:  # a last line without its end
            head, self._carry = self._carry + b"\n", b""
            if self._lines is None:
                self._form = self._config.form or sniff(head, self._file.path)
                self._lines = self._reader.begin(head)
            batches = self._taken(self._lines.decode(head))
        rest = None if self._lines is None else self._lines.finish()
        return batches if rest is None else [*batches, *self._taken(rest)]

    def close(self) -> None:
        """Let go of the file; safe to call twice."""
        if self._stream is not None:
            self._stream.close()

    def _read(self, deadline: float) -> bytes:
        if self._file.path == STANDARD_INPUT:
            return self._read_stdin(deadline)
        path = self._paths[0]
        if self._stream is None:
            require_followable(path)
        if self._stream is None or (len(self._paths) == 1 and self._is_replaced(path)):
            try:
                self._stream = path.open("rb")
            except FileNotFoundError:  # yet to come, or between two files of a rotation
                return b""
            except IsADirectoryError as error:
                raise UnreadableInput(f"{path}: only logs in lines can be followed, not a folder") from error
            except OSError as error:
                raise UnreadableInput(f"{path}: {error.strerror}") from error
        data = self._stream.read(_READ_BYTES)
        if not data and len(self._paths) > 1:  # an earlier piece: the log goes on in the next one
            self._stream.close()
            self._stream = None
            self._paths = self._paths[1:]
            return self._read(deadline)
        return data

    def _read_stdin(self, deadline: float) -> bytes:
        if self._stdin is None:
            raise UnreadableInput("-: standard input is not open")
        try:
            descriptor = self._stdin.fileno()
        except (OSError, io.UnsupportedOperation):  # not a file of the system: read what it has
            data = self._stdin.read(_READ_BYTES)
            self.has_ended = not data
            return data
        ready, _, _ = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))
        data = os.read(descriptor, _READ_BYTES) if ready else b""
        self.has_ended = bool(ready) and not data
        return data

    def _is_replaced(self, path: Path) -> bool:
        """Whether the name now stands for a file whose beginning was not read; then starts anew."""
        assert self._stream is not None
        here = os.fstat(self._stream.fileno())
        try:
            there = path.stat()
        except OSError:
            return False
        is_other = (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino)
        if is_other and self._stream.tell() < here.st_size:
            return False  # the rest of the old file first
        if not is_other and there.st_size >= self._stream.tell():
            return False
        self._stream.close()
        if not is_other or self._form is not Format.TEXT:  # a text log goes on as it was in the next file
            self._carry, self._head, self._lines = b"", b"", None
        self._reader.remark("was replaced by a new file" if is_other else "was cut and begun anew")
        return True

    def _take(self, data: bytes) -> list[RecordBatch]:
        data = self._carry + data
        end = last_line_end(data)
        if self._lines is None and data and packing_of(data) is not Packing.PLAIN:
            raise UnreadableInput(
                f"{self._file.path}: only plain text can be followed, this is packed: judge it by itself"
            )
        if self._lines is None and not self._begin(data[:end] or data):
            self._carry = data
            return []
        self._carry = data[end:]
        if not end or self._lines is None:
            return []
        self.offset += end
        return self._taken(self._decoded(data[:end]))

    def _begin(self, head: bytes) -> bool:
        """Start to decode, if ``head`` is enough to tell the format by; whether that was so."""
        is_short = head.count(b"\n") < _HEAD_LINES and not head.startswith(b"{")
        if is_short and len(head) < HEAD_BYTES:
            return False
        try:
            self._form = self._config.form or sniff(head, self._file.path)
            self._require_lines(self._form)
            self._lines = self._reader.begin(head)
        except UnreadableInput:
            if len(head) < HEAD_BYTES and self._form not in _WHOLE:
                return False  # more lines may tell
            raise
        if self._assigner is None:
            self._assigner = AttemptAssigner(AttemptConfig(far_only=self._reader.is_wire))
        return True

    def _require_lines(self, form: Format) -> None:
        """Refuse what is read as a whole: waiting for its lines would take for ever."""
        if form in _WHOLE:
            raise UnreadableInput(
                f"{self._file.path}: only logs in lines can be followed, this is {form.value}:"
                " judge it without --follow, and anew when it has grown"
            )

    def _decoded(self, data: bytes) -> RecordBatch:
        """The records of whole lines. What looks like text may turn out to be more than that: until a first
        record is found, the format is told anew by all that was read."""
        assert self._lines is not None, "begun before it is decoded"
        is_open = self._form is Format.TEXT and not self._config.form and not self._lines.understood().columns
        self._head = self._head + data if is_open else b""
        is_other = is_open and sniff(self._head[:HEAD_BYTES], self._file.path) is not Format.TEXT
        if is_other and self._begin(self._head):
            data = self._head
        return self._lines.decode(data)

    def _taken(self, batch: RecordBatch) -> list[RecordBatch]:
        if not self._reader.is_wire:
            batch = self._missing.infer(batch, is_growing=True)
        self._reader.note(batch)
        if self._assigner is not None and not self._reader.says_attempt:
            batch = self._assigner.assign(batch)
        return [batch] if len(batch) or batch.events or batch.rejected else []


def _plain_pieces(file: JobFile) -> tuple[Path, ...]:
    """The pieces of a log in order, the growing one last; packed ones are left out: nobody writes them."""
    *earlier, last = (file.path, *file.parts)
    plain = [path for path in earlier if not path.lower().endswith(COMPRESSED_SUFFIXES)]
    return tuple(Path(path) for path in (*plain, last))
