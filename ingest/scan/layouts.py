r"""Lines that mean something only together with others: boxes, tables with a header, columns of bare numbers.

What kind a line is of is told by its shape; `tables` puts such lines together.

    | loss      | 13.8 |         epoch  train_loss  time        0 2.28440 0.001
    | step      | 10   |         0      0.912       00:41       10 2.34198 0.001
"""

from __future__ import annotations

import re
from enum import Enum

from ingest.role_names import Role
from ingest.role_words import Loss, meaning_of

MAX_CELLS = 512
_FEW_CELLS = 3
MAX_CELL_CHARS = 48
"""Of a name in a header; what is longer is text."""
_EDGES = " \t|"
_RULE = re.compile(r"[\s|+\-=_*#~:>]+")
_CELLS_OF_ROW = re.compile(
    r"\x00(?:[KMGsmhx%]\b| (?:sec|min|(?:obs|it|rows|samples)/sec)\b)?|\b(?:nan|inf|None|n/a)\b|#na#",
    re.IGNORECASE,
)
_SPLIT_CELL = re.compile(
    r"(?<=\|)\s*(?:train|training|val|valid|validation|test|eval|dev|cv)\s*(?=\|)", re.IGNORECASE
)
"""A cell that says which part of the loop a row is of."""
_BETWEEN_CELLS = frozenset(" \t|/%:,()[]-+")
_NUMBER_AND_BAR = "\0%|"
_PROMISING = re.compile(r"epoch|iter|step|batch|loss|#|rmse|err|update|cost", re.IGNORECASE)
_COLUMNS = re.compile(r"\s*\|\s*|\s{2,}|\t+")
_BAR = re.compile(r":?\s*\d{1,3}%\|.*")
_PLAIN_ROW = re.compile(
    r"\s*(?:(?P<step>\d+)(?::\s+|[\s,;]+))?(?:[+-]?(?:\d[\d.eE+-]*|\.\d[\deE+-]*|nan|inf)(?:[\s,;]+|$))+",
    re.IGNORECASE,
)
"""Numbers and what separates them, nothing else; the first may be a counter with a colon."""
_WORDS = re.compile(r"[\s|]+")
_TEXT_MARKS = "=:;,'\"{}"


class Layout(Enum):
    """What a line is in a layout of several lines."""

    NONE = "none"
    CELL = "cell"
    """A name and its value in a box."""
    RULE = "rule"
    """A line that is drawn: between rows, above and below a box."""
    HEADER = "header"
    """The names of columns."""
    ROW = "row"
    """Numbers of columns, without names."""


def layout_of(shape: str) -> Layout:
    r"""The layout of a line by its shape.

    >>> layout_of("| loss | \0 |"), layout_of("epoch  train_loss  time"), layout_of("\0 \0 nan \0:\0")
    (<Layout.CELL: 'cell'>, <Layout.HEADER: 'header'>, <Layout.ROW: 'row'>)
    """
    if _RULE.fullmatch(shape):
        return Layout.RULE
    table, has_bar = _without_bar(shape)
    if _box_cells(shape) is not None and not has_bar:
        return Layout.CELL
    if "\0" in table or _CELLS_OF_ROW.search(table):
        if _BETWEEN_CELLS.issuperset(_CELLS_OF_ROW.sub("", _SPLIT_CELL.sub("", table))):
            return Layout.ROW
    elif _is_header(table):
        return Layout.HEADER
    if has_bar and len(_cells(table, _COLUMNS)) > _FEW_CELLS:
        return Layout.RULE  # names of columns in front of a bar, as YOLO heads its validation
    return Layout.NONE


def cell_of(line: str) -> tuple[str, str]:
    """Name and value of a line of a box; the blanks in front of the name tell of what it is a part."""
    cells = _box_cells(_with_pipes(line))
    return ("", "") if cells is None else (cells[0].rstrip(), cells[1].strip())


def _box_cells(text: str) -> tuple[str, str] | None:
    """The two cells of ``| name | value |``; the first without the blank behind the border."""
    text = text.strip()
    if not text.startswith("|") or not 2 <= text.count("|") <= 3:
        return None
    cells = text[1:].removesuffix("|").split("|")
    if len(cells) != 2 or not any(letter.isalpha() for letter in cells[0]):
        return None
    value = cells[1].strip()
    if "\0" in value and not _BETWEEN_CELLS.issuperset(_CELLS_OF_ROW.sub("", value)):
        return None
    if value and "\0" not in value and not _is_number(value):
        return None
    return cells[0].removeprefix(" "), value


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", ""))
    except ValueError:
        return False
    return True


def _without_bar(text: str) -> tuple[str, bool]:
    """A row or header without the progress bar behind it."""
    at = text.find(_NUMBER_AND_BAR)
    return (text, False) if at < 0 else (text[:at].rstrip(" :"), True)


def headers_of(line: str) -> list[list[str]]:
    """The names of columns in a header: cut where two blanks or a bar stand, and cut at each blank."""
    text = _without_bar(_with_pipes(line).replace("%|", "\0%|"))[0] if "%|" in _with_pipes(line) else line
    text = text.strip().removeprefix("# ")
    cut = [_cells(text, separator) for separator in (_COLUMNS, _WORDS)]
    return [[_clean(cell) for cell in cells] for cells in cut if len(cells) > 1]


def row_of(line: str, names: int) -> list[str] | None:
    """The cells of a row below a header of so many names; None if they do not fit."""
    plain = _BAR.sub("", _with_pipes(line))
    for separator in (_COLUMNS, _WORDS):
        cells = _cells(plain, separator)
        if len(cells) == names:
            return cells
    return None


def numbers_of_row(line: str) -> list[str] | None:
    """The cells of a row without a header, None if it is more than numbers."""
    if _PLAIN_ROW.fullmatch(line) is None:
        return None
    return re.sub(r"^(\s*\d+):", r"\1 ", line).replace(",", " ").replace(";", " ").split()


def _with_pipes(line: str) -> str:
    return line if line.isascii() else re.sub("[\u2500-\u259f]", "|", line)


def _cells(line: str, separator: re.Pattern[str]) -> list[str]:
    return [cell.strip() for cell in separator.split(_with_pipes(line).strip(_EDGES))][:MAX_CELLS]


def _clean(name: str) -> str:
    if name.strip() == "#":
        return "step"
    return re.sub(r"[^\w./@#%-]+", "_", name.strip(" #*")).strip("_") or "column"


def _is_header(text: str) -> bool:
    """Whether a line is names of columns: short ones, of which some are those of counters and losses."""
    text = text.strip().removeprefix("#")
    if not 3 <= len(text) <= 2000 or not _PROMISING.search(text) or any(mark in text for mark in _TEXT_MARKS):
        return False
    has_columns = _COLUMNS.search(text.strip(_EDGES)) is not None
    cells = _cells(text, _COLUMNS if has_columns else _WORDS)
    if len(cells) < 2 or any(not 0 < len(cell) <= MAX_CELL_CHARS or len(cell.split()) > 3 for cell in cells):
        return False
    meanings = [meaning_of(_clean(cell)) for cell in cells]
    counters = sum(meaning.role in (Role.ITERATION, Role.EPOCH, Role.BATCH) for meaning in meanings)
    losses = sum(meaning.loss is not Loss.NONE or "loss" in meaning.metric for meaning in meanings)
    known = counters + sum(meaning.role is Role.CONTEXT or "loss" in meaning.metric for meaning in meanings)
    return (counters > 0 or losses > 1) and (has_columns or known * 2 >= len(cells))
