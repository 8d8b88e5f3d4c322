"""What a file is: told by its bytes, and by its name only where the bytes leave it open."""

from __future__ import annotations

import re
from enum import StrEnum

from .errors import UnreadableInput
from .sniff_binary import SQLITE_MARK, WANDB_MARK, is_mlflow_metric, is_tensorboard, is_text
from .sniff_json import is_document
from .table_dialect import Dialect, find_dialect, is_number, is_table
from .text_pieces import lines_of

__all__ = ["Dialect", "Format", "Packing", "find_dialect", "is_number", "packing_of", "sniff"]

HEAD_BYTES = 256 * 1024
"""Bytes that are looked at: room for a broken line or two before the first good one."""

COMPRESSED_SUFFIXES = (".gz", ".zst", ".xz", ".bz2")

_ENOUGH_LINES = 8
_LEAST_SHARE = 5
"""One line in so many must be an object in a file of JSON lines; broken lines are rejected one by one."""
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
    if b"{" in head and _has_object_lines(head):
        return Format.JSON_LINES
    if not is_text(head):
        raise UnreadableInput(
            f"{name}: must be text, or of a binary format that is read, but it is binary data in none of them"
        )
    return Format.TABLE if is_table(head) else Format.TEXT


def _has_object_lines(head: bytes) -> bool:
    """Whether objects are a fair part of the lines: a text log may print its configuration as one."""
    objects = lines = 0
    for line in lines_of(head):
        lines += bool(line.strip())
        objects += _OBJECT_KEY.match(line.lstrip()) is not None
        if objects * 2 > lines >= _ENOUGH_LINES:
            break  # most files are clear from the start
    return objects > 0 and objects * _LEAST_SHARE >= lines
