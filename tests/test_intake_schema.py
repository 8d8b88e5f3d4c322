"""`POST /v1/telemetry` inside the whole application keeps to the OpenAPI document, whatever is sent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance
from starlette.testclient import TestClient

from service.api.app import make_app
from service.database import Database
from service.intake import make_intake_router
from service.intake_config import IntakeConfig
from service.migrations import migrate

from .intake_builders import JSON, NDJSON, ListSink, lines, post, record
from .test_api_schema import Local


@pytest.fixture
def app(tmp_path: Path) -> Iterator[FastAPI]:
    database = Database(tmp_path)
    migrate(database)
    yield make_app(database, routers=[make_intake_router(ListSink(), IntakeConfig())])
    database.close()


def on_loopback(app: FastAPI) -> TestClient:
    return TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1))


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_whatever_is_sent_the_answer_keeps_to_the_document(app: FastAPI, mode: GenerationMode) -> None:
    @schemathesis.serializer("application/x-ndjson", "application/vnd.apache.arrow.stream")
    def as_it_is(ctx: Any, value: Any) -> bytes:
        return value.encode() if isinstance(value, str) else json.dumps(value).encode()

    schema = schemathesis.openapi.from_asgi("/openapi.json", Local(app))
    found = [one.ok() for one in schema.get_all_operations() if isinstance(one, Ok)]
    (operation,) = [one for one in found if one.path == "/v1/telemetry"]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=25, suppress_health_check=list(HealthCheck))
    def keeps_to_the_document(case: Any) -> None:
        # a bad element is rejected alone; any text may be lines, and no schema tells which are records
        excluded = [negative_data_rejection]
        excluded += [] if case.media_type == JSON else [positive_data_acceptance]
        case.call_and_validate(excluded_checks=excluded)

    keeps_to_the_document()


def test_a_problem_of_a_body_has_the_request_id_of_the_frame(app: FastAPI) -> None:
    client = on_loopback(app)
    reply = post(client, b"no json", NDJSON, {"x-request-id": "mine-7"})
    assert (reply.status_code, reply.json()["instance"]) == (422, "urn:firstfault:request:mine-7")
    assert reply.headers["x-request-id"] == "mine-7"
    assert post(client, lines(record(0)), NDJSON).status_code == 202


def test_a_page_of_another_site_cannot_send_telemetry(app: FastAPI) -> None:
    client = on_loopback(app)
    for headers in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
        assert post(client, lines(record(0)), NDJSON, headers).status_code == 403
