"""Records and events as lines of the wire, whatever was logged: a value that cannot be sent goes alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from ..telemetry import Event, Record, Value
from ..wire import encode_event, encode_record
from ..wire_values import NONFINITE_TEXT, Role, as_float, is_label_text, parse_checksum, role_of

MAX_EVENT_BYTES = 256 << 10
"""Longest event: half of a message; a mesh of 10 000 ranks written out by coordinates fits."""
_MAX_DEPTH = 6
_MAX_TEXT = 4096


def line_of(item: Record | Event | bytes) -> tuple[bytes | None, int]:
    """The line of ``item``, None if nothing of it can be sent, and how many of its values cannot.

    Never raises for anything that was logged.
    """
    if isinstance(item, bytes):
        return item, 0
    try:
        return _event_line(item) if isinstance(item, Event) else _record_line(item)
    except Exception:  # values are the user's objects, whose methods may raise anything
        return None, 1


def _record_line(record: Record) -> tuple[bytes | None, int]:
    metrics: dict[str, Value] = {}
    labels: dict[str, str] = {}
    bad = 0
    given: Mapping[str, object] = record.metrics
    for key, value in given.items():
        if value is not None and not _take(key, value, metrics, labels):
            bad += 1
    if bad and not metrics and not labels:
        return None, bad
    return encode_record(replace(record, metrics=metrics, labels=labels)).encode(), bad


def _take(key: str, value: object, metrics: dict[str, Value], labels: dict[str, str]) -> bool:
    """Put one value where the wire has it; whether it has a place."""
    name, role = role_of(key)
    if role is Role.CHECKSUM:
        checksum = parse_checksum(value)
        if checksum is not None:
            metrics[name] = checksum
        return checksum is not None
    if role is not Role.NUMBER:
        return False
    if isinstance(value, str):
        if value in NONFINITE_TEXT:
            metrics[name] = NONFINITE_TEXT[value]
        elif is_label_text(value):
            labels[name] = value
        return name in metrics or name in labels
    if not isinstance(value, int | float):
        return False
    metrics[name] = as_float(value)
    return True


def _event_line(event: Event) -> tuple[bytes | None, int]:
    fields = {str(key)[:_MAX_TEXT]: _plain(value, _MAX_DEPTH) for key, value in event.fields.items()}
    line = encode_event(replace(event, fields=fields)).encode()
    if len(line) <= MAX_EVENT_BYTES:
        return line, 0
    # what makes it long goes first, so that the event itself is told
    by_length = sorted(fields, key=lambda key: len(json.dumps(fields[key], default=str)))
    while by_length and len(line) > MAX_EVENT_BYTES:
        fields.pop(by_length.pop())
        line = encode_event(replace(event, fields=fields)).encode()
    return line, 1


def _plain(value: object, depth: int) -> object:
    """``value`` as JSON can write it; what JSON does not know becomes text."""
    if value is None or isinstance(value, bool | float | int):
        return value
    if isinstance(value, Mapping) and depth:
        return {str(key)[:_MAX_TEXT]: _plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and depth:
        return [_plain(item, depth - 1) for item in value]
    return str(value)[:_MAX_TEXT].encode("utf-8", "replace").decode()
