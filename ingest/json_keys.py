"""JSON lines of other loggers: which key counts iterations, and what it takes to read them as ours.

Our decoder knows ``iteration``, ``step`` and ``global_step``. Lines that count in another key
(``current_steps``, ``iter``, ``epoch``), or not at all, are made to before they are decoded.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from firstfault.telemetry import MAX_ITERATION
from firstfault.wire import ITERATION_KEYS
from firstfault.wire_values import integer

from .blocks import NumberColumn, RecordBatch
from .table_header import EPOCH_NAMES, ITERATION_NAMES, METRIC_NAMES, ROW_NUMBER

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


def read_keys(head: bytes) -> JsonKeys:
    """The meaning of the keys of the objects in ``head``: each must be in at least half of them."""
    objects = _sample(head)
    half = max(len(objects), 1) / 2
    times = Counter(key for each in objects for key, value in each.items() if value is not None)
    common = {key for key in times if times[key] >= half}
    is_wire = {"run", "rank"} <= common
    if not objects or is_wire or not common.isdisjoint(ITERATION_KEYS):
        return JsonKeys(is_wire=is_wire, renamed=_renamed(common))
    remarks: list[str] = []
    counter = _counts(objects, ITERATION_NAMES, half)
    if counter is None:
        counter = _counts(objects, EPOCH_NAMES, half)
        if counter is not None:
            remarks.append(f"no key counts iterations: the epoch ({counter!r}) is used")
    if counter is None:
        remarks.append("no key counts iterations: the row number, from 0, is used")
    return JsonKeys(counter or ROW_NUMBER, _renamed(common), False, tuple(remarks))


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
        if not renamed or any(new in batch.numbers for new in renamed.values()):
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


def _counts(objects: Sequence[Mapping[str, object]], names: Sequence[str], half: float) -> str | None:
    """The first of ``names``, in any case, under which at least half of the objects have a whole number."""
    spelled = {key: key.lower().replace(" ", "_").replace("-", "_") for each in objects for key in each}
    for name in names:
        for key in (name, *(key for key, spelling in spelled.items() if spelling == name)):
            if sum(integer(each.get(key), 0, MAX_ITERATION) is not None for each in objects) >= half:
                return key
    return None


def _renamed(common: set[str]) -> dict[str, str]:
    renamed: dict[str, str] = {}
    for metric, spellings in METRIC_NAMES.items():
        found = next((name for name in spellings if name in common), None)
        if found is not None and found not in (metric, "learning_rate"):
            renamed[found] = metric
    return renamed
