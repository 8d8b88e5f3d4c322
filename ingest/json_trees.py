"""Where the records are in a JSON document: a list of them, or series of numbers that make them up.

Four shapes are known, at any depth: a list of objects (``log_history``, an export of a run), objects under
steps (``{"10": {"loss": 2.5}}``), arrays side by side (a history of Keras, results of xgboost) and series of
steps and values (golden values of Megatron, points of a chart). The one that holds most numbers is read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .written_numbers import number_of

MAX_DEPTH = 6
"""Levels that are looked into; logs keep their records within four."""
STEP = "step"
_STEP_AND_VALUE = (2, 3)
_SERIES = 64
"""Objects in a list, each of which may hold a series of its own: curves of one chart."""
_LONG_NAMES = ("key", "tag", "metric", "name", "metric_name", "MetricName", "metricName")
_LONG_VALUES = ("value", "Value", "metric_value", "metricValue")
_LABELS = ("Label", "label", "name", "Id", "id", "key", "tag")
_STEPS = ("start_step", "step_interval")

Record = dict[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Records of one document; ``where`` is the path to them, ``left_out`` what did not fit in."""

    records: list[Record]
    where: str = ""
    kind: str = "records"
    left_out: tuple[str, ...] = ()


@dataclass(slots=True)
class _Search:
    lists: list[Found] = field(default_factory=list)
    series: dict[str, dict[int, object]] = field(default_factory=dict)
    arrays: dict[str, list[object]] = field(default_factory=dict)


def find_records(value: object, name: str = "value") -> Found | None:
    """The records of a document, None where there are none; a series without a name gets ``name``.

    >>> find_records({"log_history": [{"loss": 2.5, "step": 1}]}).where
    'log_history'
    >>> find_records({"loss": [2.5, 2.4], "val_loss": [3.0, 2.9]}).records[1]
    {'loss': 2.4, 'val_loss': 2.9}
    """
    search = _Search()
    _look(value, "", 0, search)
    search.series = {each or name: points for each, points in search.series.items()}
    search.arrays = {each or name: values for each, values in search.arrays.items()}
    candidates = list(search.lists)
    if search.series:
        candidates.append(Found(records=_joined(search.series), kind="series by step"))
    if search.arrays:
        candidates.append(_side_by_side(search.arrays))
    best = max(candidates, key=lambda found: _weight(found.records), default=None)
    return best if best is not None and _weight(best.records) else None


def _look(value: object, where: str, depth: int, search: _Search) -> None:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        _look_at_list(value, where, depth, search)
    elif isinstance(value, dict):
        _look_at_object(value, where, depth, search)


def _look_at_list(values: list[object], where: str, depth: int, search: _Search) -> None:
    objects = [each for each in values if isinstance(each, dict)]
    if objects and 2 * len(objects) > len(values):
        search.lists.append(Found(records=_pivoted(objects), where=where))
        for one in objects if len(objects) <= _SERIES else ():
            label = next((str(one[key]) for key in _LABELS if isinstance(one.get(key), str)), where)
            if (points := _curve(one)) is not None:
                search.series[label] = points
                continue
            for key, inner in one.items():
                if isinstance(inner, list):
                    _look(inner, label or key, depth + 1, search)
    elif (points := _points(values)) is not None:
        search.series[where] = points
    elif values and all(isinstance(each, int | float | str | None) for each in values):
        if any(number_of(each) is not None for each in values):
            search.arrays[where] = values
    else:
        for at, each in enumerate(values[:_SERIES]):
            _look(each, f"{where}/{at}".strip("/"), depth + 1, search)


