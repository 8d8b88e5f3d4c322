"""What a file is: told by its bytes, and by its name only where the bytes leave it open."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from .errors import UnreadableInput
from .sniff_binary import SQLITE_MARK, WANDB_MARK, is_mlflow_metric, is_tensorboard, is_text
from .sniff_json import is_document

HEAD_BYTES = 256 * 1024
"""Bytes that are looked at: room for a broken line or two before the first good one."""

READABLE_SUFFIXES = (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet", ".arrow", ".arrows", ".feather", ".ipc")
COMPRESSED_SUFFIXES = (".gz", ".zst", ".xz", ".bz2")

_DELIMITERS = (",", "\t", ";")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf|infinity)", re.IGNORECASE)
_KEY_AND_VALUE = re.compile(r"[A-Za-z)\]]['\"]?\s*(?:[:=]\s*|\s)[+-]?(?:\d+\.?\d*|nan)\b", re.IGNORECASE)
_OBJECT_KEY = re.compile(rb'\{\s*("|\})')


class Format(StrEnum):
    """The kinds of file that are read."""

    JSON_LINES = "JSON lines"
    JSON = "JSON document"
    TABLE = "table"
    TEXT = "text log"
    ARROW = "Arrow"
    PARQUET = "Parquet"
    TENSORBOARD = "TensorBoard events"
    MLFLOW = "MLflow metrics"
    MLFLOW_DATABASE = "MLflow database"
    WANDB = "W&B offline run"


class Packing(StrEnum):
    """How the bytes of a file are packed."""

    PLAIN = "plain"
    GZIP = "gzip"
    ZSTD = "zstd"
    XZ = "xz"
    BZIP2 = "bzip2"


_MAGIC = {
    b"\x1f\x8b": Packing.GZIP,
    b"\x28\xb5\x2f\xfd": Packing.ZSTD,
    b"\xfd7zXZ\0": Packing.XZ,
    b"BZh": Packing.BZIP2,
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a text table separates its cells; ``names`` is its header."""

    delimiter: str
    names: tuple[str, ...]


def packing_of(head: bytes) -> Packing:
    """How a file that begins with ``head`` is packed."""
    return next((packing for magic, packing in _MAGIC.items() if head.startswith(magic)), Packing.PLAIN)


def sniff(head: bytes, name: str) -> Format:
    """The format of a file that begins with ``head`` (unpacked, up to `HEAD_BYTES`).

    Raises:
        UnreadableInput: empty, or binary in no format that is read.
    """
    if not head.strip():
        raise UnreadableInput(f"{name}: must hold records, but it is empty")
    if head.startswith(b"PAR1"):
        return Format.PARQUET
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return Format.ARROW
    if is_tensorboard(head):
        return Format.TENSORBOARD
    if head.startswith(WANDB_MARK):
        return Format.WANDB
    if head.startswith(SQLITE_MARK):
        return Format.MLFLOW_DATABASE
    if is_mlflow_metric(head):
        return Format.MLFLOW
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UnreadableInput(f"{name}: text must be UTF-8, but it begins with the mark of UTF-16")
    if is_document(head):
        return Format.JSON
    if b"{" in head and any(_OBJECT_KEY.match(line.lstrip()) for line in _lines(head)):
        return Format.JSON_LINES
    if not is_text(head):
        raise UnreadableInput(
            f"{name}: must be text, or of a binary format that is read, but it is binary data in none of them"
        )
    return Format.TABLE if is_table(head) else Format.TEXT


def is_table(head: bytes) -> bool:
    """Whether text that begins with ``head`` is a table with a header."""
    try:
        dialect = find_dialect(head, "")
    except UnreadableInput:
        return False
    filled = (line for line in _lines(head) if line.strip() and not line.startswith(b"#"))
    rows = [_cells(line.decode("utf-8", "replace"), dialect.delimiter) for line in islice(filled, 1, 6)]
    cells = [cell for row in rows for cell in row]
    if any(_KEY_AND_VALUE.search(cell) for cell in cells) and any(map(_KEY_AND_VALUE.search, dialect.names)):
        return False  # records of a log, cut at their commas
    return any(is_number(cell) for cell in cells)


def find_dialect(head: bytes, name: str) -> Dialect:
    """The delimiter and header of a text table.

    The header is the first line that is neither blank nor a ``#`` comment. The delimiter is the one
    of comma, tabulator and semicolon that cuts the header into most cells, at least two; one of the two
    lines after it must have as many.

    Raises:
        UnreadableInput: one column, no header, or text that is no table.
    """
    filled = (line for line in _lines(head) if line.strip() and not line.startswith(b"#"))
    lines = [line.decode("utf-8", "replace") for line in islice(filled, 3)]
    if not lines:
        raise UnreadableInput(f"{name}: must hold records, but it holds only blank lines and comments")
    names, delimiter = max(
        ((_cells(lines[0], each), each) for each in _DELIMITERS), key=lambda found: len(found[0])
    )
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
    if not any(_fits(_cells(line, delimiter), len(names)) for line in lines[1:]):
        raise UnreadableInput(
            f"{name}: rows of a table must have as many cells as its header ({len(names)}),"
            f" got {lines[1][:60]!r}"
        )
    return Dialect(delimiter, names)


def is_number(cell: str) -> bool:
    """Whether a cell reads as a number, the non-finite words included.

    >>> is_number("-nan"), is_number("1e-4"), is_number("loss")
    (True, True, False)
    """
    return _NUMBER.fullmatch(cell.strip()) is not None


def _fits(cells: Sequence[str], width: int) -> bool:
    """Whether a row has a cell a column, and behind them only empty ones (a trailing delimiter)."""
    return len(cells) >= width and not any(cells[width:])


def _cells(line: str, delimiter: str) -> tuple[str, ...]:
    import csv

    try:
        row: Sequence[str] = next(csv.reader([line], delimiter=delimiter), ())
    except csv.Error:  # a cell over the limit of the csv module: not a header
        return ()
    return tuple(cell.strip() for cell in row)


def _lines(head: bytes) -> Iterator[bytes]:
    """The lines of ``head`` one by one: most questions are answered by the first."""
    head = head.removeprefix(b"\xef\xbb\xbf")
    end = b"\n" if b"\n" in head else b"\r"
    start = 0
    while start <= len(head):
        stop = head.find(end, start)
        stop = len(head) if stop < 0 else stop
        yield head[start:stop].rstrip(b"\r")
        start = stop + 1
