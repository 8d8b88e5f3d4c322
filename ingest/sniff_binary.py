"""Formats of trackers, told by their first bytes."""

from __future__ import annotations

import re

from .encodings import wide_encoding

TENSORBOARD_MARK = b"brain.Event:"
"""Is in the first record of every TensorBoard event file."""
SQLITE_MARK = b"SQLite format 3\0"
WANDB_MARK = b":W&B"
_FIRST_RECORD_BYTES = 64
_MLFLOW_LINE = re.compile(rb"\d{12,14} [-+.\w]+( \d{1,19})?\s*")
_LINES = 3
_PACKED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ\0", b"BZh")
_COLUMNS = (b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")
_CONTROL = re.compile(rb"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f]")
"""Bytes that no text holds: backspaces and escapes are what progress bars and colours are made of."""
_ZERO_RUN = re.compile(rb"\0{8,}")


def is_tensorboard(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a TensorBoard event file."""
    return TENSORBOARD_MARK in head[:_FIRST_RECORD_BYTES]


def is_mlflow_metric(head: bytes) -> bool:
    """Whether all first lines are a time in milliseconds, a value and a step, as MLflow keeps a metric.

    >>> is_mlflow_metric(b"1659627789123 0.25 10"), is_mlflow_metric(b"10 0.25 3")
    (True, False)
    """
    lines = head.split(b"\n", _LINES)[:_LINES]
    filled = [line for line in lines if line.strip()]
    return bool(filled) and all(_MLFLOW_LINE.fullmatch(line) for line in filled)


def is_readable_head(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is text, packed, or in a binary format that is read."""
    if head.startswith((*_PACKED, *_COLUMNS, SQLITE_MARK, WANDB_MARK)) or is_tensorboard(head):
        return True
    if wide_encoding(head) is not None:
        return True
    return is_text(head)


def is_text(head: bytes) -> bool:
    """Whether the bytes are text. A stray control byte is damage; more than one in a hundred is no text."""
    kept = _ZERO_RUN.sub(b"", head) if b"\0" in head else head
    return bool(kept) and len(_CONTROL.findall(kept)) * 100 <= len(kept)
