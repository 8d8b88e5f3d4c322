"""How a text table separates its cells, and whether text is a table at all.

A header of names over rows of numbers, cut by commas, tabulators, semicolons, bars or blanks; or no header
at all, where every line is numbers: then a counter and a loss are told by their values.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise

from .errors import UnreadableInput
from .export_columns import export_columns
from .table_lines import cut_lines, rows_of
from .text_pieces import lines_of
from .written_numbers import number_of

_SURE = (",", "\t", ";")
_LOOKED_AT = 12
"""Lines that decide, besides the header."""
_SAMPLED = 60
"""Rows of which at least half must have as many cells as the header."""
_LEAST_BARE = 3
"""Lines of nothing but numbers that make a table without a header."""
_MOST_BARE = 16
"""Columns of a table without a header; a wider one is a matrix."""
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_KEY_AND_VALUE = re.compile(r"[A-Za-z)\]]['\"]?\s*(?:[:=]\s*|\s)[+-]?(?:\d+\.?\d*|nan)\b", re.IGNORECASE)
_BAR_RULE = re.compile(rb"(?m)^(?=[ \t\r|+:]*+[-=])[-=:+| \t\r]++$")
_BARS = re.compile("[│┃║]".encode())
_BOX = re.compile("(?m)^[ \t]*[┌├└╔╠╚┏┣┗╭╰─━═].*$".encode())
_OUTER_BARS = re.compile(rb"(?m)^[ \t]*+\|[ \t]*+|(?<![ \t])[ \t]*+\|[ \t]*+$")
_BLANKS = re.compile(rb"(?m)^[ \t]+|[ \t]+$|[ \t]+")


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a text table separates its cells; ``names`` is its header.

    ``delimiter`` separates what `plain` makes of the text. ``has_header``: the first line is the header.
    """

    delimiter: str
    names: tuple[str, ...]
    has_header: bool = True
    separator: str = ""
    """What separates cells in the text itself, where that is another thing."""
    has_decimal_commas: bool = False

    def plain(self, data: bytes) -> bytes:
        """Whole lines of the text as lines cut by ``delimiter``, with points in their numbers."""
        if self.separator == " ":
            data = _BLANKS.sub(_tabulator, data)
        elif self.separator == "|":
            data = _plain_bars(data)
        return data.replace(b",", b".") if self.has_decimal_commas else data


def is_table(head: bytes) -> bool:
    """Whether text that begins with ``head`` is a table."""
    try:
        dialect = find_dialect(head, "")
    except UnreadableInput:
        return False
    if not dialect.has_header or dialect.separator or export_columns(dialect, head) is not None:
        return True
    rows = _records(head, dialect.delimiter)[1:]
    fitting = [row for row in rows if _fits(row, len(dialect.names))]
    if 2 * len(fitting) < len(rows):
        return False
    cells = [cell for row in fitting for cell in row]
    if any(map(is_number, dialect.names)) and sum(map(_is_number_or_empty, cells)) * 5 < len(cells) * 4:
        return False  # a record of words and numbers
    if any(_KEY_AND_VALUE.search(cell) for cell in cells) and any(map(_KEY_AND_VALUE.search, dialect.names)):
        return False  # records of a log, cut at their commas
    return any(is_number(cell) or _DECIMAL_COMMA.fullmatch(cell) for cell in cells)


def find_dialect(head: bytes, name: str) -> Dialect:
    """The delimiter and header of a text table.

    The header is the first line that is neither blank nor a ``#`` comment. The delimiter is the one
    of comma, tabulator and semicolon that cuts the header into most cells, at least two; one of the two
    lines after it must have as many. Bars and blanks separate where all rows are numbers.

    Raises:
        UnreadableInput: one column, no header, or text that is no table.
    """
    lines = list(islice(_filled(head), _LOOKED_AT))
    if not lines:
        raise UnreadableInput(f"{name}: must hold records, but it holds only blank lines and comments")
    loose = _bare(lines, head) or _named(lines, "|") or _named(lines, " ")
    cuts = ((_cells(lines[0], each), each) for each in _SURE)
    names, delimiter = max(cuts, key=lambda found: len(found[0]))
    if loose is not None and (len(names) < 2 or not loose.has_header):
        return loose
    if len(names) < 2:
        raise UnreadableInput(
            f"{name}: must be JSON lines or a table with a header and at least two columns,"
            f" got the line {lines[0][:60]!r}"
        )
    if sum(is_number(cell) for cell in names) * 2 > len(names):
        raise UnreadableInput(
            f"{name}: a table must begin with a header of names, got the line {lines[0][:60]!r}"
        )
    if len(lines) < 2:
        raise UnreadableInput(f"{name}: must hold records, but the table has a header and no row")
    rows = _records(head, delimiter)[1:_LOOKED_AT]
    if not any(_fits(row, len(names)) for row in rows[:2]):
        raise UnreadableInput(
            f"{name}: rows of a table must have as many cells as its header ({len(names)}),"
            f" got {lines[1][:60]!r}"
        )
    return Dialect(delimiter, names, has_decimal_commas=delimiter != "," and _has_decimal_commas(rows))


def _records(head: bytes, delimiter: str) -> list[tuple[str, ...]]:
    """The cells of the first rows, of which a quoted cell may go over several lines."""
    lines = cut_lines(head.replace(b"\r\n", b"\n"), delimiter)
    raw = (lines.raw(at) for at in range(len(lines.start_L)))
    filled = islice((each for each in raw if each.strip() and not each.startswith(b"#")), 1 + _SAMPLED)
    return [tuple(cell.strip() for cell in row) for row in rows_of(list(filled), delimiter)]


