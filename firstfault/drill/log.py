"""Write the lines of a drill: JSON lines, gzip if the name says so, the same bytes every time."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO


def write_log(lines: Iterable[str], out: Path) -> None:
    """Write ``lines`` to ``out`` (``.jsonl`` or ``.jsonl.gz``), whole or not at all.

    Raises:
        OSError: the folder cannot be written.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    try:
        with part.open("wb") as raw:
            _write(lines, raw, is_packed=out.suffix == ".gz")
        part.replace(out)
    finally:
        part.unlink(missing_ok=True)


def _write(lines: Iterable[str], raw: BinaryIO, *, is_packed: bool) -> None:
    encoded = (line.encode() + b"\n" for line in lines)
    if not is_packed:
        raw.writelines(encoded)
        return
    # no name and no time in the header: the same log gives the same file
    with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=9) as packed:
        packed.writelines(encoded)
