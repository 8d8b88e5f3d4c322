"""The page about the wire is true: its examples run, its schemas say what the decoder does."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.telemetry import EventKind
from firstfault.wire import interpret
from firstfault.wire_schema import DOCUMENTS, EXAMPLES, asyncapi, line_schema
from service.intake_models import operation
from service.kafka_jars import BrokerUnavailable, find_java, kafka_jars
from service.local_kafka import LocalKafka

from .conftest import NewTopic
from .kafka_builders import a_source, read_until
from .probe_builders import Service

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "wire.md").read_text(encoding="utf-8")
VALIDATOR = jsonschema.Draft202012Validator(line_schema())


def blocks(language: str) -> list[str]:
    """The examples of the page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def is_understood(line: object) -> bool:
    """Whether the decoder takes the line and every value in it."""
    found = interpret(line)
    return found.result is not None and not found.rejections


def test_the_documents_are_those_that_the_code_makes() -> None:
    for name, make in DOCUMENTS.items():
        assert json.loads((DOCS / name).read_text(encoding="utf-8")) == make(), (
            f"{name} is old, see docs/wire.md"
        )


def test_every_line_of_the_page_is_understood_and_valid() -> None:
    lines = [json.loads(line) for block in blocks("json") for line in block.splitlines()]
    assert len(lines) == 4
    for line in [*lines, *EXAMPLES]:
        assert is_understood(line)
        VALIDATOR.validate(line)


def test_every_event_is_on_the_page() -> None:
    assert [kind.value for kind in EventKind if f"`{kind.value}`" not in PAGE] == []


NUMBERS = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = (
    st.none() | st.booleans() | NUMBERS | st.sampled_from(["NaN", "-Infinity", "a", "x" * 2000, "", "00ff"])
)
ANY = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.just("a"), SCALARS)
WHOLE: st.SearchStrategy[Any] = st.sampled_from(
    [0, 1, 3.0, -1, 1.5, 2**20 - 1, 2**20, 2**31, 2**53 - 1, 2**53, True, "1", None, []]
)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "rank": WHOLE,
    "iteration": WHOLE,
    "step": WHOLE,
    "global_step": WHOLE,
    "attempt": WHOLE,
    "microbatch": WHOLE,
    "time": SCALARS,
    "run": st.sampled_from(["r", "a/b", "é", "", "x" * 257, "a\nb", None, 7]),
    "event": st.sampled_from([None, "run_end", "heartbeat", "no such", 3]),
    "v": st.sampled_from([None, 1, 2, "1", True]),
    "loss": ANY,
    "grad_norm/layer 3": ANY,
    "x" * 257: st.just(1.0),
    "a\tb": st.just(1.0),
    # a whole number written as 2.0 is an integer to JSON Schema, and no checksum
    "param_checksum/expert": SCALARS.filter(lambda value: not isinstance(value, float)),
}


@st.composite
def some_lines(draw: st.DrawFn) -> dict[str, Any]:
    """Lines that are good but for a few keys."""
    odd = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=3, unique=True))
    line: dict[str, Any] = {"run": "r", "rank": 0, "iteration": 4, "loss": 1.0}
    line.update({key: draw(FIELDS[key]) for key in odd})
    for key in draw(st.lists(st.sampled_from(sorted(line)), max_size=1)):
        del line[key]
    return line


