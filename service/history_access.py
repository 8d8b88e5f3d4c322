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


class VanishedError(Exception):
    """A file that was listed is not there any more."""


def read_again(read: Callable[[], _Read]) -> _Read:
    """``read``, once more while files vanish under it."""
    for _ in range(_LOOKS - 1):
        try:
            return read()
        except VanishedError:
            continue
    return read()


def read_file(path: Path, use: Callable[[Any], _Read]) -> _Read | None:
    """What ``use`` makes of an open Parquet file; None if it cannot be read.

    Raises:
        VanishedError: it is gone.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            return use(file)
    except FileNotFoundError as error:
        raise VanishedError(path.name) from error
    except (OSError, pa.ArrowException) as error:
        log.warning("a file of history cannot be read", extra={"file": path.name, "reason": str(error)})
        return None
