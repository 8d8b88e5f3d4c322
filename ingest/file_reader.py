"""One log file, whatever its format, as record batches in the order of the file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from firstfault.telemetry import UNNAMED_RANK
from firstfault.wire import Defaults

from .ahead import ahead
from .blocks import Ints, RecordBatch
from .columns import distinct
from .documents import DOCUMENTS, document_reader
from .encodings import UTF8_MARK, as_8_bit, without_zero_runs
from .errors import UnreadableInput
from .file_bytes import FileBytes, unpacked_copy
from .folders import form_of_folder
from .jobs import JobFile
from .line_formats import line_decoder, prepared
from .log_reader import FileConfig, LineDecoder, Understood
from .sniff import HEAD_BYTES, Format, sniff
from .stand_ins import with_player_names
from .table_lines import last_record_end
from .text_columns import require_wanted, with_wanted
from .text_pieces import first_chunks, last_line_end, whole_lines

__all__ = ["FileConfig", "FileNotes", "FileReader"]

_ROWS = (Format.TABLE, Format.JSON_LINES, Format.JSON)
_COLUMNAR = frozenset({Format.ARROW, Format.PARQUET})
_STRUCTURED = frozenset({Format.TABLE, Format.JSON_LINES})
_PROGRAMS = frozenset((".py", ".pyi", ".sh", ".bash", ".c", ".cc", ".cpp", ".cu", ".h", ".hpp", ".rs", ".go"))
_TOLD = 5
"""Files that a sentence names."""


@dataclass(frozen=True, slots=True)
class FileNotes:
    """What was read of one file, and what was understood of it.

    ``metrics`` are those found so far, ``ranks`` the number of ranks that records named, ``first`` and
    ``last`` the least and the greatest iteration (-1: none yet), ``remarks`` sentences for a person.
    """

    path: str
    rows: int = 0
    rejected: int = 0
    understood: Understood = field(default_factory=Understood)
    metrics: tuple[str, ...] = ()
    ranks: int = 0
    first: int = -1
    last: int = -1
    own_remarks: tuple[str, ...] = ()
    """What the way from the file to its lines had to say: damage, order, rotation."""
    own_doubt: str = ""
    """Why what was left out of its records keeps it from being called healthy."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """All sentences, each once."""
        return tuple(dict.fromkeys((*self.understood.remarks, *self.own_remarks)))

    @property
    def doubt(self) -> str:
        """Why it is not to be called healthy though no record shows a fault; empty without a reason."""
        return self.understood.doubt or self.own_doubt


class FileReader:
    """Reads one file from its beginning, once."""

    def __init__(self, file: JobFile, path: Path, run: str, config: FileConfig | None = None) -> None:
        self._config = config or FileConfig()
        self._file = file
        self._run = run
        self.path = path
        self._name = file.path
        self._defaults = Defaults(run=run, rank=UNNAMED_RANK if file.rank is None else file.rank)
        self._heard: list[str] = []
        self._bytes = FileBytes([path, *map(Path, file.parts)], file.path, self._heard.append)
        self._metrics: dict[str, None] = {}
        self._ranks: set[int] = set()
        self._lines: LineDecoder | None = None
        self._is_as_it_lies = True
        self._is_text = False
        self.notes = FileNotes(file.path)
        self.is_wire = False
        """Whether its lines carry run and rank, as our own do."""
        self.says_attempt = False
        """Whether a record so far says its attempt."""
        self.names_ranks = False
        """Whether a record so far says its rank."""
        self.holds_rows = False
        """Whether it is a table or JSON, where what is missing in one record stands in others."""

    @property
    def decode_anew(self) -> Callable[[], Callable[[bytes], RecordBatch]] | None:
        """What decodes lines out of the middle of the file; None if it is not plain text with a counter."""
        lines = self._lines
        if not (self._bytes.is_plain and self._is_as_it_lies) or lines is None or lines.anew() is None:
            return None
        return lambda: lines.anew() or lines.decode

    def again(self) -> FileReader:
        """A reader of the same file that stands at its beginning."""
        return FileReader(self._file, self.path, self._run, self._config)

    @property
    def size_bytes(self) -> int:
        """Size of the file as it lies; 0 if it cannot be told."""
        return self._bytes.size_bytes

    @property
    def read_bytes(self) -> int:
        """Bytes of the file, as it lies, that were read so far."""
        return self._bytes.read_bytes

    def batches(self) -> Iterator[RecordBatch]:
        """All records, in the order of the file.

        Raises:
            UnreadableInput: it cannot be opened, is empty, binary or damaged.
        """
        if self._file.parts:
            self.remark(f"goes on in {', '.join(_told_parts(self._file)[:_TOLD])}")
        try:
            for batch in self._folder() if self.path.is_dir() else self._of_bytes():
                self.note(batch)
                yield with_player_names(batch, self.notes.understood.columns)
        finally:
            for sentence in self._heard:
                self.remark(sentence)

    def _folder(self) -> Iterator[RecordBatch]:
        """The records of a folder that is one run."""
        form = form_of_folder(self.path)
        if form is None:
            raise UnreadableInput(f"{self._name}: must be a file, or a folder that holds one run")
        yield from self._document(form, self.path)

    def _of_bytes(self) -> Iterator[RecordBatch]:
        chunks = self._bytes.chunks()
        head_chunks = first_chunks(chunks, HEAD_BYTES)
        head = b"".join(head_chunks)
        form = self._form_of(head[:HEAD_BYTES])
        self.holds_rows = form in _ROWS
        everything = chain(head_chunks, chunks)
        if form not in DOCUMENTS and form not in _COLUMNAR:
            yield from self._text(head, everything, form)
        elif self._bytes.is_plain:
            yield from self._whole(form, self.path)
            self._bytes.skip()
        else:
            with unpacked_copy(everything, self.path.name) as copy:
                try:
                    yield from self._whole(form, copy)
                except UnreadableInput as error:
                    raise UnreadableInput(str(error).replace(str(copy), self._name)) from error

    def _form_of(self, head: bytes) -> Format:
        """The format, as it was given or by the bytes. What a program would print is no telemetry."""
        if self._config.form is not None:
            return self._config.form
        form = sniff(head, self._name)
        if form is Format.TEXT and self.path.suffix.lower() in _PROGRAMS:
            raise UnreadableInput(
                f"{self._name}: must be a log, but its name is that of a program (--format text reads it)"
            )
        return form

    def remark(self, sentence: str) -> None:
        """Add a sentence to the notes, once."""
        if sentence not in self.notes.own_remarks:
            self.notes = replace(self.notes, own_remarks=(*self.notes.own_remarks, sentence))

    def doubt(self, sentence: str) -> None:
        """Say why the file is not to be called healthy."""
        self.notes = replace(self.notes, own_doubt=sentence)

    def _whole(self, form: Format, path: Path) -> Iterator[RecordBatch]:
        """The records of a file that its reader opens by itself."""
        return self._columnar(form, path) if form in _COLUMNAR else self._document(form, path)

    def _columnar(self, form: Format, path: Path) -> Iterator[RecordBatch]:
        self.notes = replace(self.notes, understood=Understood(format=form.value))
        # pyarrow is heavy: text files must not pay for it
        from .arrow_stream import iter_arrow_file
        from .column_roles import ColumnRoles
        from .parquet_file import iter_parquet

        read = iter_arrow_file if form is Format.ARROW else iter_parquet
        roles = ColumnRoles(self._config.columns)
        for batch in read(path, self._config.decode, self._defaults):
            self.says_attempt = self.says_attempt or bool(batch.attempt_N.any())
            self.is_wire = self.is_wire or bool((batch.rank_N != self._defaults.rank).any())
            yield batch if self.is_wire else roles.rename(batch)

    def _document(self, form: Format, path: Path) -> Iterator[RecordBatch]:
        for batch, understood in document_reader(form)(path, self._defaults, self._config):
            self.notes = replace(self.notes, understood=understood)
            self.says_attempt = self.says_attempt or bool(batch.attempt_N.any())
            yield batch

    def begin(self, head: bytes) -> LineDecoder:
        """What decodes the lines of this text file, which begins with ``head``, in their order.

        Raises:
            UnreadableInput: no text in a format that is read.
        """
        form = self._form_of(head)
        self._is_text = form is Format.TEXT
        self._lines = line_decoder(form, head, self._defaults, self._name, self._config)
        self.is_wire = self._lines.is_wire
        self.notes = replace(self.notes, understood=self._lines.understood())
        return self._lines

    def _text(self, head: bytes, chunks: Iterator[bytes], form: Format) -> Iterator[RecordBatch]:
        head = head.removeprefix(UTF8_MARK)
        if b"\0" in head:
            head = next(without_zero_runs(iter([head])))
        chunks = without_zero_runs(chunks)
        if b"\n" not in head and b"\r" in head:  # lines of old Mac software
            self._is_as_it_lies = False
            head, chunks = head.replace(b"\r", b"\n"), (chunk.replace(b"\r", b"\n") for chunk in chunks)
        head = head[: last_line_end(head)] or head
        lines = self.begin(as_8_bit(head) if form in _STRUCTURED else head)
        border = last_record_end if form is Format.TABLE else last_line_end
        # What is no UTF-8 in our own lines is damage, here as from anywhere.
        is_foreign = form in _STRUCTURED and not lines.is_wire
        pieces = whole_lines(_without_mark(chunks), self._config.piece_bytes, border)
        for decode in ahead(prepared(lines, as_8_bit(piece) if is_foreign else piece) for piece in pieces):
            yield self._wanted(lines, decode())
        if (rest := lines.finish()) is not None:
            yield self._wanted(lines, rest)
        if self._is_text and self._config.columns:
            require_wanted(self._config.columns, lines.understood())

    def _wanted(self, lines: LineDecoder, batch: RecordBatch) -> RecordBatch:
        """The batch with what a person says of its keys; tables and JSON see to that themselves."""
        wanted = self._config.columns
        return with_wanted(batch, wanted, lines.understood()) if self._is_text and wanted else batch

    def note(self, batch: RecordBatch) -> None:
        """Count a batch in the notes."""
        if self._lines is not None:
            self.is_wire = self._lines.is_wire
            self.says_attempt = self._lines.says_attempt
            self.notes = replace(self.notes, understood=self._lines.understood())
        self._metrics.update(dict.fromkeys((*batch.numbers, *batch.checksums)))
        self.names_ranks = self.names_ranks or bool((batch.rank_N != self._defaults.rank).any())
        self._ranks.update(distinct(batch.rank_N))
        iterations_N = batch.iteration_N
        self.notes = replace(
            self.notes,
            rows=self.notes.rows + len(batch),
            rejected=self.notes.rejected + len(batch.rejected),
            metrics=tuple(self._metrics),
            ranks=len(self._ranks - {UNNAMED_RANK}),
            first=_least(self.notes.first, iterations_N),
            last=max(self.notes.last, int(iterations_N.max(initial=-1))),
        )


def _told_parts(file: JobFile) -> list[str]:
    """The files that go on, by what tells them from the first: their names, or the ends of their paths."""
    shared = Path(os.path.commonpath([file.path, *file.parts]))
    return [Path(part).relative_to(shared).as_posix() for part in file.parts]


def _least(so_far: int, iterations_N: Ints) -> int:
    if not len(iterations_N):
        return so_far
    least = int(iterations_N.min())
    return least if so_far < 0 else min(so_far, least)


def _without_mark(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks without the byte order mark that some editors put at the front."""
    first = next(chunks, b"")
    yield first.removeprefix(UTF8_MARK)
    yield from chunks
