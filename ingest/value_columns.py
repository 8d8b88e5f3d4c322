"""Values of JSON objects as columns: what a cell of text is in a table, with the same meaning.

Axes: N rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from .blocks import Flags, Floats
from .written_numbers import number_in

MAX_DEPTH = 6
"""Objects inside objects that are opened, under names with slashes: RLlib has the statistics of a policy five
deep."""


class ValueColumn:
    """A column of values as JSON has them; None and empty text are absent."""

    def __init__(self, values: Sequence[object]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def text(self, row: int) -> str:
        value = self._values[row]
        return "" if value is None else str(value).strip()

    def is_filled(self) -> Flags:
        return np.array([value is not None and value != "" for value in self._values], np.bool_)

    def floats(self) -> tuple[Floats, Flags]:
        values_N = np.full(len(self._values), math.nan)
        failed_N = np.zeros(len(self._values), np.bool_)
        for row, value in enumerate(self._values):
            if value is None or value == "":
                continue
            number = number_in(value)
            if number is None:
                failed_N[row] = True
            else:
                values_N[row] = number
        return values_N, failed_N

    def changes(self) -> list[int]:
        before = [None, *self._values[:-1]]
        pairs = enumerate(zip(self._values, before, strict=True))
        return [row for row, (value, last) in pairs if value not in (None, "", last)]

    def codes(self) -> tuple[list[str], NDArray[np.int32]]:
        texts = [self.text(row) for row in range(len(self._values))]
        codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
        return list(codes), np.array([codes[text] for text in texts], np.int32)


def flat(record: Mapping[str, object], prefix: str = "", depth: int = 0) -> dict[str, object]:
    """An object with those inside it opened, and lists left out but for their only element.

    >>> flat({"step": 1, "train": {"loss": 2.5}})
    {'step': 1, 'train/loss': 2.5}
    """
    if not any(isinstance(value, dict | list) for value in record.values()):
        return {prefix + key: value for key, value in record.items()} if prefix else dict(record)
    found: dict[str, object] = {}
    for key, value in record.items():
        if isinstance(value, list) and len(value) == 1:
            value = value[0]  # noqa: PLW2901  # some loggers wrap every scalar
        if isinstance(value, dict):
            if depth < MAX_DEPTH:
                found |= flat(value, f"{prefix}{key}/", depth + 1)
        elif not isinstance(value, list):
            found[prefix + key] = value
    return found


def columns_of(records: Sequence[Mapping[str, object]], names: Iterable[str]) -> list[list[object]]:
    """The values of each name over all records, None where a record has none."""
    return [[record.get(name) for record in records] for name in names]
