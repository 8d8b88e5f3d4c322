"""History as Parquet: summaries with their pyramid, and the values of every rank.

Axes: N summary rows, T positions, R ranks, K cells (position × rank).

Names of metrics stand in the metadata as ASCII JSON, columns bear numbers: a name may hold anything.
In a file of values a cell not reported is null and a NaN is a value; a checksum is two 64-bit words.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingest.blocks import Flags, Floats, Ints, Ranks, Words

from .history_summary import COLUMNS, COUNTS, STATISTICS, Columns, picked, pyramid

KEY = b"firstfault"
"""The one key of the file's metadata."""
_VERSION = 1
_SUMMARY_GROUP_ROWS = 1 << 15
"""Rows read at least: 2 ms. Smaller groups lengthen the footer, which every look at a file reads."""
_VALUE_GROUP_CELLS = 1 << 17
"""Cells of a column read at least: a megabyte."""
_SMALL = ("level", "metric", "microbatch", "min_rank", "max_rank", *COUNTS)
"""Columns of few distinct values: a dictionary makes them almost nothing."""

VALUES_FORMAT: Mapping[str, object] = {
    "compression": "snappy",
    "use_dictionary": ["iteration", "microbatch", "rank"],
    "write_page_checksum": True,
    "write_statistics": ["iteration"],
}
"""Values are noise that hardly packs: zstd saves a fourteenth of the bytes for three times the time."""
_SUMMARY_FORMAT: Mapping[str, object] = {
    "compression": "zstd",
    "compression_level": 1,
    "use_dictionary": list(_SMALL),
    "use_byte_stream_split": ["time", *STATISTICS],
    "write_page_checksum": True,
    "write_statistics": ["level", "metric", "iteration", "last_iteration"],
}
"""Kept for the whole run: 37 bytes a row of eight ranks, where they would be 65 unpacked."""


@dataclass(frozen=True, slots=True)
class Slab:
    """Consecutive positions with the same ranks, every metric as T × R."""

    iteration_T: Ints
    microbatch_T: NDArray[np.int32]
    ranks_R: Ranks
    # (values, present) of numbers, (high words, low words, present) of checksums
    numbers: Mapping[str, tuple[Floats, Flags]] = field(default_factory=dict)
    checksums: Mapping[str, tuple[Words, Words, Flags]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cells:
    """One metric, cell by cell: ``words_K`` is (values,) of a number, (high, low) of a checksum."""

    iteration_K: Ints
    microbatch_K: NDArray[np.int32]
    rank_K: Ranks
    words_K: tuple[NDArray[Any], ...]
    present_K: Flags


@dataclass(frozen=True, slots=True)
class ValueNames:
    """The metrics of a file of values, each at the place of its columns."""

    numbers: Sequence[str]
    checksums: Sequence[str]

    def columns(self) -> list[str]:
        """The names of their columns."""
        words = [f"{word}{at}" for at in range(len(self.checksums)) for word in "hl"]
        return [*(f"n{at}" for at in range(len(self.numbers))), *words]

    def columns_of(self, metric: str) -> list[str]:
        """The columns of one metric; none if the file lacks it."""
        if metric in self.numbers:
            return [f"n{self.numbers.index(metric)}"]
        if metric in self.checksums:
            return [f"{word}{self.checksums.index(metric)}" for word in "hl"]
        return []


def write_summary(
    path: Path, rows: Columns, metric_N: Ints, names: Sequence[str], *, fine: bool = True
) -> None:
    """Write ``rows`` (ascending by metric, then iteration) and the levels above, the finest if ``fine``."""
    import pyarrow.parquet as pq

    levels = [one for one in pyramid(rows, metric_N) if fine or one[0]]
    kept = [level for level, _, _ in levels]
    schema = _summary_schema(_metadata({"metrics": list(names), "levels": kept}))
    with pq.ParquetWriter(path, schema, **_SUMMARY_FORMAT) as writer:
        for level, columns, metric_B in levels:
            writer.write_table(_summary_table(schema, level, columns, metric_B), _SUMMARY_GROUP_ROWS)


def write_values(path: Path, slabs: Iterable[Slab], names: ValueNames) -> None:
    """Write the cells of the slabs, ascending by position, then rank."""
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, values_schema(names), **VALUES_FORMAT) as writer:
        for slab in slabs:
            writer.write_table(_values_table(slab, names), _VALUE_GROUP_CELLS)


