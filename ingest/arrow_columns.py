"""Arrow columns become a record batch, by the same rules as a JSON line: a row is a line.

Axes: N rows. Bad identities reject their rows alone, bad values themselves alone; a column that can
hold no value at all (nested, missing) is one `Rejected` for the whole of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from firstfault.telemetry import (
    KEY_ALIASES,
    MAX_ATTEMPT,
    MAX_ITERATION,
    MAX_MICROBATCH,
    MAX_RANK,
    RESERVED_KEYS,
    WHOLE_ITERATION,
    WIRE_VERSION,
    is_checksum,
)
from firstfault.wire import ITERATION_KEYS, RULE_VERSION, Defaults, Rejection
from firstfault.wire_values import (
    NONFINITE_TEXT,
    RULE_CHECKSUM,
    RULE_LABEL,
    RULE_NAME,
    RULE_RUN,
    RULE_TIME,
    RULE_VALUE,
    describe,
    integer_rule,
    is_label_text,
    is_metric_name,
    is_run_name,
)

from . import arrow_values
from .arrow_values import Texts
from .blocks import ChecksumColumn, Flags, Floats, Ints, NumberColumn, RecordBatch, Rejected
from .columns import select_rows
from .json_reference import Places, rejected
from .labels import Labels, ends_of_stretches

RULE_NO_EVENT = "must be null in columns: events travel as JSON lines"


def batch_from_columns(table: pa.RecordBatch, defaults: Defaults, places: Places) -> RecordBatch:
    """The rows of ``table`` as records; ``places`` says where a row came from."""
    return _Conversion(table, defaults, places).batch()


class _Conversion:
    """Converts one table: identities first, then each metric of the rows that stay."""

    def __init__(self, table: pa.RecordBatch, defaults: Defaults, places: Places) -> None:
        self._size: int = table.num_rows
        self._columns = _by_name(table)
        self._defaults = defaults
        self._places = places
        self._good_N = np.ones(self._size, np.bool_)
        self._row_faults: dict[int, Rejection] = {}
        self._faults: list[tuple[int, Rejection]] = []
        self._numbers: dict[str, NumberColumn] = {}
        self._checksums: dict[str, ChecksumColumn] = {}
        self._texts: dict[str, Ints] = {}
        self._spelled: dict[str, tuple[str, ...]] = {}

    def batch(self) -> RecordBatch:
        self._check_version()
        run = self._run()
        rank_N = self._identity(("rank",), MAX_RANK, self._defaults.rank)
        iteration_N = self._identity(ITERATION_KEYS, MAX_ITERATION, None)
        attempt_N = self._identity(("attempt",), MAX_ATTEMPT, 0)
        microbatch_N = self._identity(("microbatch",), MAX_MICROBATCH, WHOLE_ITERATION)
        self._refuse_events()
        time_N = self._time()
        for name, arrays in self._metric_arrays().items():
            self._metric(name, arrays)
        batch = RecordBatch(
            runs=run.spelled,
            run_N=run.code_N.astype(np.int32),
            attempt_N=attempt_N.astype(np.int32),
            rank_N=rank_N.astype(np.int32),
            iteration_N=iteration_N,
            microbatch_N=microbatch_N.astype(np.int32),
            time_N=time_N,
            numbers=self._numbers,
            checksums=self._checksums,
            rejected=self._rejected(),
        )
        return _tidy(select_rows(batch, self._good_N), self._texts, self._spelled, self._good_N)

    def _rejected(self) -> tuple[Rejected, ...]:
        found = [*sorted(self._row_faults.items(), key=lambda fault: fault[0]), *self._faults]
        return tuple(rejected(why, *self._places.of(at), b"") for at, why in found)

    def _mark(self, field: str, rule: str, bad_N: Flags, array: pa.Array | None) -> None:
        """Reject the rows ``bad_N``; all of them at once if the column cannot hold a good value."""
        bad_N = bad_N & self._good_N
        rows = np.flatnonzero(bad_N).tolist()
        if array is None and rows:
            self._faults.append((rows[0], Rejection(field, rule, f"no such column in {len(rows)} rows")))
        for at, shown in _shown(array, rows) if array is not None else ():
            self._row_faults[at] = Rejection(field, rule, shown)
        self._good_N &= ~bad_N

    def _check_version(self) -> None:
        for array in self._columns.get("v", ()):
            _, bad_N = arrow_values.integers(array, 1, WIRE_VERSION)
            self._mark("v", RULE_VERSION, bad_N & arrow_values.present(array), array)

    def _run(self) -> Texts:
        """The run of each row: codes in order of first appearance among the rows that stay."""
        arrays = self._columns.get("run", ())
        code_N = np.full(self._size, -1, np.int64)
        spelled: tuple[str, ...] = ()
        array = arrays[-1] if arrays else None
        if array is not None and arrow_values.is_text(array.type):
            text = arrow_values.texts(array)
            code_N, spelled = text.code_N, text.spelled
        elif array is not None:
            self._mark("run", RULE_RUN, arrow_values.present(array), array)
        if self._defaults.run is not None:
            spelled = tuple(dict.fromkeys((*spelled, self._defaults.run)))
            code_N = np.where(code_N < 0, spelled.index(self._defaults.run), code_N)
        good_names = np.array([is_run_name(name) for name in spelled] + [False], np.bool_)
        self._mark("run", RULE_RUN, ~good_names[code_N], array)
        return Texts(code_N, spelled)

    def _identity(self, keys: Sequence[str], high: int, default: int | None) -> Ints:
        """An identity field as integers; of several keys (or columns) the first with a value counts."""
        result_N = np.full(self._size, default or 0, np.int64)
        open_N = np.ones(self._size, np.bool_)
        array = None
        for key in keys:
            for array in reversed(self._columns.get(key, ())):
                value_N, bad_N = arrow_values.integers(array, 0, high)
                taken_N = open_N & arrow_values.present(array)
                result_N = np.where(taken_N, value_N, result_N)
                self._mark(key, integer_rule(high), taken_N & bad_N, array)
                open_N &= ~taken_N
        if default is None:
            self._mark(keys[0], integer_rule(high), open_N, array)
        return result_N

    def _refuse_events(self) -> None:
        for array in self._columns.get("event", ()):
            self._mark("event", RULE_NO_EVENT, arrow_values.present(array), array)

    def _time(self) -> Floats:
        arrays = self._columns.get("time", ())
        if not arrays or arrays[-1].null_count == self._size:
            return np.full(self._size, np.nan)
        array = arrays[-1]
        seconds_N = arrow_values.seconds(array)
        bad_N = arrow_values.present(array) & ~np.isfinite(seconds_N) & self._good_N
        self._value_faults("time", RULE_TIME, bad_N, array)
        return np.where(np.isfinite(seconds_N), seconds_N, np.nan)

    def _metric_arrays(self) -> dict[str, list[pa.Array]]:
        """Per canonical name its arrays, aliases first: of several values in a row the last counts."""
        found: dict[str, list[pa.Array]] = {}
        for key in sorted(self._columns, key=lambda key: key not in KEY_ALIASES):
            name = KEY_ALIASES.get(key, key)
            if name not in RESERVED_KEYS:
                found.setdefault(name, []).extend(self._columns[key])
        return found

    def _metric(self, name: str, arrays: Sequence[pa.Array]) -> None:
        open_N = self._good_N
        for array in reversed(arrays):
            if array.null_count == len(array):
                continue
            taken_N = open_N & arrow_values.present(array)
            if not taken_N.any():
                continue
            if not is_metric_name(name):
                why = Rejection(describe(name)[1:-1], RULE_NAME, "a column", is_whole=False)
                self._faults.append((int(np.argmax(taken_N)), why))
            elif is_checksum(name):
                self._add_checksums(name, array, taken_N)
            elif arrow_values.is_numeric(array.type):
                self._add_numbers(name, arrow_values.numbers(array), taken_N)
            elif arrow_values.is_text(array.type):
                self._add_texts(name, array, taken_N)
            else:
                self._value_faults(name, RULE_VALUE, taken_N, array)
            open_N = open_N & ~taken_N

    def _value_faults(self, field: str, rule: str, bad_N: Flags, array: pa.Array) -> None:
        """Count bad values one by one, or as one where no value of such a column can be good."""
        rows = np.flatnonzero(bad_N).tolist()
        if rows and not (arrow_values.is_numeric(array.type) or arrow_values.is_text(array.type)):
            shown = f"{len(rows)} of {array.type}"[:200]
            self._faults.append((rows[0], Rejection(field, rule, shown, is_whole=False)))
            return
        self._faults.extend(
            (at, Rejection(field, rule, shown, is_whole=False)) for at, shown in _shown(array, rows)
        )

    def _add_numbers(self, name: str, values_N: Floats, taken_N: Flags) -> None:
        had = self._numbers.get(name)
        if had is None:
            values_N = values_N if taken_N.all() else np.where(taken_N, values_N, np.nan)
            self._numbers[name] = NumberColumn(values_N, taken_N)
            return
        merged_N = np.where(taken_N, values_N, had.values_N)
        self._numbers[name] = NumberColumn(merged_N, taken_N | had.present_N)

    def _add_checksums(self, name: str, array: pa.Array, taken_N: Flags) -> None:
        sums = arrow_values.checksums(array)
        self._value_faults(name, RULE_CHECKSUM, sums.bad_N & taken_N, array)
        good_N = taken_N & ~sums.bad_N
        if not good_N.any():
            return
        zero = np.uint64(0)
        had = self._checksums.get(name)
        high_N = np.where(good_N, sums.high_N, zero if had is None else had.high_N)
        low_N = np.where(good_N, sums.low_N, zero if had is None else had.low_N)
        present_N = good_N if had is None else good_N | had.present_N
        self._checksums[name] = ChecksumColumn(high_N, low_N, present_N)

    def _add_texts(self, name: str, array: pa.Array, taken_N: Flags) -> None:
        text = arrow_values.texts(array)
        value_of = np.array([NONFINITE_TEXT.get(word, 0.0) for word in text.spelled], np.float64)
        is_number = np.array([word in NONFINITE_TEXT for word in text.spelled], np.bool_)
        is_bad = np.array([not is_label_text(word) for word in text.spelled], np.bool_)
        code_N = np.where(taken_N, text.code_N, 0)
        number_N = taken_N & is_number[code_N]
        if number_N.any():
            self._add_numbers(name, value_of[code_N], number_N)
        self._value_faults(name, RULE_LABEL, taken_N & is_bad[code_N], array)
        label_N = taken_N & ~number_N & ~is_bad[code_N]
        if label_N.any():
            had = self._texts.get(name, np.full(self._size, -1, np.int64))
            base = len(self._spelled.get(name, ()))
            self._texts[name] = np.where(label_N, code_N + base, had)
            self._spelled[name] = (*self._spelled.get(name, ()), *text.spelled)


def _by_name(table: pa.RecordBatch) -> dict[str, list[pa.Array]]:
    found: dict[str, list[pa.Array]] = {}
    for name, array in zip(table.schema.names, table.columns, strict=True):
        found.setdefault(name, []).append(arrow_values.plain(array))
    return found


def _tidy(
    batch: RecordBatch, texts: Mapping[str, Ints], spelled: Mapping[str, tuple[str, ...]], good_N: Flags
) -> RecordBatch:
    """The batch with its runs in order of first appearance and its labels."""
    first = np.full(len(batch.runs), len(batch), np.int64)
    first[batch.run_N[::-1]] = np.arange(len(batch) - 1, -1, -1)  # the last write is the first row
    used = [at for at in np.argsort(first, kind="stable").tolist() if first[at] < len(batch)]
    new_code = np.zeros(len(batch.runs), np.int32)
    new_code[used] = np.arange(len(used), dtype=np.int32)
    run_N = new_code[batch.run_N]
    keys = (run_N, batch.attempt_N, batch.rank_N, batch.iteration_N, batch.microbatch_N)
    return RecordBatch(
        runs=tuple(batch.runs[at] for at in used),
        run_N=run_N,
        attempt_N=batch.attempt_N,
        rank_N=batch.rank_N,
        iteration_N=batch.iteration_N,
        microbatch_N=batch.microbatch_N,
        time_N=batch.time_N,
        numbers=batch.numbers,
        checksums=batch.checksums,
        labels=_labels({name: code_N[good_N] for name, code_N in texts.items()}, spelled, keys),
        rejected=batch.rejected,
    )


def _labels(
    texts: Mapping[str, Ints], spelled: Mapping[str, tuple[str, ...]], keys: Sequence[NDArray[np.integer]]
) -> Labels:
    kept: list[tuple[int, str, str]] = []
    for name, code_N in texts.items():
        ends = ends_of_stretches(code_N, keys, np.flatnonzero(code_N >= 0))
        kept.extend((at, name, spelled[name][code_N[at]]) for at in ends.tolist())
    return tuple(sorted(kept))


def _shown(array: pa.Array, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Each row and its value for a person; a text that many rows share is looked at once."""
    if pa.types.is_dictionary(array.type):
        shown = dict(_shown(array.dictionary, range(len(array.dictionary))))
        for at in rows:
            yield at, shown.get(array.indices[at].as_py(), "None")
        return
    for at in rows:
        try:
            yield at, describe(array[at].as_py())
        except (ValueError, OverflowError, pa.ArrowException):  # a date beyond Python's, text that is none
            yield at, f"a value of {array.type}"[:200]