@settings(max_examples=150)  # each is judged twice
@given(some_lines())
def test_the_schema_accepts_what_the_decoder_accepts(line: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid(line) == is_understood(line)


def test_the_schema_of_the_api_has_the_same_bounds() -> None:
    body = operation()["openapi_extra"]["requestBody"]["content"]["application/json"]["schema"]
    ours = line_schema()["properties"]
    for key in ("rank", "attempt", "microbatch"):
        for bound in ("minimum", "maximum"):
            assert body["properties"][key][bound] == ours[key][bound]
    assert [None, *body["properties"]["event"]["enum"]] == ours["event"]["enum"]
    assert is_understood(body["example"])


def references(value: object) -> Iterator[str]:
    """Every reference of a document."""
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


# the shape that AsyncAPI 3.0 asks of the objects used here; its own schema is not part of this project
MESSAGE = {
    "type": "object",
    "required": ["payload", "contentType"],
    "properties": {"payload": {"type": "object"}},
}
SHAPE = {
    "required": ["asyncapi", "info", "channels", "operations", "components"],
    "additionalProperties": False,
    "properties": {
        "asyncapi": {"const": "3.0.0"},
        "info": {"required": ["title", "version"], "properties": {"version": {"type": "string"}}},
        "defaultContentType": {"type": "string"},
        "servers": {"additionalProperties": {"required": ["host", "protocol"]}},
        "channels": {"additionalProperties": {"required": ["address", "messages"]}},
        "operations": {
            "additionalProperties": {
                "required": ["action", "channel"],
                "properties": {
                    "action": {"enum": ["send", "receive"]},
                    "channel": {"required": ["$ref"]},
                },
            }
        },
        "components": {"properties": {"messages": {"additionalProperties": MESSAGE}}},
    },
}


def test_the_asyncapi_document_is_one() -> None:
    document = asyncapi()
    jsonschema.Draft202012Validator(SHAPE).validate(document)
    jsonschema.Draft202012Validator.check_schema(line_schema())
    found = [one for one in references(document) if one.startswith("#/")]
    assert len(found) >= 3
    for reference in found:
        place: Any = document
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def run_example(command: list[str], environ: dict[str, str], text: str | None = None) -> str:
    """What an example prints."""
    env = {**os.environ, **environ}
    ran = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=240, check=False, env=env
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def needed(program: str) -> str:
    """Where ``program`` is."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program} on the search path")
    return path


def by_kcat(environ: dict[str, str], _: Path) -> None:
    needed("kcat")
    run_example(["sh", "-c", blocks("sh")[0]], environ)


def by_python(environ: dict[str, str], _: Path) -> None:
    run_example([sys.executable, "-W", "ignore", "-c", blocks("python")[0]], environ)


def by_go(environ: dict[str, str], folder: Path) -> None:
    go, kcat = needed("go"), needed("kcat")
    (folder / "telemetry.go").write_text(blocks("go")[0], encoding="utf-8")
    printed = run_example([go, "run", str(folder / "telemetry.go")], environ)
    run_example(
        [kcat, "-P", "-b", environ["BROKER"], "-t", environ["TOPIC"], "-k", "llama-7b"], environ, printed
    )


def by_java(environ: dict[str, str], folder: Path) -> None:
    try:
        java, jars = find_java(), kafka_jars()
    except BrokerUnavailable as error:
        pytest.skip(str(error))
    source = folder / "Telemetry.java"
    source.write_text(blocks("java")[0], encoding="utf-8")
    run_example([java, "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*", str(source)], environ)


@pytest.mark.kafka
@pytest.mark.parametrize("send", [by_kcat, by_python, by_go, by_java])
def test_an_example_is_read_by_the_service(
    send: Any, broker: LocalKafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(1)
    send({"BROKER": broker.address, "TOPIC": topic}, tmp_path)
    source = a_source(broker.address, topic)
    batches = read_until(source, lambda came: sum(map(len, came)) >= 1)
    source.close()
    (batch,) = [one for one in batches if len(one)]
    assert (batch.runs, batch.rejected) == (("llama-7b",), ())
    assert (batch.rank_N.tolist(), batch.iteration_N.tolist()) == ([0], [1])
    assert math.isnan(batch.numbers["loss"].values_N[0])
    assert batch.numbers["loss"].present_N[0]


def test_the_example_over_http_is_taken() -> None:
    needed("curl")
    with Service() as service:
        run_example(["sh", "-c", blocks("sh")[1]], {"URL": service.url})
    ((headers, _),) = service.bodies
    assert headers["Content-Type"] == "application/x-ndjson"
    (line,) = service.lines()
    assert is_understood(line)
    assert line["loss"] == "NaN"
