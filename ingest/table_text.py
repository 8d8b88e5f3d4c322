"""The cells of a text table as columns of text: by polars, or by plain Python where little is to read.

Axes: N rows.

Loading polars takes longer than reading a small table; both ways give the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from .blocks import Flags, Floats
from .table_lines import rows_of

if TYPE_CHECKING:
    import polars as pl

SMALL_PIECE_BYTES = 128 * 1024
"""Up to it Python is faster than loading polars: some 15 000 cells at about a microsecond."""
_BLANKS = " \t\r\v\f"


class TextColumn(Protocol):
    """One column of N cells; an empty cell is absent."""

    def __len__(self) -> int:
        """Number of rows."""
        ...

    def text(self, row: int) -> str:
        """What stands in a cell, without blanks around it; empty if nothing does."""
        ...

    def is_filled(self) -> Flags:
        """Which cells hold something."""
        ...

    def floats(self) -> tuple[Floats, Flags]:
        """The cells as numbers, and which filled ones are none; both kinds without a number are nan."""
        ...

    def changes(self) -> list[int]:
        """Filled rows whose text is not that of the row before."""
        ...

    def codes(self) -> tuple[list[str], NDArray[np.int32]]:
        """The distinct texts in order of appearance, and each row's place among them."""
        ...


class PlainColumn:
    """A column as a list of text."""

    def __init__(self, cells: Sequence[str]) -> None:
        self._cells = [cell.strip(_BLANKS) for cell in cells]

    def __len__(self) -> int:
        return len(self._cells)

    def text(self, row: int) -> str:
        return self._cells[row]

    def is_filled(self) -> Flags:
        return np.array([cell != "" for cell in self._cells], np.bool_)

    def floats(self) -> tuple[Floats, Flags]:
        numbers = [_number(cell) for cell in self._cells]
        failed_N = np.array(
            [number is None and cell != "" for number, cell in zip(numbers, self._cells, strict=True)],
            np.bool_,
        )
        return np.array([np.nan if number is None else number for number in numbers], np.float64), failed_N

    def changes(self) -> list[int]:
        before = ["", *self._cells[:-1]]
        pairs = enumerate(zip(self._cells, before, strict=True))
        return [row for row, (cell, last) in pairs if cell not in ("", last)]

    def codes(self) -> tuple[list[str], NDArray[np.int32]]:
        codes = {cell: code for code, cell in enumerate(dict.fromkeys(self._cells))}
        return list(codes), np.array([codes[cell] for cell in self._cells], np.int32)


class PolarsColumn:
    """A column as polars series: its text, null where empty, and what polars makes of it as numbers."""

    def __init__(self, column: pl.Series, cast: pl.Series) -> None:
        self._column = column
        self._cast = cast

    def __len__(self) -> int:
        return len(self._column)

    def text(self, row: int) -> str:
        return str(self._column[row] or "")

    def is_filled(self) -> Flags:
        if not self._column.null_count():
            return np.ones(len(self._column), np.bool_)
        return np.array(self._column.is_not_null().to_numpy())

    def floats(self) -> tuple[Floats, Flags]:
        values_N = np.array(self._cast.to_numpy(), dtype=np.float64)  # null becomes nan
        if self._cast.null_count() == self._column.null_count():
            return values_N, np.zeros(len(values_N), np.bool_)
        failed_N: Flags = self.is_filled() & self._cast.is_null().to_numpy()
        return values_N, failed_N

    def changes(self) -> list[int]:
        changed = self._column.is_not_null() & self._column.ne_missing(self._column.shift(1))
        return [int(row) for row in changed.arg_true().to_list()]

    def codes(self) -> tuple[list[str], NDArray[np.int32]]:
        column = self._column.fill_null("")
        names = [str(name) for name in column.unique(maintain_order=True).to_list()]
        if not names:
            return names, np.empty(0, np.int32)
        codes = {name: code for code, name in enumerate(names)}
        return names, np.array(column.replace_strict(codes).to_numpy(), np.int32)


def plain_columns(lines: Sequence[bytes], delimiter: str, width: int) -> list[TextColumn]:
    """The cells of ``lines`` by the csv module."""
    rows = rows_of(lines, delimiter)
    return [PlainColumn([row[at] if at < len(row) else "" for row in rows]) for at in range(width)]


def polars_columns(text: bytes, delimiter: str, width: int, height: int) -> list[TextColumn] | None:
    """The cells of ``text`` by polars; None where it finds other rows than the ``height`` that are there.

    It pairs stray quotes in its own way.
    """
    import polars as pl

    try:
        frame = pl.read_csv(
            text,
            has_header=False,
            schema={str(at): pl.String() for at in range(width)},
            separator=delimiter,
            infer_schema=False,
            encoding="utf8-lossy",
            truncate_ragged_lines=True,
            null_values=[""],
        )
    except pl.exceptions.PolarsError:
        return None
    if frame.height != height:
        return None
    if any(blank.encode() in text for blank in _BLANKS):
        frame = frame.with_columns(pl.all().str.strip_chars(_BLANKS).replace("", None))
    cast = frame.select(pl.all().cast(pl.Float64, strict=False))
    return [PolarsColumn(frame[str(at)], cast[str(at)]) for at in range(width)]


def _number(text: str) -> float | None:
    # float() takes more than a log writes: digits of other scripts, underscores, line ends around it
    if not text.isascii() or "_" in text or text.strip() != text:
        return None
    try:
        return float(text)
    except ValueError:
        return None
