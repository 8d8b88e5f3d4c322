"""Text tables (CSV, TSV, semicolons) become records, a piece of the file at a time.

Axes: L records of the text of one piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from firstfault.wire import Defaults
from firstfault.wire_values import describe

from .blocks import Flags, RecordBatch, Rejected
from .errors import UnreadableInput
from .joining import concatenate
from .number_cells import number_columns
from .roles import Roles
from .sniff import Dialect
from .table_header import holds_numbers, is_header_row, read_header, value_of_file
from .table_lines import Lines, cut_lines, rows_of
from .table_rows import TableRows
from .table_runs import RunColumns, runs_side_by_side
from .table_text import SMALL_PIECE_BYTES, TextColumn, plain_columns, polars_columns


@dataclass(frozen=True, slots=True, kw_only=True)
class TableConfig:
    """What a table may ask of us."""

    max_columns: int = 4096
    """Cells of one row; wider tables are matrices, not logs, and cost memory a column."""
    sample_rows: int = 1000
    """Rows at the head that decide what a column means."""
    small_piece_bytes: int = SMALL_PIECE_BYTES
    """Pieces up to it are read without polars; 0 where polars is loaded anyway."""
    compile_after_pieces: int = 4
    """Large pieces after which the reader of numbers is compiled where no process did so before: that takes
    2 s, and polars 0.1 s a piece."""
    max_rejected_raw_bytes: int = 1024
    """Bytes of a bad line that are kept to show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRows:
    """Lines of which all was done that can be before those in front of them are decoded.

    ``head`` are those up to the first that is a row. ``columns`` are the cells of ``data``, taken to be
    ``width`` numbers a row: None where they are not. ``compiles``: to read them is worth compiling.
    """

    head: bytes = b""
    data: bytes
    width: int = 0
    compiles: bool = False
    columns: list[TextColumn] | None = None


