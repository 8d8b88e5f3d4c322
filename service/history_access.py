"""Opens files of history that another process may join, prune or replace at any time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

log = logging.getLogger(__name__)

_LOOKS = 5
"""Looks at a folder whose files vanish while they are read; joining takes place every few seconds."""
_Read = TypeVar("_Read")


class _VanishedError(Exception):
    """A file that was listed is not there any more."""


class Files:
    """Opens files for one look at a folder."""

    def __init__(self, *, is_last_look: bool) -> None:
        self._is_last_look = is_last_look

    def read(self, path: Path, use: Callable[[Any], _Read]) -> _Read | None:
        """What ``use`` makes of the open Parquet file; None if it cannot be read."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                return use(file)
        except FileNotFoundError as error:
            if self._is_last_look:
                return None  # files go faster than we look: what is left is the answer
            raise _VanishedError(path.name) from error
        except (OSError, pa.ArrowException, ValueError, KeyError) as error:  # the last two: damaged names
            log.warning("a file of history cannot be read", extra={"file": path.name, "reason": str(error)})
            return None


def look(read: Callable[[Files], _Read]) -> _Read:
    """What ``read`` makes of the files, listed again while some vanish under it."""
    for _ in range(_LOOKS - 1):
        try:
            return read(Files(is_last_look=False))
        except _VanishedError:
            continue
    return read(Files(is_last_look=True))
