"""Lines of boxes and tables become lines of records: ``epoch: 0, train_loss: 0.912, time: 00:41``.

A left fold over such lines alone; what comes between shows in their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ingest.role_values import is_split

from .layouts import Layout, cell_of, headers_of, numbers_of_row, row_of

MAX_BOX_LINES = 2048
_HEAD_LINES = 3
"""A file of bare columns begins with one, or with a few comments."""


@dataclass(frozen=True, slots=True)
class Laid:
    """A line of a layout: its number, what it is, and its text."""

    number: int
    layout: Layout
    text: str


@dataclass(slots=True)
class _Box:
    """The cells of a box so far; ``section`` is the name above indented ones."""

    cells: dict[str, str] = field(default_factory=dict)
    section: str = ""
    last: int = -2


class TableReader:
    """Puts boxes and tables together, line by line."""

    def __init__(self) -> None:
        self._box = _Box()
        self._headers: list[list[str]] = []
        """The names of the columns now, by each way to cut them."""
        self._is_bare: bool | None = None
        """Whether the file is columns of bare numbers; None until its first lines have shown it."""
        self._width = 0
        """Columns of bare numbers; 0 until the first row."""
        self._seen = 0

    def read(
        self, lines: Iterable[Laid], size: int, first_other: int, first_loss: int
    ) -> list[tuple[int, str]]:
        """The records of a piece of ``size`` lines, each with the number of the line that completed it.

        ``first_other`` is the first line of the piece that is of no layout, ``first_loss`` the first that
        gives a loss its name: from there on numbers without one are something else.
        """
        records: list[tuple[int, str]] = []
        for line in lines:
            if line.number > first_loss:
                self._is_bare = False
            if self._is_bare is None:
                self._settle_bare(line, first_other)
            if line.layout is Layout.CELL:
                self._take_cell(line, records)
                continue
            if self._box.cells and (line.layout is Layout.RULE or line.number != self._box.last + 1):
                self._close_box(records)
            if line.layout is Layout.HEADER:
                self._headers = headers_of(line.text)
            elif line.layout is Layout.ROW:
                self._take_row(line, records)
        if self._box.cells and self._box.last != size - 1:
            self._close_box(records)
        self._box.last -= size
        if first_loss < size or (first_other < size and self._is_bare is None):
            self._is_bare = False
        return records

    def finish(self) -> list[tuple[int, str]]:
        """The box that nothing closed."""
        records: list[tuple[int, str]] = []
        self._close_box(records)
        return [(0, text) for _, text in records]

    def _settle_bare(self, line: Laid, first_other: int) -> None:
        self._seen += 1
        if first_other < line.number or line.layout is Layout.HEADER or self._seen > _HEAD_LINES:
            self._is_bare = False
        elif line.layout is Layout.ROW:
            cells = numbers_of_row(line.text)
            self._is_bare, self._width = cells is not None, len(cells or ())

    def _take_cell(self, line: Laid, records: list[tuple[int, str]]) -> None:
        key, value = cell_of(line.text)
        name, is_indented = key.strip(), key.startswith(" ")
        full = f"{self._box.section}{name}" if is_indented else name
        is_full = full in self._box.cells or len(self._box.cells) >= MAX_BOX_LINES
        if self._box.cells and (line.number != self._box.last + 1 or is_full):
            self._close_box(records)
        if not value:
            self._box.section = name if name.endswith("/") else f"{name}/"
        elif full:
            self._box.cells[full] = value
        if not is_indented and value:
            self._box.section = ""
        self._box.last = line.number

    def _close_box(self, records: list[tuple[int, str]]) -> None:
        if len(self._box.cells) > 1:
            text = ", ".join(f"{_safe(key)}: {value}" for key, value in self._box.cells.items())
            records.append((self._box.last, text))
        self._box = _Box()

    def _take_row(self, line: Laid, records: list[tuple[int, str]]) -> None:
        names: list[str] = []
        cells: list[str] | None = None
        if self._headers:
            for names in self._headers:
                cells = row_of(line.text, len(names))
                if cells is not None:
                    break
        elif self._is_bare:
            cells = numbers_of_row(line.text)
            if cells is None or len(cells) != self._width:
                return
            names = _bare_names(cells)
        else:
            return
        if cells is not None:
            pairs = list(zip(names, cells, strict=True))
            part = "".join(f"[{cell}] " for cell in cells if is_split(cell))
            told = ", ".join(f"{name}: {cell}" for name, cell in pairs if cell and not is_split(cell))
            records.append((line.number, part + told))


def _bare_names(cells: list[str]) -> list[str]:
    """Columns without names: a step if the first is a whole number, then the loss."""
    names = ["step", "loss"] if len(cells) > 1 and cells[0].isdecimal() else ["loss"]
    return [*names, *(f"column_{at}" for at in range(len(names), len(cells)))]


def _safe(key: str) -> str:
    return key.replace(",", "_").replace(":", "_")