def values_schema(names: ValueNames) -> Any:
    """The schema of a file of values, names in its metadata."""
    import pyarrow as pa

    kinds = {"n": pa.float64(), "h": pa.uint64(), "l": pa.uint64()}
    place = [("iteration", pa.int64()), ("microbatch", pa.int32()), ("rank", pa.int32())]
    columns = [(name, kinds[name[0]]) for name in names.columns()]
    metadata = _metadata({"numbers": list(names.numbers), "checksums": list(names.checksums)})
    return pa.schema([*place, *columns], metadata=metadata)


def metadata_of(file: Any) -> dict[str, Any]:
    """What we wrote into the metadata of an open `ParquetFile`; empty if it is none of ours."""
    raw = (file.schema_arrow.metadata or {}).get(KEY)
    found = json.loads(raw) if raw else {}
    return found if isinstance(found, dict) and found.get("version") == _VERSION else {}


def value_names(file: Any) -> ValueNames:
    """The metrics of an open file of values."""
    found = metadata_of(file)
    return ValueNames(found.get("numbers", []), found.get("checksums", []))


def read_level(file: Any, level: int, metric: str, first: int, last: int) -> tuple[int, Columns] | None:
    """The rows of a metric that touch the iterations ``first`` to ``last``, and the level they are of:

    the coarsest no coarser than ``level``, else the file's finest. None if it lacks the metric.
    """
    found = metadata_of(file)
    if metric not in found.get("metrics", []):
        return None
    finer = [one for one in found["levels"] if one <= level]
    wanted = max(finer) if finer else min(found["levels"], default=0)
    id_ = found["metrics"].index(metric)
    limits = {
        "level": (wanted, wanted),
        "metric": (id_, id_),
        "iteration": (None, last),
        "last_iteration": (first, None),
    }
    groups = _groups_within(file, limits)
    # one thread: a few thousand rows cost less than handing them out
    table = file.read_row_groups(groups, columns=["level", "metric", *COLUMNS], use_threads=False)
    is_ours = (_array(table, "level") == wanted) & (_array(table, "metric") == id_)
    rows = {name: _array(table, name) for name in COLUMNS}
    is_ours &= (rows["last_iteration"] >= first) & (rows["iteration"] <= last)
    return wanted, picked(rows, is_ours)


def read_fine(file: Any) -> tuple[Columns, Ints, list[str]]:
    """The finest rows of a file of summaries, the metric of each, and the names of the metrics."""
    found = metadata_of(file)
    finest = min(found.get("levels", []), default=0)
    table = file.read_row_groups(_groups_within(file, {"level": (finest, finest)}))
    is_fine = _array(table, "level") == finest
    rows = picked({name: _array(table, name) for name in COLUMNS}, is_fine)
    metric_N, names = _array(table, "metric")[is_fine].astype(np.int64), found.get("metrics", [])
    if len(metric_N) and not 0 <= int(metric_N.min()) <= int(metric_N.max()) < len(names):
        raise ValueError(f"metrics must be below {len(names)}, got {int(metric_N.max())}")
    return rows, metric_N, names


def read_cells(file: Any, metric: str, first: int, last: int) -> Cells | None:
    """The cells of a metric in the iterations ``first`` to ``last``; None if the file lacks it."""
    columns = value_names(file).columns_of(metric)
    if not columns:
        return None
    groups = _groups_within(file, {"iteration": (first, last)})
    table = file.read_row_groups(groups, columns=["iteration", "microbatch", "rank", *columns])
    iteration_K = _array(table, "iteration")
    inside_K = (iteration_K >= first) & (iteration_K <= last)
    present_K = table.column(columns[0]).is_valid().to_numpy(zero_copy_only=False)
    words = [_array(table, name) for name in columns]
    return Cells(
        iteration_K[inside_K],
        _array(table, "microbatch")[inside_K],
        _array(table, "rank")[inside_K],
        tuple(word_K[inside_K] for word_K in words),
        present_K[inside_K],
    )


