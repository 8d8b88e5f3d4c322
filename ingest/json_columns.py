"""Large pieces of flat JSON lines as columns, by Arrow: no Python object is made for a value.

Axes: N rows.

What Arrow would read otherwise than line by line (a key that is not known yet, a text where numbers stood,
objects in objects) is given back to be read that way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .blocks import Flags, Floats
from .written_numbers import number_in

if TYPE_CHECKING:
    import pyarrow as pa

LEAST_BYTES = 128 * 1024
"""Below it objects are as fast, and Arrow need not be loaded."""
_BLOCK_BYTES = 1 << 20
"""What Arrow parses as one task."""


class ColumnKinds:
    """Which keys hold numbers and which text, as far as was seen."""

    def __init__(self) -> None:
        self._kinds: dict[str, type | None] = {}
        self._nulls: dict[str, None] = {}

    def learn(self, records: Iterable[Mapping[str, object]]) -> None:
        """Take note of the values of records; a key seen with both kinds is never read by columns."""
        for record in records:
            for key, value in record.items():
                if value is None:
                    self._nulls.setdefault(key)
                    continue
                kind = _kind_of(value)
                known = self._kinds.get(key, kind)
                self._kinds[key] = kind if known is kind else None

    def read(self, data: bytes, names: list[str]) -> list[ArrowColumn] | None:
        """The columns of ``names`` of lines of objects, which end with a line end; None if Arrow cannot."""
        import pyarrow as pa
        from pyarrow import json as arrow_json

        kinds = {**dict.fromkeys(self._nulls, float), **self._kinds}
        if kinds.keys() != set(names) or None in kinds.values():
            return None
        types = {float: pa.float64(), str: pa.string()}
        schema = pa.schema([(name, types[kinds[name] or str]) for name in names])
        try:
            table = arrow_json.read_json(
                pa.BufferReader(data),
                read_options=arrow_json.ReadOptions(block_size=_BLOCK_BYTES),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=schema, newlines_in_values=False, unexpected_field_behavior="error"
                ),
            )
        except pa.ArrowException:
            return None
        if table.num_rows != data.count(b"\n"):
            return None  # blank lines, or objects that share one
        return [ArrowColumn(table[name].combine_chunks()) for name in names]


class ArrowColumn:
    """A column as Arrow holds it: numbers, or text."""

    def __init__(self, column: Any) -> None:
        self._column: pa.Array = column
        self._is_number = str(column.type) == "double"

    def __len__(self) -> int:
        return len(self._column)

    def text(self, row: int) -> str:
        value = self._column[row].as_py()
        return "" if value is None else str(value).strip()

    def is_filled(self) -> Flags:
        if not self._column.null_count:
            return np.ones(len(self._column), np.bool_)
        return np.asarray(self._column.is_valid().to_numpy(zero_copy_only=False), np.bool_)

    def floats(self) -> tuple[Floats, Flags]:
        failed_N = np.zeros(len(self._column), np.bool_)
        if self._is_number:
            values_N = np.array(self._column.to_numpy(zero_copy_only=False), np.float64)
            if self._column.null_count:
                values_N[~self.is_filled()] = np.nan
            return values_N, failed_N
        texts, code_N = self.codes()
        numbers = [number_in(text) for text in texts]
        known = np.array([np.nan if number is None else number for number in numbers])
        is_bad = np.array(
            [number is None and text != "" for number, text in zip(numbers, texts, strict=True)]
        )
        return known[code_N], is_bad[code_N]

    def changes(self) -> list[int]:
        texts, code_N = self.codes()
        empty = texts.index("") if "" in texts else -1
        changed_N = np.diff(code_N, prepend=-1) != 0
        return [int(row) for row in np.flatnonzero(changed_N & (code_N != empty))]

    def codes(self) -> tuple[list[str], NDArray[np.int32]]:
        from pyarrow import compute

        encoded = compute.fill_null(self._column.cast("string"), "").dictionary_encode()
        texts = [str(text).strip() for text in encoded.dictionary.to_pylist()]
        return texts, np.asarray(encoded.indices.to_numpy(zero_copy_only=False), np.int32)


def _kind_of(value: object) -> type | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float
    return str if isinstance(value, str) else None
