"""MLflow's database (``mlflow.db``, SQLite): the metrics of all its runs, run by run.

There a NaN is kept as 0 with ``is_nan``, and an infinity as the greatest float.
"""

from __future__ import annotations

import math
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from firstfault.telemetry import MAX_RUN_BYTES
from firstfault.wire import Defaults
from firstfault.wire_values import is_run_name

from .blocks import RecordBatch
from .errors import UnreadableInput
from .log_reader import FileConfig, Understood
from .scalar_names import names_of
from .scalar_points import MAX_POINTS, Points, assemble, batches

_RUNS = "select run_uuid, name from runs where lifecycle_stage is not 'deleted' order by start_time, run_uuid"
_METRICS = (
    "select key, value, is_nan, step, timestamp from metrics where run_uuid = ? order by timestamp, step, key"
)
_WANTED = {
    "runs": {"run_uuid", "name"},
    "metrics": {"key", "value", "is_nan", "step", "timestamp", "run_uuid"},
}


_CHECKED_BYTES = 1 << 28
"""256 MiB of database are gone through in a second."""
_Row = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class _Run:
    id: str
    name: str


def read(path: Path, defaults: Defaults, config: FileConfig) -> Iterator[tuple[RecordBatch, Understood]]:
    """The metrics of all runs of the database ``path``; the run of each record is its run there.

    Raises:
        UnreadableInput: it is no database of MLflow, or holds no value.
    """
    try:
        with closing(_open(path)) as database:
            _check(database, path)
            damage = _damage(database, path)
            runs = _runs(database)
            found = 0
            for run in runs:
                for batch, understood in _read_run(database, run, path, defaults, config):
                    found += 1
                    yield batch, replace(understood, doubt=understood.doubt or damage)
    except sqlite3.Error as error:
        raise UnreadableInput(f"{path}: a damaged SQLite database: {error}") from error
    if not found:
        raise UnreadableInput(f"{path}: must hold metrics, but none of its {len(runs)} runs has one")


def _open(path: Path) -> sqlite3.Connection:
    # read-only and immutable: a copy out of a folder that cannot be written, of a server that runs
    from urllib.parse import quote

    database = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
    # without it SQLite reads nothing of a file that is shorter than it says; nothing can be written here
    database.execute("pragma writable_schema = on")
    database.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return database


def _check(database: sqlite3.Connection, path: Path) -> None:
    tables = {name for (name,) in database.execute("select name from sqlite_master where type = 'table'")}
    for table, wanted in _WANTED.items():
        if table not in tables:  # a view of that name could go on for ever
            raise UnreadableInput(f"{path}: must be a database of MLflow, but it has no table {table!r}")
        has = {row[1] for row in database.execute(f"pragma table_info({table})")}
        if not wanted <= has:
            missing = ", ".join(sorted(wanted - has))
            raise UnreadableInput(
                f"{path}: must be a database of MLflow, but its table {table!r} lacks {missing}"
            )


def _runs(database: sqlite3.Connection) -> list[_Run]:
    """The runs that are not deleted, each with a name of its own."""
    has_stage = any(row[1] == "lifecycle_stage" for row in database.execute("pragma table_info(runs)"))
    query = _RUNS if has_stage else "select run_uuid, name from runs order by run_uuid"
    rows = [(str(run), str(name or "")) for run, name in database.execute(query)]
    counts = Counter(name for _, name in rows)
    runs = []
    for run, name in rows:
        is_own = name and counts[name] == 1 and is_run_name(name)
        runs.append(_Run(run, name if is_own else f"{name}-{run}"[-MAX_RUN_BYTES:].lstrip("-")))
    return [run for run in runs if is_run_name(run.name)]


def _read_run(
    database: sqlite3.Connection, run: _Run, path: Path, defaults: Defaults, config: FileConfig
) -> Iterator[tuple[RecordBatch, Understood]]:
    points, doubt = Points(), ""
    try:
        _take(points, database.execute(_METRICS, (run.id,)))
    except sqlite3.Error as error:
        points, doubt = (
            Points(),
            f"the database is damaged ({error}): only a part of {run.name!r} could be read",
        )
        rows: list[_Row] = []
        with suppress(sqlite3.Error):
            rows.extend(_as_it_lies(database, run))
        _take(points, sorted(rows, key=lambda row: (str(row[4]).zfill(20), str(row[3]).zfill(20))))
    if not len(points):
        return
    named = names_of(points, config.columns, "step")
    assembled = assemble(points)
    understood = Understood(
        format="MLflow database",
        counter=assembled.counter,
        columns=named.columns,
        remarks=(*named.remarks, *assembled.remarks),
        doubt=doubt,
    )
    for batch in batches(points, assembled, named, replace(defaults, run=run.name), source=str(path)):
        yield batch, understood


def _take(points: Points, rows: Iterable[_Row]) -> None:
    for key, value, is_nan, step, time_ms in rows:
        number = _number(value, is_nan)
        if number is not None and isinstance(step, int) and isinstance(time_ms, int | float):
            points.add(str(key), step, time_ms / 1000, number)


def _as_it_lies(database: sqlite3.Connection, run: _Run) -> Iterator[_Row]:
    """The rows of a run in the order of the file, up to the first that cannot be read: nothing is sorted."""
    query = "select key, value, is_nan, step, timestamp, run_uuid from metrics not indexed"
    for *row, owner in islice(database.execute(query), MAX_POINTS):
        if owner == run.id:
            yield tuple(row)


def _damage(database: sqlite3.Connection, path: Path) -> str:
    """What SQLite finds wrong with its file; empty where nothing is, or the file is too large for that."""
    if path.stat().st_size > _CHECKED_BYTES:
        return ""
    found = ""
    with suppress(sqlite3.Error):
        (found,) = database.execute("pragma quick_check(1)").fetchone()
    return "" if found == "ok" else "the database is damaged, and rows may be missing"


def _number(value: object, is_nan: object) -> float | None:
    """The value as it was logged; columns of SQLite hold anything."""
    if is_nan:
        return math.nan
    if not isinstance(value, int | float):
        return None
    number = float(value)
    return math.copysign(math.inf, number) if abs(number) >= sys.float_info.max else number
