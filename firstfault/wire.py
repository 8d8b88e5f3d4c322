"""One record or event as one line of JSON, and back: the reference semantics of the wire.

`encode_record` and `encode_event` write a line; `interpret` gives a decoded JSON object its meaning.
Every other decoder (columns, Arrow, Parquet) must agree with `interpret`, value for value.
Standard library only: this module is imported inside training jobs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from .telemetry import (
    MAX_ATTEMPT,
    MAX_ITERATION,
    MAX_MICROBATCH,
    MAX_RANK,
    RESERVED_KEYS,
    UNNAMED_RANK,
    WHOLE_ITERATION,
    WIRE_VERSION,
    Checksum,
    Event,
    EventKind,
    Record,
    Value,
    is_checksum,
)
from .wire_values import (
    NONFINITE_TEXT,
    RULE_CHECKSUM,
    RULE_LABEL,
    RULE_NAME,
    RULE_OBJECT,
    RULE_RUN,
    RULE_TIME,
    RULE_VALUE,
    Role,
    as_float,
    describe,
    integer,
    integer_rule,
    is_label_text,
    is_run_name,
    parse_checksum,
    role_of,
)

ITERATION_KEYS = ("iteration", "step", "global_step")
"""Keys that name the iteration; of several in one record the first of this order wins."""
_EVENT_KINDS: Mapping[str, EventKind] = {kind.value: kind for kind in EventKind}
RULE_VERSION = f"must be {WIRE_VERSION}: a newer sender? this release reads wire version {WIRE_VERSION} only"
RULE_EVENT = f"must be one of {', '.join(_EVENT_KINDS)}"


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a record that does not name its run or rank gets; None = the key is required.

    On Kafka and HTTP both are required. A file gives its stem and `UNNAMED_RANK`.
    """

    run: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Rejection:
    """A field that was not understood: the rule it breaks and the value that came, cut to be readable.

    ``is_whole`` tells a rejected record from a rejected value of a record that was kept.
    """

    field: str
    rule: str
    value: str
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A record or event, or None if the whole was rejected, and what was rejected of it."""

    result: Record | Event | None
    rejections: tuple[Rejection, ...] = ()


def encode_record(record: Record) -> str:
    """The record as one line of ASCII JSON, without the line end; `interpret` inverts it.

    Non-finite values become the strings ``"NaN"``, ``"Infinity"``, ``"-Infinity"``.

    Raises:
        ValueError: a name or value that the wire cannot carry: names the key, the rule, the value.

    >>> encode_record(Record(run="r", rank=3, iteration=7, metrics={"loss": float("nan")}))
    '{"run":"r","attempt":0,"rank":3,"iteration":7,"loss":"NaN"}'
    """
    line = _identity(record)
    if record.microbatch != WHOLE_ITERATION:
        line["microbatch"] = record.microbatch
    if record.time is not None:
        line["time"] = record.time
    for name, value in record.metrics.items():
        if name in RESERVED_KEYS or isinstance(value, Checksum) != is_checksum(name):
            raise ValueError(f"metric {name!r} cannot hold {value!r}: checksums are named *_checksum")
        line[name] = f"{value:016x}" if isinstance(value, Checksum) else _plain(value)
    for name, text in record.labels.items():
        if name in line or name in RESERVED_KEYS or is_checksum(name) or text in NONFINITE_TEXT:
            raise ValueError(f"label {name!r} cannot hold {text!r}: it would be read as something else")
        line[name] = text
    return json.dumps(line, allow_nan=False, separators=(",", ":"))


def encode_event(event: Event) -> str:
    """The event as one line of ASCII JSON, without the line end.

    >>> encode_event(Event(kind=EventKind.RUN_END, run="r", rank=0, iteration=9))
    '{"run":"r","attempt":0,"rank":0,"iteration":9,"event":"run_end"}'
    """
    line = _identity(event)
    line["event"] = event.kind.value
    if event.time is not None:
        line["time"] = event.time
    extra = {key: value for key, value in event.fields.items() if key not in RESERVED_KEYS}
    return json.dumps({**line, **_plain_mapping(extra)}, allow_nan=False, separators=(",", ":"))


def interpret(line: object, defaults: Defaults = Defaults()) -> Interpreted:
    """What one decoded JSON value says: a record, an event, or why not.

    A bad identity rejects the record; a bad value rejects that value alone. A line with ``event``
    is an event: its other keys are the event's fields, not metrics. Of ``iteration``, ``step`` and
    ``global_step`` (and of ``lr`` and ``learning_rate``) the canonical name wins, others are ignored.

    >>> interpret({"run": "r", "rank": 0, "step": 4.0, "loss": "NaN"}).result.metrics
    {'loss': nan}
    """
    if not isinstance(line, dict) and not isinstance(line, Mapping):  # dict first: the abstract test is slow
        return _rejected("line", RULE_OBJECT, line)
    version = line.get("v")
    if version is not None and integer(version, 1, WIRE_VERSION) is None:
        return _rejected("v", RULE_VERSION, version)
    run = line.get("run")
    if run is None:
        run = defaults.run
    if not isinstance(run, str) or not is_run_name(run):
        return _rejected("run", RULE_RUN, run)
    numbers: list[int] = []
    for key, high, default in (
        ("rank", MAX_RANK, defaults.rank),
        (iteration_key(line), MAX_ITERATION, None),
        ("attempt", MAX_ATTEMPT, 0),
        ("microbatch", MAX_MICROBATCH, WHOLE_ITERATION),
    ):
        value = line.get(key)
        number = default if value is None and default is not None else integer(value, 0, high)
        if number is None:
            return _rejected(key, integer_rule(high), value)
        numbers.append(number)
    return _understood(line, run, numbers)


def iteration_key(line: Mapping[str, object]) -> str:
    """The key that gives the iteration of ``line``: the first of `ITERATION_KEYS` that is not null."""
    for key in ITERATION_KEYS:
        if line.get(key) is not None:
            return key
    return ITERATION_KEYS[0]


def _identity(what: Record | Event) -> dict[str, object]:
    line: dict[str, object] = {"run": what.run, "attempt": what.attempt}
    if what.rank != UNNAMED_RANK:
        line["rank"] = what.rank
    line["iteration"] = what.iteration
    return line


def _plain(value: object) -> object:
    """``value`` as JSON can write it: non-finite numbers as text, inside containers too."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return _plain_mapping(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _plain_mapping(value: Mapping[str, object]) -> dict[str, object]:
    return {key: _plain(item) for key, item in value.items()}


