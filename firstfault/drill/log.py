"""Write the lines of a drill: JSON lines, gzip if the name says so, the same bytes every time."""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path


def encode(line: Mapping[str, object]) -> str:
    """One record or event as one line of JSON, non-finite numbers as strings."""
    return json.dumps({key: _value(value) for key, value in line.items()}, separators=(",", ":"))


def write_log(lines: Iterable[str], out: Path) -> None:
    """Write ``lines`` to ``out`` (``.jsonl`` or ``.jsonl.gz``), whole or not at all.

    Raises:
        OSError: the folder cannot be written.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    part = out.with_name(out.name + ".part")
    with part.open("wb") as raw:
        if out.suffix == ".gz":
            # no name and no time in the header: the same log gives the same file
            with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=9) as packed:
                packed.writelines(line.encode() + b"\n" for line in lines)
        else:
            raw.writelines(line.encode() + b"\n" for line in lines)
    part.replace(out)


def _value(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
