"""The wire as JSON Schema and as AsyncAPI, made from the words of `telemetry`: one source for every document.

    python -m firstfault.wire_schema docs        # writes wire.schema.json and asyncapi.json

What a schema cannot say stays with `wire.interpret`: lengths are counted in bytes there and in characters
here, and an alias (``step``, ``learning_rate``) does not count beside its canonical name.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .telemetry import (
    MAX_ATTEMPT,
    MAX_CHECKSUM_BITS,
    MAX_ITERATION,
    MAX_LABEL_BYTES,
    MAX_METRIC_NAME_BYTES,
    MAX_MICROBATCH,
    MAX_RANK,
    MAX_RUN_BYTES,
    WIRE_VERSION,
    EventKind,
)
from .wire_values import TELEMETRY_TOPIC

Schema = dict[str, Any]
_NO_CONTROLS = r"^[^\u0000-\u001f\u007f-\u009f]*$"
_ITERATION: Schema = {"type": "integer", "minimum": 0, "maximum": MAX_ITERATION}
_KEYED_BY_RUN: Schema = {"kafka": {"key": {"type": "string", "description": "The run."}}}
EXAMPLES: tuple[Mapping[str, object], ...] = (
    {
        "run": "llama-7b",
        "attempt": 0,
        "rank": 3,
        "iteration": 1200,
        "time": 1764470000.25,
        "loss": 2.31,
        "local_grad_norm": "NaN",
        "param_checksum": "9f3ab1c204d7e655",
        "nonfinite_grad": 0,
        "host": "node-07",
    },
    {
        "run": "llama-7b",
        "rank": 0,
        "iteration": 0,
        "event": "run_start",
        "world_size": 16,
        "mesh": [["pp", 2], ["dp", 4], ["tp", 2]],
    },
)


def line_schema() -> Schema:
    """The JSON Schema of one line: a record, or an event."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One record or event of a training job",
        "type": "object",
        "required": ["run", "rank"],
        "properties": {
            "run": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_RUN_BYTES,
                "pattern": _NO_CONTROLS,
                "description": "Name of the training job.",
            },
            "rank": {"type": "integer", "minimum": 0, "maximum": MAX_RANK},
            "iteration": {"description": "Optimizer steps, counted from 0; also step or global_step."},
            "attempt": _or_null({"type": "integer", "minimum": 0, "maximum": MAX_ATTEMPT}),
            "microbatch": _or_null({"type": "integer", "minimum": 0, "maximum": MAX_MICROBATCH}),
            "time": {"type": ["number", "null"], "description": "Seconds since 1970."},
            "event": {"enum": [None, *(kind.value for kind in EventKind)]},
            "v": {"enum": [None, WIRE_VERSION]},
        },
        "allOf": [_iteration_of(("iteration", "step", "global_step"))],
        "if": _has("event"),
        "then": {"description": "All other keys are fields of the event."},
        "else": _metrics(),
        "examples": list(EXAMPLES),
    }


def asyncapi() -> Schema:
    """The topic of telemetry as an AsyncAPI 3 document."""
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "firstfault telemetry",
            "version": str(WIRE_VERSION),
            "description": "What training jobs send, see docs/wire.md.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/x-ndjson",
        "servers": {"kafka": {"host": "127.0.0.1:9092", "protocol": "kafka"}},
        "channels": {
            "telemetry": {
                "address": TELEMETRY_TOPIC,
                "messages": {name: _ref("components", "messages", name) for name in ("lines", "columns")},
            }
        },
        "operations": {
            "sendTelemetry": {
                "action": "send",
                "channel": _ref("channels", "telemetry"),
                "summary": "A rank of a training job reports.",
            }
        },
        "components": {"messages": {"lines": _lines_message(), "columns": _columns_message()}},
    }


def _lines_message() -> Schema:
    return {
        "name": "lines",
        "title": "One record or event, or several as JSON lines",
        "contentType": "application/x-ndjson",
        "payload": {"schemaFormat": "application/schema+json;version=draft-2020-12", "schema": line_schema()},
        "bindings": _KEYED_BY_RUN,
        "examples": [{"payload": dict(example)} for example in EXAMPLES],
    }


def _columns_message() -> Schema:
    arrow = "application/vnd.apache.arrow.stream"
    return {
        "name": "columns",
        "title": "Records as columns of an Arrow IPC stream, one row a record",
        "contentType": arrow,
        "headers": {"type": "object", "properties": {"content-type": {"const": arrow}}},
        "payload": {"type": "string", "format": "binary"},
        "bindings": _KEYED_BY_RUN,
    }


def _metrics() -> Schema:
    """What the keys of a record may hold that are not reserved."""
    digits = MAX_CHECKSUM_BITS // 4
    checksum: Schema = {
        "anyOf": [
            {"type": "string", "pattern": f"^(0[xX])?[0-9a-fA-F]{{1,{digits}}}$"},
            {"type": "integer", "minimum": -(2**63), "maximum": 2**64 - 1},
            {"type": "null"},
        ]
    }
    reserved = (
        "run",
        "rank",
        "iteration",
        "step",
        "global_step",
        "attempt",
        "microbatch",
        "time",
        "event",
        "v",
    )
    return {
        "propertyNames": {"minLength": 1, "maxLength": MAX_METRIC_NAME_BYTES, "pattern": _NO_CONTROLS},
        "properties": dict.fromkeys(reserved, True),
        "patternProperties": {r"^[^/]*_checksum(/.*)?$": checksum},
        "additionalProperties": {
            "type": ["number", "boolean", "string", "null"],
            "maxLength": MAX_LABEL_BYTES,
            "description": 'A metric; "NaN", "Infinity" and "-Infinity" are numbers, other text is a label.',
        },
    }


def _iteration_of(keys: Sequence[str]) -> Schema:
    """The first of ``keys`` that is not null is the iteration."""
    first, *others = keys
    taken: Schema = {"required": [first], "properties": {first: _ITERATION}}
    if not others:
        return taken
    return {"if": _has(first), "then": taken, "else": _iteration_of(others)}


def _has(key: str) -> Schema:
    return {"required": [key], "properties": {key: {"not": {"type": "null"}}}}


def _or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def _ref(*path: str) -> Schema:
    return {"$ref": "#/" + "/".join(path)}


def _written(document: Schema) -> str:
    return json.dumps(document, indent=2) + "\n"


DOCUMENTS = {"wire.schema.json": line_schema, "asyncapi.json": asyncapi}
"""What is written by name."""


def main(folder: Path) -> None:
    """Write the documents into ``folder``."""
    for name, make in DOCUMENTS.items():
        (folder / name).write_text(_written(make()), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
