"""JSON records of other loggers become records of ours: objects in order, whatever file they were in.

What the keys mean is decided once, from the first objects. Keys that turn up later (a validation after
the first epoch) are decided with all that are known by then; what was decided stays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from firstfault.wire import Defaults

from .blocks import RecordBatch
from .columns import MAX_CELLS
from .errors import UnreadableInput
from .role_values import is_metric, own_name
from .roles import Roles, assign_roles, meaning_of
from .table_rows import TableRows
from .table_text import TextColumn
from .value_columns import ValueColumn, columns_of, flat

SAMPLE_RECORDS = 1000
"""Records at the head that decide what a key means."""
MAX_KEYS = 4096
"""Different keys of one file; more are made up by what is logged, not by who logs."""

JsonRecord = Mapping[str, object]


class JsonRows:
    """Objects in order, with the roles of their keys."""

    def __init__(
        self, sample: Sequence[JsonRecord], defaults: Defaults, source: str, wanted: Mapping[str, str]
    ) -> None:
        self._rows = TableRows(self.roles_of(sample, wanted), defaults, source)
        self._names = list(self._rows.header.names)
        self._has_counted = False

    @staticmethod
    def roles_of(sample: Sequence[JsonRecord], wanted: Mapping[str, str]) -> Roles:
        """What the keys of the first objects mean."""
        flattened = [flat(record) for record in sample[:SAMPLE_RECORDS]]
        names = _names(flattened)
        return assign_roles(names, columns_of(flattened, names), wanted)

    @property
    def roles(self) -> Roles:
        """What the keys mean."""
        return self._rows.header

    @property
    def padding(self) -> int:
        """Rows whose metrics are all nan, and hence not reported."""
        return self._rows.padding

    @property
    def has_begun(self) -> bool:
        """Whether the first record was seen; before it there may be configuration."""
        return self._has_counted or self.roles.iteration is None

    def decode(self, records: Sequence[JsonRecord], places: Sequence[int]) -> RecordBatch:
        """The records of the next objects; ``places`` are the numbers of their lines."""
        flattened = [flat(record) for record in records]
        self._learn(flattened)
        pairs = [pair for pair in zip(flattened, places, strict=True) if self._is_record(pair[0])]
        kept = [record for record, _ in pairs]
        number_N = np.array([place for _, place in pairs], np.int64)
        names = self._names[: max(1, MAX_CELLS // max(1, len(kept)))]
        columns: list[TextColumn] = [ValueColumn(values) for values in columns_of(kept, names)]
        columns += [ValueColumn([None] * len(kept))] * (len(self._names) - len(names))
        return self._rows.decode(columns, number_N, [])

    def decode_columns(self, columns: Sequence[TextColumn], places: Sequence[int]) -> RecordBatch:
        """The records of the next objects, given as the columns of all names known so far."""
        return self._rows.decode(columns, np.array(places, np.int64), [])

    def _learn(self, records: Sequence[JsonRecord]) -> None:
        """Take in keys that were not seen before; those that are known keep their meaning."""
        known = set(self._names)
        fresh = [name for name in _names(records) if name not in known]
        if not fresh or len(self._names) >= MAX_KEYS:
            return
        self._names += fresh[: MAX_KEYS - len(self._names)]
        self._rows.header = _extended(self._rows.header, self._names)

    def _is_record(self, record: JsonRecord) -> bool:
        """Whether an object is more than the configuration that stands before the first record."""
        counter = self.roles.iteration
        if counter is None or self._has_counted:
            return True
        self._has_counted = record.get(self._names[counter]) is not None
        return self._has_counted


def require_numbers(roles: Roles, sample: Sequence[JsonRecord], source: str) -> None:
    """Refuse records without a number besides their counter.

    Raises:
        UnreadableInput: there is none.
    """
    names = [roles.names[at] for at in roles.metrics]
    columns: list[ValueColumn] = [ValueColumn(values) for values in columns_of(sample, names)]
    if not any((column.is_filled() & ~column.floats()[1]).any() for column in columns):
        listed = ", ".join(repr(name) for name in roles.names[:12])
        raise UnreadableInput(f"{source}: records must have a number besides their counter, got {listed}")


def _extended(roles: Roles, names: Sequence[str]) -> Roles:
    """The roles with names that came later, each a metric under a name that is free."""
    metrics = dict(roles.metrics)
    for at in range(len(roles.names), len(names)):
        metric = meaning_of(names[at]).metric
        is_free = is_metric(metric) and metric not in metrics.values()
        own = metric if is_free else own_name(names[at], set(metrics.values()))
        if own is not None:
            metrics[at] = own
    return replace(roles, names=tuple(names), metrics=MappingProxyType(metrics))


def _names(records: Sequence[JsonRecord]) -> list[str]:
    """The keys in order of appearance; objects and lists are no values."""
    found: dict[str, None] = {}
    for record in records:
        found.update(dict.fromkeys(record))
    return list(found)[:MAX_KEYS]