def value_tables(file: Any, first: int, last: int) -> list[Any]:
    """The cells in the iterations ``first`` to ``last``, as an Arrow table for each row group."""
    found = []
    for group in _groups_within(file, {"iteration": (first, last)}):
        table = file.read_row_group(group)
        iteration_K = _array(table, "iteration")
        inside_K = (iteration_K >= first) & (iteration_K <= last)
        found.append(table if inside_K.all() else table.filter(inside_K))
    return found


def aligned(table: Any, own: ValueNames, wanted: ValueNames) -> Any:
    """A table of values with the columns of other names: what it lacks is null."""
    import pyarrow as pa

    schema = values_schema(wanted)
    source = {
        to: name
        for metric in (*wanted.numbers, *wanted.checksums)
        for to, name in zip(wanted.columns_of(metric), own.columns_of(metric), strict=False)
    }
    columns = [
        table.column(source.get(one.name, one.name))
        if one.name in source or one.name in ("iteration", "microbatch", "rank")
        else pa.nulls(len(table), one.type)
        for one in schema
    ]
    return pa.table(columns, schema=schema)


def _summary_schema(metadata: Mapping[bytes, bytes]) -> Any:
    import pyarrow as pa

    kinds = {np.int64: pa.int64(), np.int32: pa.int32(), np.float64: pa.float64()}
    columns = [(name, kinds[dtype]) for name, dtype in COLUMNS.items()]
    return pa.schema([("level", pa.int32()), ("metric", pa.int32()), *columns], metadata=metadata)


def _summary_table(schema: Any, level: int, rows: Columns, metric_N: Ints) -> Any:
    import pyarrow as pa

    arrays = [np.full(len(metric_N), level, np.int32), metric_N.astype(np.int32)]
    arrays += [np.asarray(rows[name], dtype) for name, dtype in COLUMNS.items()]
    return pa.table([pa.array(one) for one in arrays], schema=schema)


def _values_table(slab: Slab, names: ValueNames) -> Any:
    import pyarrow as pa

    positions, ranks = len(slab.iteration_T), len(slab.ranks_R)
    columns = [
        pa.array(np.repeat(slab.iteration_T, ranks)),
        pa.array(np.repeat(slab.microbatch_T, ranks)),
        pa.array(np.tile(slab.ranks_R, positions)),
    ]
    for kind, reported in ((names.numbers, slab.numbers), (names.checksums, slab.checksums)):
        is_number = kind is names.numbers
        for name in kind:
            if name in reported:
                *words, present_TR = reported[name]
                absent_K = ~present_TR.ravel()
                columns += [pa.array(word.ravel(), mask=absent_K) for word in words]
            elif is_number:
                columns.append(pa.nulls(positions * ranks, pa.float64()))
            else:
                columns += [pa.nulls(positions * ranks, pa.uint64())] * 2
    return pa.table(columns, schema=values_schema(names))


def _groups_within(file: Any, limits: Mapping[str, tuple[int | None, int | None]]) -> list[int]:
    """The row groups whose statistics do not rule them out."""
    places = {name: at for at, name in enumerate(file.schema_arrow.names)}
    return [
        group
        for group in range(file.metadata.num_row_groups)
        if all(
            _may_hold(file.metadata.row_group(group).column(places[name]).statistics, least, most)
            for name, (least, most) in limits.items()
        )
    ]


def _may_hold(statistics: Any, least: int | None, most: int | None) -> bool:
    if statistics is None or not statistics.has_min_max:
        return True
    return (least is None or statistics.max >= least) and (most is None or statistics.min <= most)


def _array(table: Any, name: str) -> NDArray[Any]:
    """A column as an array: a null is 0 in integers and NaN in numbers, and told apart by its validity."""
    column = table.column(name)
    if not column.null_count:
        return np.asarray(column.to_numpy())
    filler = float("nan") if str(column.type) == "double" else 0
    return np.asarray(column.fill_null(filler).to_numpy())


def _metadata(found: Mapping[str, object]) -> dict[bytes, bytes]:
    return {KEY: json.dumps({"version": _VERSION, **found}, ensure_ascii=True).encode()}