def is_number(cell: str) -> bool:
    """Whether a cell reads as a number, the non-finite words included.

    >>> is_number("-nan"), is_number("1e-4"), is_number("loss")
    (True, True, False)
    """
    return _NUMBER.fullmatch(cell.strip()) is not None


def _named(lines: Sequence[str], separator: str) -> Dialect | None:
    """A table with a header, cut by bars or blanks, if all of its rows are numbers."""
    plain = Dialect("\t", (), separator=separator)
    rows = [_cells(line, "\t") for line in _filled(plain.plain("\n".join(lines).encode()))]
    if len(rows) < 2 or len(rows[0]) < 2 or any(not cell or is_number(cell) for cell in rows[0]):
        return None
    body = rows[1:-1] or rows[1:]  # the last may be cut
    if any(len(row) != len(rows[0]) for row in body):
        return None
    numeric = [all(_is_number_or_empty(row[at]) for row in body) for at in range(len(rows[0]))]
    if sum(numeric) < 2 or sum(numeric) * 2 < len(numeric):
        return None
    same = [len({row[at] for row in body}) == 1 for at in range(len(rows[0]))]
    if len(body) > 1 and all(
        at and same[at - 1] and not numeric[at - 1] for at, is_one in enumerate(numeric) if is_one
    ):
        return None  # each number has its name in front of it, in every line: records of a log
    return Dialect("\t", rows[0], separator=separator)


def _bare(lines: Sequence[str], head: bytes) -> Dialect | None:
    """A table of nothing but numbers."""
    if len(lines) < _LEAST_BARE:
        return None
    for separator in (*_SURE, " "):
        loose = separator == " "
        plain = Dialect("\t" if loose else separator, (), separator=" " if loose else "")
        text = plain.plain("\n".join(lines).encode()).decode("utf-8", "replace")
        rows = [_cells(line, plain.delimiter) for line in text.split("\n")]
        width = len(rows[0])
        if any(len(row) != width for row in rows[:-1]) or width > _MOST_BARE:
            continue
        if not all(is_number(cell) for row in rows[:-1] for cell in row):
            continue
        names = _comment_names(head, plain, width) or _bare_names(rows[:-1])
        if names is not None:
            return Dialect(plain.delimiter, names, has_header=False, separator=plain.separator)
    return None


def _bare_names(rows: Sequence[Sequence[str]]) -> tuple[str, ...] | None:
    """Names by what the columns hold: a counter that only rises, and the loss beside it."""
    width = len(rows[0])
    counters = [at for at in range(width) if _only_rises([row[at] for row in rows])]
    if not counters:
        return ("loss",) if width == 1 else None
    names = [f"column {at + 1}" for at in range(width)]
    names[counters[0]] = "step"
    others = [at for at in range(width) if at not in counters]
    if not others:
        return None
    names[others[0]] = "loss"
    return tuple(names)


def _only_rises(cells: Sequence[str]) -> bool:
    numbers = [number_of(cell) for cell in cells]
    if not all(number is not None and number >= 0 and number.is_integer() for number in numbers):
        return False
    return all(
        before is not None and after is not None and before < after for before, after in pairwise(numbers)
    )


def _comment_names(head: bytes, plain: Dialect, width: int) -> tuple[str, ...] | None:
    """The names in the last comment before the first row that holds as many: ``# step loss``."""
    comments: list[bytes] = []
    for line in islice(lines_of(head), 64):
        if line.startswith(b"#"):
            comments.append(line)
        elif line.strip():
            break
    for comment in reversed(comments):
        text = plain.plain(comment.lstrip(b"# \t")).decode("utf-8", "replace")
        names = _cells(text, plain.delimiter)
        if len(names) == width and not any(not name or is_number(name) for name in names):
            return names
    return None


def _has_decimal_commas(rows: Sequence[Sequence[str]]) -> bool:
    cells = [cell for row in rows for cell in row]
    commas = sum(_DECIMAL_COMMA.fullmatch(cell) is not None for cell in cells)
    return commas > 0 and not any("." in cell and is_number(cell) for cell in cells)


def _is_number_or_empty(cell: str) -> bool:
    return not cell or is_number(cell)


def _fits(cells: Sequence[str], width: int) -> bool:
    """Whether a row has a cell a column, and behind them only empty ones (a trailing delimiter)."""
    return len(cells) >= width and not any(cells[width:])


def _cells(line: str, delimiter: str) -> tuple[str, ...]:
    try:
        row: Sequence[str] = next(csv.reader([line], delimiter=delimiter), ())
    except csv.Error:  # a cell over the limit of the csv module: not a header
        return ()
    return tuple(cell.strip() for cell in row)


def _plain_bars(data: bytes) -> bytes:
    if b"\xe2" in data:  # the first byte of box drawing
        data = _BOX.sub(b"", _BARS.sub(b"|", data))
    data = _OUTER_BARS.sub(b"", _BAR_RULE.sub(b"", data))
    return data.replace(b"\t", b" ").replace(b"|", b"\t")


def _tabulator(match: re.Match[bytes]) -> bytes:
    """A tabulator for blanks between cells, nothing for those around them."""
    text, start, stop = match.string, match.start(), match.end()
    is_first = start == 0 or text[start - 1 : start] == b"\n"
    is_last = stop == len(text) or text[stop : stop + 1] in (b"\n", b"\r")
    return b"" if is_first or is_last else b"\t"


def _filled(head: bytes) -> Iterator[str]:
    return (
        line.decode("utf-8", "replace")
        for line in lines_of(head)
        if line.strip() and not line.startswith(b"#")
    )
