"""The log of a drill: where it goes, its lines, and the same bytes every time, gzip if the name says so."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from ..telemetry import Event, Record
from ..wire import encode_event, encode_record
from .plans import DrillError

Progress = Callable[[int, int], None]
"""Told (iterations done, iterations in all) as the drill goes on; iterations repeated after a restart
count once."""


def log_path(name: str, out: Path | None) -> Path:
    """Where the log called ``name`` goes, given a file, a folder or nothing.

    Raises:
        DrillError: the file has another ending than .jsonl or .jsonl.gz.
    """
    if out is None or out.is_dir() or not out.suffix:
        return (out or Path()) / f"{name}.jsonl.gz"
    if not out.name.endswith((".jsonl", ".jsonl.gz")):
        raise DrillError(f"out must end in .jsonl or .jsonl.gz or be a folder, got {str(out)!r}")
    return out


def log_lines(
    said: Iterable[Record | Event], iterations: int, progress: Progress | None = None
) -> Iterator[str]:
    """What a job of so many iterations says, one JSON line at a time."""
    done = -1
    for one in said:
        if progress is not None and one.iteration > done:
            done = one.iteration
            progress(done + 1, iterations)
        yield encode_record(one) if isinstance(one, Record) else encode_event(one)


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
