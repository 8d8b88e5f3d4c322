"""One log file, whatever its format, as record batches in the order of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from firstfault.telemetry import UNNAMED_RANK
from firstfault.wire import Defaults

from .blocks import RecordBatch
from .compression import TruncatedInput, open_bounded
from .decode import DecodeConfig, Decoder
from .errors import UnreadableInput
from .jobs import JobFile
from .json_keys import JsonLinesAdapter, read_keys
from .sniff import HEAD_BYTES, Format, Packing, find_dialect, packing_of, sniff
from .table_header import ROW_NUMBER
from .table_lines import last_record_end
from .tables import TableConfig, TableReader
from .text_pieces import last_line_end, whole_lines

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig:
    """How files are read."""

    piece_bytes: int = 8 << 20
    """Bytes of text decoded at once: 8 MiB, 40 000 to 200 000 rows, beyond which nothing gets faster."""
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    form: Format | None = None
    """The format, where the bytes shall not decide."""


@dataclass(frozen=True, slots=True)
class FileNotes:
    """What was understood of one file.

    ``counter`` names the column used as iteration (``row number`` when there is none), ``metrics``
    the metrics found so far, ``padding`` the rows whose metrics are all nan and hence not reported,
    ``remarks`` sentences for a person.
    """

    path: str
    format: str = ""
    rows: int = 0
    rejected: int = 0
    padding: int = 0
    counter: str = "iteration"
    metrics: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


class FileReader:
    """Reads one file from its beginning, once."""

    def __init__(self, file: JobFile, path: Path, run: str, config: FileConfig | None = None) -> None:
        self._config = config or FileConfig()
        self._file = file
        self._run = run
        self.path = path
        self._name = file.path
        self._defaults = Defaults(run=run, rank=UNNAMED_RANK if file.rank is None else file.rank)
        self._stream: BinaryIO | None = None
        self._metrics: dict[str, None] = {}
        self._table: TableReader | None = None
        self._is_plain = False
        self._sampling: Callable[[], Callable[[bytes], RecordBatch]] | None = None
        self.notes = FileNotes(file.path)
        self.is_wire = False
        """Whether its lines carry run and rank, as our own do."""
        self.says_attempt = False
        """Whether a record so far says its attempt."""
        self.names_ranks = False
        """Whether a record so far says its rank."""

    @property
    def decode_anew(self) -> Callable[[], Callable[[bytes], RecordBatch]] | None:
        """What decodes lines out of the middle of the file; None if it is not plain text with a counter."""
        return self._sampling if self._is_plain else None

    def again(self) -> FileReader:
        """A reader of the same file that stands at its beginning."""
        return FileReader(self._file, self.path, self._run, self._config)

    @property
    def size_bytes(self) -> int:
        """Size of the file as it lies; 0 if it cannot be told."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    @property
    def read_bytes(self) -> int:
        """Bytes of the file, as it lies, that were read so far."""
        return 0 if self._stream is None or self._stream.closed else self._stream.tell()

    def batches(self) -> Iterator[RecordBatch]:
        """All records, in the order of the file.

        Raises:
            UnreadableInput: it cannot be opened, is empty, binary or damaged.
        """
        try:
            self._stream = self.path.open("rb")
        except OSError as error:
            raise UnreadableInput(f"{self._name}: {error.strerror}") from error
        with self._stream as stream:
            self._is_plain = packing_of(stream.read(4)) is Packing.PLAIN
            stream.seek(0)
            chunks = self._unpacked(stream)
            head_chunks = _first(chunks, HEAD_BYTES)
            head = b"".join(head_chunks)
            form = self._config.form or sniff(head[:HEAD_BYTES], self._name)
            if form in (Format.ARROW, Format.PARQUET):
                batches = self._columnar(form, stream)
            else:
                batches = self._text(head, chain(head_chunks, chunks), is_table=form is Format.TABLE)
            for batch in batches:
                self.note(batch)
                yield batch

    def remark(self, sentence: str) -> None:
        """Add a sentence to the notes, once."""
        if sentence not in self.notes.remarks:
            self.notes = replace(self.notes, remarks=(*self.notes.remarks, sentence))

    def _unpacked(self, stream: BinaryIO) -> Iterator[bytes]:
        try:
            yield from open_bounded(stream)
        except TruncatedInput as error:
            self.remark(f"{error}; what came before is judged")
        except UnreadableInput as error:
            text = str(error)
            raise UnreadableInput(text if self._name in text else f"{self._name}: {text}") from error

    def _columnar(self, form: Format, stream: BinaryIO) -> Iterator[RecordBatch]:
        if not self._is_plain:
            raise UnreadableInput(f"{self._name}: {form.value} files must not be packed with gzip or zstd")
        self.notes = replace(self.notes, format=form.value)
        # pyarrow is heavy: text files must not pay for it
        from .arrow_stream import iter_arrow_file
        from .parquet_file import iter_parquet

        read = iter_arrow_file if form is Format.ARROW else iter_parquet
        for batch in read(self.path, self._config.decode, self._defaults):
            self.says_attempt = self.says_attempt or bool(batch.attempt_N.any())
            self.is_wire = self.is_wire or bool((batch.rank_N != self._defaults.rank).any())
            yield batch
        stream.seek(0, 2)  # read to its end, through another handle

    def begin(self, head: bytes) -> Callable[[bytes], RecordBatch]:
        """What decodes the lines of this text file, which begins with ``head``, in their order.

        Raises:
            UnreadableInput: no text in a format that is read.
        """
        form = self._config.form or sniff(head, self._name)
        self.notes = replace(self.notes, format=form.value)
        if form is Format.TABLE:
            return self._begin_table(head)
        if form is Format.JSON_LINES:
            return self._begin_lines(head)
        raise UnreadableInput(f"{self._name}: must be text, but it is {form.value}")

    def _text(self, head: bytes, chunks: Iterator[bytes], *, is_table: bool) -> Iterator[RecordBatch]:
        head = head.removeprefix(BYTE_ORDER_MARK)
        if b"\n" not in head and b"\r" in head:  # lines of old Mac software
            self._is_plain = False
            head, chunks = head.replace(b"\r", b"\n"), (chunk.replace(b"\r", b"\n") for chunk in chunks)
        decode = self.begin(head[: last_line_end(head)] or head)
        border = last_record_end if is_table else last_line_end
        for piece in whole_lines(_without_mark(chunks), self._config.piece_bytes, border):
            yield decode(piece)

    def _begin_table(self, head: bytes) -> Callable[[bytes], RecordBatch]:
        dialect = find_dialect(head, self._name)
        table = self._table = TableReader(dialect, head, self._defaults, self._name)
        self.notes = replace(self.notes, counter=table.header.counter)
        if table.header.iteration is not None:
            large = TableConfig(small_piece_bytes=0)  # only large files are sampled
            self._sampling = lambda: TableReader(dialect, head, self._defaults, self._name, large).decode

        def decode(piece: bytes) -> RecordBatch:
            batch = table.decode(piece)
            self.says_attempt = self.says_attempt or "attempt" in table.header.identity
            self.is_wire = {"run", "rank"} <= table.header.identity.keys()
            for sentence in table.header.remarks:
                self.remark(sentence)
            return batch

        return decode

    def _begin_lines(self, head: bytes) -> Callable[[bytes], RecordBatch]:
        keys = read_keys(head)
        self.is_wire = keys.is_wire
        self.notes = replace(self.notes, counter=keys.counter)
        for sentence in keys.remarks:
            self.remark(sentence)
        if keys.counter != ROW_NUMBER:
            self._sampling = lambda: self._line_decoder(JsonLinesAdapter(keys))
        return self._line_decoder(JsonLinesAdapter(keys))

    def _line_decoder(self, adapter: JsonLinesAdapter) -> Callable[[bytes], RecordBatch]:
        decoder = Decoder(self._config.decode, self._defaults)
        lines = 0

        def decode(piece: bytes) -> RecordBatch:
            nonlocal lines
            self.says_attempt = self.says_attempt or b'"attempt"' in piece
            batch = adapter.rename(decoder.decode_lines(adapter.adapt(piece), self._name, lines))
            lines += piece.count(b"\n")
            return batch

        return decode

    def note(self, batch: RecordBatch) -> None:
        """Count a batch in the notes."""
        self._metrics.update(dict.fromkeys((*batch.numbers, *batch.checksums)))
        self.names_ranks = self.names_ranks or bool((batch.rank_N != self._defaults.rank).any())
        self.notes = replace(
            self.notes,
            rows=self.notes.rows + len(batch),
            rejected=self.notes.rejected + len(batch.rejected),
            padding=self._table.padding if self._table is not None else 0,
            metrics=tuple(self._metrics),
        )


def _first(chunks: Iterator[bytes], size: int) -> list[bytes]:
    """Chunks from the front until they hold ``size`` bytes."""
    taken: list[bytes] = []
    while sum(len(chunk) for chunk in taken) < size:
        chunk = next(chunks, None)
        if chunk is None:
            break
        taken.append(chunk)
    return taken


def _without_mark(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The chunks without the byte order mark that some editors put at the front."""
    first = next(chunks, b"")
    yield first.removeprefix(BYTE_ORDER_MARK)
    yield from chunks