class TableReader:
    """Reads the rows of one table in order; what a column means is decided once, at its head.

    A header line in the middle (a restarted run appends to its log) is taken as such. A row with
    more or fewer cells than the header is rejected, since it cannot be known which is missing.
    """

    def __init__(
        self,
        dialect: Dialect,
        head: bytes,
        defaults: Defaults,
        source: str,
        config: TableConfig | None = None,
        *,
        wanted: Mapping[str, str] | None = None,
    ) -> None:
        self._config = config or TableConfig()
        self._dialect = dialect
        self._defaults = defaults
        self._source = source
        self._next_line = 0
        self._large_pieces = 0
        self._has_begun = not dialect.has_header
        self._is_begun_ahead = self._has_begun
        if len(dialect.names) > self._config.max_columns:
            raise UnreadableInput(
                f"{source}: a table must have at most {self._config.max_columns} columns,"
                f" got {len(dialect.names)}"
            )
        sample = self._sample(dialect.names, head)
        self._wanted = wanted = wanted or value_of_file(dialect.names, sample, source)
        header = read_header(dialect.names, sample, wanted)
        if not holds_numbers(header, sample):
            raise UnreadableInput(
                f"{source}: a table must have a column of numbers besides its counter, got none"
            )
        runs = None if wanted else runs_side_by_side(dialect.names)
        self._rows: TableRows | RunColumns = TableRows(header, defaults, source)
        if runs is not None:
            self._rows = RunColumns(runs, dialect.names, sample, defaults, source)

    @property
    def header(self) -> Roles:
        """What the columns mean, at this place of the file."""
        return self._rows.header

    @property
    def padding(self) -> int:
        """Rows not reported: their metrics, at least two and one a time, counter or rate, are all nan."""
        return self._rows.padding

    def decode(self, data: bytes) -> RecordBatch:
        """The records of the next whole lines of the file."""
        return self.take(self.read(self.prepare(data)))

    def prepare(self, data: bytes) -> PreparedRows:
        """The next whole lines, to be taken in the same order, while earlier ones may be taken elsewhere."""
        data = self._dialect.plain(data.replace(b"\r\n", b"\n") if b"\r" in data else data)
        is_small = len(data) <= self._config.small_piece_bytes or not data.endswith(b"\n")
        at = 0
        if not self._is_begun_ahead:
            at, self._is_begun_ahead = _behind_first_row(data)
        if is_small:
            return PreparedRows(data=data)
        head, data, width = data[:at], data[at:], len(self.header.names)
        self._large_pieces += 1
        compiles = self._large_pieces > self._config.compile_after_pieces
        return PreparedRows(head=head, data=data, width=width, compiles=compiles)

    def read(self, rows: PreparedRows) -> PreparedRows:
        """The same with its columns; whatever else happens meanwhile."""
        return replace(rows, columns=self._numbers(rows, rows.width)) if rows.width else rows

    def take(self, rows: PreparedRows) -> RecordBatch:
        """The records of what `prepare` gave."""
        if not rows.width:
            return self._decode_any(rows.data)
        batches = [self._decode_any(rows.head)] if rows.head else []
        columns, width = rows.columns, len(self.header.names)
        if rows.width != width:  # a header among the lines before
            columns = self._numbers(rows, width)
        batches.append(self._decode_any(rows.data) if columns is None else self._decode_numbers(columns))
        return batches[-1] if len(batches) == 1 or _is_blank(batches[0]) else concatenate(batches)

    def _numbers(self, rows: PreparedRows, width: int) -> list[TextColumn] | None:
        """The columns of lines that hold nothing but numbers; None if they hold anything else."""
        return number_columns(rows.data, self._dialect.delimiter, width, compiles=rows.compiles)

    def _decode_numbers(self, columns: list[TextColumn]) -> RecordBatch:
        number_N = np.arange(len(columns[0])) + self._next_line
        self._next_line += len(number_N)
        return self._rows.decode(columns, number_N, [])

    def _decode_any(self, data: bytes) -> RecordBatch:
        lines = cut_lines(_without_cut_cell(data, self._dialect.delimiter), self._dialect.delimiter)
        batches: list[RecordBatch] = []
        start = 0
        for at, cells in self._headers_within(lines):
            batches.append(self._decode_lines(_part(lines, start, at)))
            if tuple(cells) != self.header.names:
                self._change_header(cells, lines, at)
            start = at + 1
        batches.append(self._decode_lines(_part(lines, start, len(lines.start_L))))
        self._next_line += lines.physical_lines
        return batches[0] if len(batches) == 1 else concatenate(batches)

    def _sample(self, names: tuple[str, ...], head: bytes) -> list[list[str]]:
        lines = cut_lines(self._dialect.plain(head.replace(b"\r\n", b"\n")), self._dialect.delimiter)
        fits = np.flatnonzero(lines.cells_L >= len(names))[: self._config.sample_rows + 1]
        rows = rows_of([lines.raw(int(at)) for at in fits], self._dialect.delimiter)
        return [row for row in rows if tuple(cell.strip() for cell in row) != names]

    def _change_header(self, cells: list[str], lines: Lines, at: int) -> None:
        sample = _part(lines, at + 1, min(at + 1 + self._config.sample_rows, len(lines.start_L)))
        head = b"".join(sample.raw(row) + b"\n" for row in range(len(sample.start_L)))
        names = tuple(cells)
        self._rows.change_header(read_header(names, self._sample(names, head), self._wanted))

    def _headers_within(self, lines: Lines) -> list[tuple[int, list[str]]]:
        """Where header lines stand in a piece: the first line of the table, and repetitions of it."""
        suspects = _lines_holding(lines, max(self._search_names(), key=len).encode())
        rows = rows_of([lines.raw(at) for at in suspects], self._dialect.delimiter)
        found = {
            at: cells
            for at, row in zip(suspects, rows, strict=True)
            if not lines.raw(at).startswith(b"#")
            and is_header_row(cells := [cell.strip() for cell in row], self.header)
        }
        if not self._has_begun:
            first = _first_row(lines)
            if first is not None:
                self._has_begun = True
                found[first] = list(self.header.names)
        return sorted(found.items())

    def _search_names(self) -> tuple[str, ...]:
        """A header is looked for by the name of its counter, or by its longest name."""
        header = self.header
        return header.names if header.iteration is None else (header.names[header.iteration],)

    def _decode_lines(self, lines: Lines) -> RecordBatch:
        width = len(self.header.names)
        fits_L = lines.cells_L == width
        rejected: list[Rejected] = []
        for at in np.flatnonzero(~fits_L):
            raw = lines.raw(int(at))
            if not raw.strip() or raw.startswith(b"#"):
                continue
            if self._has_only_empty_rest(raw, width):
                fits_L[at] = True
                continue
            rejected.append(
                self._bad_line(raw, f"must have {width} cells, as the header", int(lines.number_L[at]))
            )
        fits_L &= ~_comments(lines)
        return self._rows.decode(
            self._parse(lines, fits_L), lines.number_L[fits_L] + self._next_line, rejected
        )

    def _has_only_empty_rest(self, raw: bytes, width: int) -> bool:
        row = next(iter(rows_of([raw], self._dialect.delimiter)), [])
        return len(row) > width and not any(cell.strip() for cell in row[width:])

    def _parse(self, lines: Lines, fits_L: Flags) -> list[TextColumn]:
        """The cells of the fitting records, column by column."""
        width, delimiter = len(self.header.names), self._dialect.delimiter
        if len(lines.data) > self._config.small_piece_bytes:
            columns = polars_columns(lines.only(fits_L), delimiter, width, int(fits_L.sum()))
            if columns is not None:
                return columns
        return plain_columns([lines.raw(int(at)) for at in np.flatnonzero(fits_L)], delimiter, width)

    def _bad_line(self, raw: bytes, rule: str, number: int) -> Rejected:
        kept = raw[: self._config.max_rejected_raw_bytes]
        text = kept.decode("utf-8", "replace")
        return Rejected("line", rule, describe(text), True, self._source, self._next_line + number, kept)


