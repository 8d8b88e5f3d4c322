"""The lines of a log in one column of a table: what consoles of log stores save as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from .blocks import RecordBatch
from .export_columns import ExportColumns
from .log_exports import Unwrapped
from .log_reader import LineDecoder, Understood
from .table_dialect import Dialect
from .table_lines import cut_lines, rows_of


class WrappedTableDecoder:
    """The text within a table, read by the reader of text logs: a `LineDecoder`."""

    is_wire = False
    says_attempt = False

    def __init__(self, dialect: Dialect, columns: ExportColumns, inner: LineDecoder) -> None:
        self._dialect, self._columns = dialect, columns
        self._unwrapped = Unwrapped(inner, is_newest_first=columns.is_newest_first)

    def decode(self, data: bytes) -> RecordBatch:
        """The records of the next whole rows."""
        texts = (row[self._columns.text] for row in self._rows(data))
        return self._unwrapped.take(text if text.endswith("\n") else f"{text}\n" for text in texts)

    def finish(self) -> RecordBatch | None:
        """The records of what was held back."""
        return self._unwrapped.finish()

    def understood(self) -> Understood:
        """What was understood so far."""
        understood = self._unwrapped.inner.understood()
        name = self._dialect.names[self._columns.text]
        return replace(understood, format=f"{understood.format}, in a table under {name!r}")

    def anew(self) -> Callable[[bytes], RecordBatch] | None:
        """None: lines depend on those before them."""
        return None

    def _rows(self, data: bytes) -> Iterator[list[str]]:
        """The rows that have as many cells as the header, which may come again."""
        names = self._dialect.names
        lines = cut_lines(data.replace(b"\r\n", b"\n"), self._dialect.delimiter)
        for row in rows_of([lines.raw(at) for at in range(len(lines.start_L))], self._dialect.delimiter):
            if len(row) == len(names) and tuple(cell.strip() for cell in row) != tuple(names):
                yield row
