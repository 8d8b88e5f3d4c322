"""The canonical names of metrics that came as columns (Arrow, Parquet) from another tool.

Axes: N records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from .blocks import RecordBatch
from .roles import Roles, assign_roles

_SAMPLED = 1000


class ColumnRoles:
    """Renames metrics as the first batch shows what they are; ``wanted`` is what a person says."""

    def __init__(self, wanted: Mapping[str, str]) -> None:
        self._wanted = wanted
        self._roles: Roles | None = None

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """Each column that is read, and as what."""
        return () if self._roles is None else self._roles.columns

    def rename(self, batch: RecordBatch) -> RecordBatch:
        """The batch with metrics under their canonical names.

        Raises:
            UnreadableInput: a column that a person named is not there.
        """
        if self._roles is None:
            names = list(batch.numbers)
            self._roles = assign_roles(names, [_sample(batch, name) for name in names], self._wanted)
        roles = self._roles
        canonical = {roles.names[at]: metric for at, metric in roles.metrics.items()}
        renamed = {name: canonical.get(name, name) for name in batch.numbers}
        if len(set(renamed.values())) < len(renamed):
            return batch  # a later batch has a column of that very name
        return replace(batch, numbers={renamed[name]: column for name, column in batch.numbers.items()})


def _sample(batch: RecordBatch, name: str) -> list[object]:
    column = batch.numbers[name]
    at_N = np.flatnonzero(column.present_N)[:_SAMPLED]
    return list(column.values_N[at_N])