def _behind_first_row(data: bytes) -> tuple[int, bool]:
    """Where the first line ends that is neither blank nor a comment, and whether there is one."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at) + 1 or len(data)
        line = data[at:end].strip()
        at = end
        if line and not line.startswith(b"#"):
            return at, True
    return at, False


def _is_blank(batch: RecordBatch) -> bool:
    """Whether nothing at all came of some lines."""
    return not (len(batch) or batch.rejected or batch.labels)


def _without_cut_cell(data: bytes, delimiter: str) -> bytes:
    """The lines without a last one that ends in the middle, before its last cell: that is no empty cell."""
    if data.endswith(b"\n") or not data.endswith(delimiter.encode()):
        return data
    return data[: data.rfind(b"\n") + 1]


def _part(lines: Lines, start: int, stop: int) -> Lines:
    if start == 0 and stop == len(lines.start_L):
        return lines
    part = slice(start, stop)
    return Lines(
        lines.data, lines.start_L[part], lines.stop_L[part], lines.cells_L[part], lines.number_L[part], 0
    )


def _comments(lines: Lines) -> Flags:
    bytes_N = np.frombuffer(lines.data, np.uint8)
    inside_L = lines.start_L < lines.stop_L
    first_L = bytes_N[np.minimum(lines.start_L, len(bytes_N) - 1)] if len(bytes_N) else np.empty(0, np.uint8)
    comments_L: Flags = inside_L & (first_L == ord("#"))
    return comments_L


def _first_row(lines: Lines) -> int | None:
    """The first line that is neither blank nor a comment."""
    for at in range(len(lines.start_L)):
        raw = lines.raw(at).strip()
        if raw and not raw.startswith(b"#"):
            return at
    return None


def _lines_holding(lines: Lines, name: bytes) -> list[int]:
    """Records that hold ``name``, by a search of the bytes; at most a thousand."""
    found: list[int] = []
    at = lines.data.find(name)
    while at >= 0 and len(found) < 1000:
        line = int(np.searchsorted(lines.start_L, at, side="right")) - 1
        found.append(line)
        at = lines.data.find(name, int(lines.stop_L[line]))
    return found
