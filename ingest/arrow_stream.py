"""Arrow in and out: a stream from outside is validated before a value of it is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from firstfault.wire import Defaults

from .blocks import RecordBatch
from .decode import DecodeConfig


def batch_from_arrow(
    data: bytes, config: DecodeConfig, defaults: Defaults, source: str = "", offset: int = -1
) -> RecordBatch:
    """The records of one Arrow IPC stream; what is not understood is in ``rejected``. Never raises."""
    raise NotImplementedError


def arrow_from_batch(batch: RecordBatch) -> bytes:
    """The batch as an Arrow IPC stream of our columns.

    Raises:
        ValueError: the batch holds events, which travel as JSON lines only.
    """
    raise NotImplementedError


def iter_arrow_file(path: Path, config: DecodeConfig, defaults: Defaults) -> Iterator[RecordBatch]:
    """The record batches of an Arrow file (stream or file format; .arrow, .feather).

    Raises:
        UnreadableInput: it is not Arrow, is damaged, or asks for more memory than allowed.
    """
    raise NotImplementedError
