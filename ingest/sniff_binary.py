"""Formats of trackers, told by their first bytes."""

from __future__ import annotations

import re

TENSORBOARD_MARK = b"brain.Event:"
"""Is in the first record of every TensorBoard event file."""
SQLITE_MARK = b"SQLite format 3\0"
WANDB_MARK = b":W&B"
_FIRST_RECORD_BYTES = 64
_MLFLOW_LINE = re.compile(rb"\d{12,14} [-+.\w]+( \d{1,19})?\s*")
_LINES = 3


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