def _rejected(field: str, rule: str, value: object) -> Interpreted:
    return Interpreted(None, (Rejection(field, rule, describe(value)),))


def _understood(line: Mapping[str, object], run: str, numbers: list[int]) -> Interpreted:
    """The record or event of a line whose identity is good."""
    rank, iteration, attempt, microbatch = numbers
    rejections: list[Rejection] = []
    time = _time(line, rejections)
    what = line.get("event")
    if what is not None:
        kind = _EVENT_KINDS.get(what) if isinstance(what, str) else None
        if kind is None:
            return _rejected("event", RULE_EVENT, what)
        event = Event(
            kind=kind, run=run, rank=rank, iteration=iteration, attempt=attempt, time=time, fields=line
        )
        return Interpreted(event, tuple(rejections))
    metrics, labels = _metrics(line, rejections)
    record = Record(
        run=run,
        rank=rank,
        iteration=iteration,
        attempt=attempt,
        microbatch=microbatch,
        time=time,
        metrics=metrics,
        labels=labels,
    )
    return Interpreted(record, tuple(rejections))


def _time(line: Mapping[str, object], rejections: list[Rejection]) -> float | None:
    value = line.get("time")
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        time = as_float(value)
        if math.isfinite(time):
            return time
    rejections.append(Rejection("time", RULE_TIME, describe(value), is_whole=False))
    return None


def _metrics(
    line: Mapping[str, object], rejections: list[Rejection]
) -> tuple[dict[str, Value], dict[str, str]]:
    metrics: dict[str, Value] = {}
    labels: dict[str, str] = {}
    for key, value in line.items():
        name, role = role_of(key)
        if value is None or role is Role.RESERVED or (name != key and line.get(name) is not None):
            continue
        if role is Role.NUMBER and isinstance(value, float):
            metrics[name] = value
            continue
        rule = _take(name, role, value, metrics, labels)
        if rule is not None:
            rejections.append(Rejection(describe(key)[1:-1], rule, describe(value), is_whole=False))
    return metrics, labels


def _take(
    name: str, role: Role, value: object, metrics: dict[str, Value], labels: dict[str, str]
) -> str | None:
    """Put one value where it belongs; the rule it breaks if it belongs nowhere."""
    if role is Role.BAD:
        return RULE_NAME
    if role is Role.CHECKSUM:
        checksum = parse_checksum(value)
        if checksum is None:
            return RULE_CHECKSUM
        metrics[name] = checksum
    elif isinstance(value, int | float):
        metrics[name] = as_float(value)
    elif not isinstance(value, str):
        return RULE_VALUE
    elif value in NONFINITE_TEXT:
        metrics[name] = NONFINITE_TEXT[value]
    elif is_label_text(value):
        labels[name] = value
    else:
        return RULE_LABEL
    return None
