"""The OpenAPI document is true: its examples are real answers, and every answer keeps to its schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.openapi import examples

from .api_builders import Json, Seeded, an_odd_incident, seeded
from .api_examples import EXAMPLES, as_text, make_examples
from .history_builders import noise, write
from .service_builders import an_incident


class Local:
    """The application as a program on this machine reaches it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve as if asked at 127.0.0.1."""
        if scope["type"] == "http":
            others = [one for one in scope["headers"] if one[0] != b"host"]
            scope = {**scope, "client": ("127.0.0.1", 1), "headers": [*others, (b"host", b"127.0.0.1")]}
        await self._app(scope, receive, send)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seeded]:
    data_dir = tmp_path_factory.mktemp("api")
    with seeded(data_dir, history_folder=data_dir / "history") as one:
        one.put("run", an_odd_incident("a1"), an_incident(id="a2"))
        one.put("a/b <i>", an_incident(id="b1"))
        write(data_dir / "history", noise(50))
        # a stream has no end to wait for: as the service is about to stop, none begins
        one.app.state.hub.close()
        yield one


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_whatever_is_asked_the_answer_keeps_to_the_document(api: Seeded, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_asgi("/openapi.json", Local(api.app))
    operations = [one.ok() for one in schema.get_all_operations() if isinstance(one, Ok)]
    assert len(operations) >= 13
    for operation in operations:
        takes_something = operation.definition.raw.get("parameters") or operation.method == "post"
        if takes_something or mode is GenerationMode.POSITIVE:
            _check(operation, mode)


def _check(operation: Any, mode: GenerationMode) -> None:
    # no schema can say that a mute ends in the future; and streams are told that the service stops
    exceptions = {"post": [positive_data_acceptance], "/v1/stream": [not_a_server_error]}
    excluded = exceptions.get(operation.method) or exceptions.get(operation.path) or []

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    def keeps_to_the_document(case: Any) -> None:
        if case.query and mode is GenerationMode.POSITIVE:
            case.query.pop("cursor", None)  # opaque: only one that was given out is right
        case.call_and_validate(excluded_checks=excluded)

    keeps_to_the_document()


@pytest.fixture(scope="module")
def document(api: Seeded) -> Json:
    found: Json = api.client().get("/openapi.json").json()
    return found


def test_the_examples_are_what_the_application_answers(tmp_path: Path) -> None:
    verdict = examples()["GET /v1/runs/{run_id}/verdict"]["200"]["verdict"]
    answered = as_text(make_examples(tmp_path, verdict))
    assert answered == EXAMPLES.read_text(encoding="utf-8"), "write them anew: python -m tests.api_examples"


def test_every_example_keeps_to_its_schema(document: Json) -> None:
    shown = 0
    for path, item in document["paths"].items():
        for method, operation in item.items():
            for status, response in operation["responses"].items():
                for media_type, content in response.get("content", {}).items():
                    if "example" in content:
                        validate(content["example"], content["schema"], document)
                        shown += 1
                    elif "arrow" not in media_type:  # whose bytes JSON cannot show
                        assert status != "200" or path in ("/metrics",), f"{method} {path} has no example"
    assert shown >= sum(len(statuses) for statuses in examples().values())


def test_every_operation_names_its_problems_and_the_scope_it_needs(document: Json) -> None:
    for path, item in document["paths"].items():
        for operation in item.values():
            problems = {status for status in operation["responses"] if status >= "400"}
            if path in ("/healthz", "/readyz"):
                continue
            assert {"401", "403", "422", "429", "503"} <= problems
            (needed,) = operation["security"][0]["token"]
            assert needed in ("read", "write", "ingest")


def test_real_answers_keep_to_the_document_numbers_that_are_none_included(
    api: Seeded, document: Json
) -> None:
    client = api.client()
    run_id = client.get("/v1/runs?run=run").json()["items"][0]["run_id"]
    for template, query in (
        ("/v1/runs", ""),
        ("/v1/runs/{run_id}", ""),
        ("/v1/runs/{run_id}/events", ""),
        ("/v1/runs/{run_id}/curves", "?metric=loss"),
        ("/v1/runs/{run_id}/matrix", "?metric=loss"),
        ("/v1/runs/{run_id}/matrix", "?metric=param_checksum"),
        ("/v1/incidents", ""),
    ):
        answer = client.get(template.format(run_id=run_id) + query)
        response = document["paths"][template]["get"]["responses"]["200"]
        validate(answer.json(), response["content"]["application/json"]["schema"], document)
        json.loads(answer.content, parse_constant=_refuse)


def validate(value: Any, rule: Json, document: Json) -> None:
    """Hold a value against a schema of the document."""
    whole = {**rule, "components": document["components"]}
    jsonschema.Draft202012Validator(whole).validate(value)


def _refuse(token: str) -> Any:
    raise AssertionError(f"{token} is no JSON")