def _look_at_object(value: dict[str, object], where: str, depth: int, search: _Search) -> None:
    steps = [int(key) for key in value if key.isascii() and key.isdigit() and len(key) < 16]
    if value and len(steps) == len(value):
        if all(isinstance(each, dict) for each in value.values()):
            rows = zip(steps, value.values(), strict=True)
            records = [{STEP: step, **each} for step, each in rows if isinstance(each, dict)]
            search.lists.append(Found(records=records, where=where, kind="records by step"))
            return
        if not any(isinstance(each, dict | list) for each in value.values()):
            search.series[where] = dict(zip(steps, value.values(), strict=True))
            return
    names, cells = value.get("columns"), value.get("data")
    if isinstance(names, list) and isinstance(cells, list) and all(isinstance(row, list) for row in cells):
        keys = [str(name) for name in names]
        search.lists.append(Found(records=[dict(zip(keys, row, strict=False)) for row in cells], where=where))
        return
    if (points := _curve(value)) is not None:
        search.series[where] = points
        return
    values = value.get("values")
    if isinstance(values, list) and all(isinstance(value.get(key), int) for key in _STEPS):
        start, interval = (int(str(value[key])) for key in _STEPS)
        search.series[where] = {start + at * interval: each for at, each in enumerate(values)}
        return
    for key, each in value.items():
        path = where if key == "values" and where else f"{where}/{key}".strip("/")
        _look(each, path, depth + 1, search)


def _points(values: Sequence[object]) -> dict[int, object] | None:
    """Pairs of step and value, or triples with a time in front, as a series."""
    if not values or not all(isinstance(each, list) and len(each) in _STEP_AND_VALUE for each in values):
        return None
    found: dict[int, object] = {}
    for each in values:
        assert isinstance(each, list)
        step = number_of(each[-2])
        if step is None or not step.is_integer() or step < 0:
            return None
        found[int(step)] = each[-1]
    return found


def _curve(value: Mapping[str, object]) -> dict[int, object] | None:
    """A curve as plots keep it: places in ``x``, values in ``y``; places that are no steps are numbered."""
    places, values = value.get("x"), value.get("y")
    if not isinstance(places, list) or not isinstance(values, list) or len(places) != len(values):
        return None
    if not values or all(number_of(each) is None for each in values):
        return None
    steps = [number_of(each) for each in places]
    whole = [int(step) for step in steps if step is not None and step >= 0 and step.is_integer()]
    is_counted = len(set(whole)) == len(steps)
    return dict(zip(whole if is_counted else range(len(values)), values, strict=True))


def _pivoted(objects: list[dict[str, object]]) -> list[Record]:
    """Records of one metric each (``{"key": "loss", "value": 2.5, "step": 1}``) as records of all."""
    name = next(
        (each for each in _LONG_NAMES if all(isinstance(one.get(each), str) for one in objects)), None
    )
    value = next((each for each in _LONG_VALUES if all(each in one for one in objects)), None)
    if name is None or value is None:
        return objects
    records: dict[tuple[object, ...], Record] = {}
    for one in objects:
        rest = {key: each for key, each in one.items() if key not in (name, value)}
        key = tuple(rest.get(each) for each in ("run_id", "run", "step", "epoch", "iteration"))
        records.setdefault(key, rest)[str(one[name])] = one[value]
    return list(records.values())


def _joined(series: Mapping[str, Mapping[int, object]]) -> list[Record]:
    """One record a step; text before the first number of a series stands for steps that were not run."""
    records: dict[int, Record] = {}
    for name, points in series.items():
        has_begun = False
        for step in sorted(points):
            number = number_of(points[step])
            has_begun = has_begun or (number is not None and not math.isnan(number))
            record = records.setdefault(step, {STEP: step})
            if has_begun or not isinstance(points[step], str):
                record[name] = points[step]
    return [records[step] for step in sorted(records)]


def _side_by_side(arrays: Mapping[str, list[object]]) -> Found:
    """Arrays of the length that holds most numbers, row by row."""
    cells = Counter[int]()
    for values in arrays.values():
        cells[len(values)] += len(values)
    length = max(cells, key=lambda size: (cells[size], size))
    kept = {name: values for name, values in arrays.items() if len(values) == length}
    records: list[Record] = [{name: values[at] for name, values in kept.items()} for at in range(length)]
    return Found(records=records, kind="arrays", left_out=tuple(name for name in arrays if name not in kept))


def _weight(records: Sequence[Mapping[str, object]]) -> int:
    return sum(number_of(value) is not None for record in records for value in record.values())
