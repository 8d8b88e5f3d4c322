"""Parquet from outside: read in a child process, since hostile bytes can abort its reader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from firstfault.wire import Defaults

from .blocks import RecordBatch
from .decode import DecodeConfig


def iter_parquet(path: Path, config: DecodeConfig, defaults: Defaults) -> Iterator[RecordBatch]:
    """The records of a Parquet file, in pieces of bounded size.

    Raises:
        UnreadableInput: it is not Parquet, is damaged, crashes the reader or exceeds its memory.
    """
    raise NotImplementedError
