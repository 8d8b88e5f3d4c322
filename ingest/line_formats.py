"""The formats of lines that have a structure of their own: tables, and JSON lines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from firstfault.wire import Defaults

from .blocks import RecordBatch
from .errors import UnreadableInput
from .export_columns import export_columns
from .log_reader import FileConfig, LineDecoder, Understood
from .long_tables import LongTableDecoder, long_columns
from .sniff import Dialect, Format, find_dialect

if TYPE_CHECKING:
    from .tables import PreparedRows


class TableDecoder:
    """A text table as a `LineDecoder`."""

    def __init__(
        self, dialect: Dialect, head: bytes, defaults: Defaults, source: str, config: FileConfig
    ) -> None:
        from .tables import TableConfig, TableReader  # JSON and text do not need it

        self._table = TableReader(dialect, head, defaults, source, wanted=config.columns)
        large = TableConfig(small_piece_bytes=0)  # only large files are sampled
        self._sampler = partial(TableReader, dialect, head, defaults, source, large, wanted=config.columns)
        self.says_attempt = False

    @property
    def is_wire(self) -> bool:
        """Whether its rows carry run and rank, as our own do."""
        return {"run", "rank"} <= self._table.header.identity.keys()

    def decode(self, data: bytes) -> RecordBatch:
        """The records of the next whole rows."""
        return self.prepare(data)()()

    def prepare(self, data: bytes) -> Callable[[], Callable[[], RecordBatch]]:
        """What reads these rows, and gives what gives their records, once those before were given."""
        rows = self._table.prepare(data)
        return lambda: partial(self._take, self._table.read(rows))

    def _take(self, rows: PreparedRows) -> RecordBatch:
        batch = self._table.take(rows)
        self.says_attempt = self.says_attempt or "attempt" in self._table.header.identity
        return batch

    def finish(self) -> RecordBatch | None:
        """Nothing: a row is whole."""
        return None

    def understood(self) -> Understood:
        """What was understood so far."""
        header = self._table.header
        return Understood(
            format=Format.TABLE.value,
            counter=header.counter,
            columns=header.columns,
            padding=self._table.padding,
            remarks=header.remarks,
        )

    def anew(self) -> Callable[[bytes], RecordBatch] | None:
        """What decodes rows out of the middle of the file; None if rows are counted."""
        return None if self._table.header.iteration is None else self._sampler().decode


def prepared(lines: LineDecoder, piece: bytes) -> Callable[[], Callable[[], RecordBatch]]:
    """What does all that the next whole lines need and those before them do not, and gives what decodes them.

    Pieces are prepared in their order, by whatever thread; what that gives may be called in any order and at
    once, and what this gives in the order of the pieces.
    """
    if isinstance(lines, TableDecoder):
        return lines.prepare(piece)
    return lambda: partial(lines.decode, piece)


def line_decoder(
    form: Format, head: bytes, defaults: Defaults, source: str, config: FileConfig
) -> LineDecoder:
    """What decodes the lines of a text file that begins with ``head``.

    Raises:
        UnreadableInput: ``form`` has no lines, or the head is not of that form.
    """
    if form is Format.TABLE:
        return _table_decoder(head, defaults, source, config)
    if form is Format.JSON_LINES:
        return _of_json(head, defaults, source, config)
    if form is Format.TEXT:
        return _scanner(defaults, source, config)
    raise UnreadableInput(f"{source}: must be text, but it is {form.value}")


def _scanner(defaults: Defaults, source: str, config: FileConfig) -> LineDecoder:
    from .scan.scanner import TextScanner  # only text logs pay for it

    return TextScanner(defaults, source, config.columns, wants_times=config.wants_times)


def _of_json(head: bytes, defaults: Defaults, source: str, config: FileConfig) -> LineDecoder:
    from .json_keys import read_keys
    from .json_lines import ForeignLinesDecoder, JsonLinesDecoder
    from .wrapped_text import WrappedTextDecoder, wrapping_of

    if (wrapping := wrapping_of(head)) is not None:
        return WrappedTextDecoder(wrapping, _scanner(defaults, source, config))
    keys = read_keys(head, config.columns)
    if keys.is_plain:
        return JsonLinesDecoder(keys, defaults, source, config)
    return ForeignLinesDecoder(keys.sample, defaults, source, config)


def _table_decoder(head: bytes, defaults: Defaults, source: str, config: FileConfig) -> LineDecoder:
    """A table with a row for each step, for each value, or for each line of a log."""
    dialect = find_dialect(head, source)
    if (export := export_columns(dialect, head)) is not None:
        from .wrapped_tables import WrappedTableDecoder

        return WrappedTableDecoder(dialect, export, _scanner(defaults, source, config))
    columns = long_columns(dialect, head)
    if columns is not None:
        return LongTableDecoder(dialect, columns, defaults, source, config)
    return TableDecoder(dialect, head, defaults, source, config)
