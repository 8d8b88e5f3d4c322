"""MLflow: one metric's file, or the folder of one run.

A metric is a file named like it (folders in its name are folders), with lines ``time_ms value step``,
appended as they are logged. The folder of a run holds ``metrics/`` and ``meta.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from firstfault.wire import Defaults

from .blocks import RecordBatch, Rejected
from .errors import UnreadableInput
from .folders import MLFLOW_METRICS
from .log_reader import FileConfig, Understood
from .scalar_names import names_of
from .scalar_points import Points, assemble, batches

_LINE = re.compile(r"\s*(-?\d{1,20})\s+([-+.\w]{1,40})(?:\s+(-?\d{1,20}))?\s*")
_MAX_LINE_BYTES = 256
"""A line holds three numbers."""


def read(path: Path, defaults: Defaults, config: FileConfig) -> Iterator[tuple[RecordBatch, Understood]]:
    """The metrics of the run folder ``path``, or the one metric whose file it is.

    Raises:
        UnreadableInput: it cannot be opened, or holds no value.
    """
    points = Points()
    rejected: list[Rejected] = []
    root = path / MLFLOW_METRICS if path.is_dir() else path.parent
    for file in metric_files(path) if path.is_dir() else [path]:
        rejected += _read_metric(file, file.relative_to(root).as_posix(), points)
    if not len(points):
        raise UnreadableInput(f"{path}: must hold lines 'time value step', but not one is in it")
    named = names_of(points, config.columns, "step")
    assembled = assemble(points)
    understood = Understood(
        format="MLflow metrics",
        counter=assembled.counter,
        columns=named.columns,
        lines=len(points) + len(rejected),
        used_lines=len(points),
        remarks=(*named.remarks, *assembled.remarks),
    )
    for batch in batches(points, assembled, named, defaults, source=str(path), rejected=tuple(rejected)):
        yield batch, understood


def metric_files(folder: Path) -> list[Path]:
    """The files of the metrics of a run, by name."""
    return sorted(each for each in (folder / MLFLOW_METRICS).rglob("*") if each.is_file())


def _read_metric(path: Path, name: str, points: Points) -> Iterator[Rejected]:
    try:
        with path.open("rb") as stream:
            number = 0
            while line := stream.readline(_MAX_LINE_BYTES):
                number += 1
                if not line.strip(b"\0 \t\r\n"):
                    continue
                if not _take(line.decode("utf-8", "replace"), name, points):
                    rule = "must be 'time value step'"
                    yield Rejected("line", rule, repr(line[:60])[2:-1], True, str(path), number - 1, line)
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror}") from error


def _take(line: str, name: str, points: Points) -> bool:
    match = _LINE.fullmatch(line)
    if match is None:
        return False
    time_ms, value, step = match.groups()
    try:
        number = float(value)
    except ValueError:
        return False
    points.add(name, int(step or 0), int(time_ms) / 1000, number)
    return True
