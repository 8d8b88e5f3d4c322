"""JSON lines of other loggers: which key counts iterations, and what it takes to read them as ours.

Our decoder knows ``iteration``, ``step`` and ``global_step``. Lines that count in another key
(``current_steps``, ``iter``, ``epoch``), or not at all, are made to before they are decoded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import count

from firstfault.wire import ITERATION_KEYS

from .blocks import NumberColumn, RecordBatch
from .roles import ROW_NUMBER, Roles, assign_roles

_SAMPLE_LINES = 200
_OBJECT_START = re.compile(rb'^([ \t]*)\{(?=\s*")', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class JsonKeys:
    """What the keys of a file of JSON lines mean.

    ``counter`` is the key used as iteration (or ``row number``); ``renamed`` maps a metric's key to
    the name it is read as. ``is_wire``: lines carry run and rank, as our own do.
    """

    counter: str = "iteration"
    renamed: Mapping[str, str] | None = None
    is_wire: bool = False
    remarks: tuple[str, ...] = ()


def read_keys(head: bytes, wanted: Mapping[str, str] | None = None) -> JsonKeys:
    """The meaning of the keys of the objects in ``head``; a counter must be in at least half of them."""
    objects = _sample(head)
    half = max(len(objects), 1) / 2
    times = Counter(key for each in objects for key, value in each.items() if value is not None)
    common = {key for key in times if times[key] >= half}
    is_wire = {"run", "rank"} <= common
    if not objects or is_wire:
        return JsonKeys(is_wire=is_wire)
    names = list(times)
    roles = assign_roles(names, [[each.get(name) for each in objects] for name in names], wanted)
    counter = next((name for name in ITERATION_KEYS if name in common), roles.counter)
    return JsonKeys(counter, _renamed(roles), False, roles.remarks)


class JsonLinesAdapter:
    """Makes the lines of one file ones that count in ``iteration``."""

    def __init__(self, keys: JsonKeys) -> None:
        self._keys = keys
        self._rows = count()
        self._key = re.compile(b'"' + re.escape(keys.counter.encode()) + rb'"(\s*:)')

    def adapt(self, data: bytes) -> bytes:
        """The same lines with the counter under its canonical key.

        A key stands before a colon; inside a string its quotes would be escaped, so the replacement
        meets keys alone.
        """
        if self._keys.counter in ITERATION_KEYS:
            return data
        if self._keys.counter == ROW_NUMBER:
            return _OBJECT_START.sub(lambda at: b'%b{"iteration":%d,' % (at[1], next(self._rows)), data)
        return self._key.sub(rb'"iteration"\1', data)

    def rename(self, batch: RecordBatch) -> RecordBatch:
        """The batch with metrics under their canonical names."""
        renamed = {old: new for old, new in (self._keys.renamed or {}).items() if old in batch.numbers}
        if not renamed:
            return batch
        numbers: dict[str, NumberColumn] = {
            renamed.get(name, name): column for name, column in batch.numbers.items()
        }
        return replace(batch, numbers=numbers)


def _sample(head: bytes) -> list[dict[str, object]]:
    from pydantic_core import from_json

    objects: list[dict[str, object]] = []
    for line in head.split(b"\n")[:_SAMPLE_LINES]:
        try:
            value = from_json(line)
        except ValueError:
            continue
        if isinstance(value, dict) and "event" not in value:
            objects.append(value)
    return objects


def _renamed(roles: Roles) -> dict[str, str]:
    return {roles.names[at]: metric for at, metric in roles.metrics.items() if metric != roles.names[at]}
