"""HEAD, OPTIONS, entity tags and rates: what holds of every address alike."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from service.access import create_token
from service.api.rates import Buckets
from service.api.settings import ApiConfig

from .api_builders import Seeded, seeded, served
from .history_builders import noise, write
from .service_builders import an_incident

ARROW = {"Accept": "application/vnd.apache.arrow.stream"}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Seeded]:
    history = tmp_path / "history"
    with seeded(tmp_path, history_folder=history) as one:
        one.put("run", an_incident())
        write(history, noise(20))
        yield one


def addresses(api: Seeded) -> list[str]:
    run = "/v1/runs/" + api.client().get("/v1/runs").json()["items"][0]["run_id"]
    answers = ["/v1/runs", run, f"{run}/verdict", f"{run}/events", "/v1/incidents", "/v1/incidents/a1"]
    return [*answers, f"{run}/curves?metric=loss", f"{run}/matrix?metric=loss", "/healthz", "/openapi.json"]


def test_head_is_get_without_a_body(api: Seeded) -> None:
    client = api.client()
    for path in addresses(api):
        got, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (got.status_code, b"")
        for name in ("content-type", "content-length", "etag"):
            assert head.headers[name] == got.headers[name], (path, name)
    assert client.head("/nowhere").status_code == 404
    assert client.head("/v1/runs?lable=nan").status_code == 422


def test_head_over_a_real_server_ends_even_for_a_stream(api: Seeded) -> None:
    with served(api.app) as (port, _), httpx2.Client(base_url=f"http://127.0.0.1:{port}") as client:
        stream = client.head("/v1/stream")
        assert stream.headers["content-type"].startswith("text/event-stream")
        assert client.head("/v1/runs").headers["content-length"] == str(len(client.get("/v1/runs").content))
    assert api.app.state.hub.open_streams == 0


def test_options_names_the_methods_of_an_address(api: Seeded) -> None:
    client = api.client()
    assert client.options("/v1/runs").headers["allow"] == "GET, HEAD, OPTIONS"
    assert client.options("/v1/incidents/a1/state").headers["allow"] == "OPTIONS, POST"
    assert (client.options("/v1/runs").status_code, client.options("/nowhere").status_code) == (204, 404)
    for method in ("GET", "HEAD", "DELETE"):
        refused = client.request(method, "/v1/incidents/a1/state")
        assert (refused.status_code, refused.headers["allow"]) == (405, "OPTIONS, POST")
    assert client.options("/v1/runs", headers={"Origin": "https://evil.org"}).status_code == 403


def test_every_whole_answer_has_a_strong_tag_and_is_not_sent_again(api: Seeded) -> None:
    client = api.client()
    for path in addresses(api):
        if path.startswith("/v1/runs/") and "?" in path:
            assert client.get(path).headers["vary"] == "Accept"
        first = client.get(path)
        tag = first.headers["etag"]
        assert tag.startswith('"')
        again = client.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert client.get(path, headers={"If-None-Match": '"other"'}).content == first.content


def test_a_tag_is_of_one_form_of_an_answer(api: Seeded) -> None:
    client, path = api.client(), next(one for one in addresses(api) if "curves" in one)
    as_json, as_arrow = client.get(path), client.get(path, headers=ARROW)
    assert as_json.headers["etag"] != as_arrow.headers["etag"]
    tag = as_arrow.headers["etag"]
    assert client.get(path, headers={**ARROW, "If-None-Match": tag}).status_code == 304
    assert client.get(path, headers={"If-None-Match": tag}).status_code == 200


def test_another_verdict_has_another_tag(api: Seeded) -> None:
    client = api.client()
    before = client.get("/v1/runs").headers["etag"]
    api.put("run", an_incident(certainty="suspected"))
    assert client.get("/v1/runs", headers={"If-None-Match": before}).status_code == 200


def test_who_asks_too_often_is_told_how_long_to_wait(tmp_path: Path) -> None:
    with seeded(tmp_path, ApiConfig(requests_per_second=0.5, request_burst=2)) as api:
        client = api.client()
        statuses = [client.get("/v1/runs").status_code for _ in range(3)]
        refused = client.get("/v1/incidents")
        assert statuses == [200, 200, 429]
        assert refused.json()["type"] == "urn:firstfault:problem:too-many-requests"
        assert 1 <= int(refused.headers["retry-after"]) <= 2
        assert [client.get(path).status_code for path in ("/healthz", "/readyz")] == [200, 200]


def test_each_token_has_a_rate_of_its_own(tmp_path: Path) -> None:
    with seeded(tmp_path, ApiConfig(requests_per_second=0.1, request_burst=1)) as api:
        with api.store.database.write() as db:
            first, second = (create_token(db, name, ("read",), time.time()) for name in ("one", "two"))
        assert api.client(token=first).get("/v1/runs").status_code == 200
        assert api.client(token=first).get("/v1/runs").status_code == 429
        assert api.client(token=second).get("/v1/runs").status_code == 200


def test_buckets_are_bounded_and_fill_up_again() -> None:
    buckets = Buckets(per_second=1.0, burst=3.0)
    assert [buckets.take("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 1.0]
    assert [buckets.take("a", 100.0) for _ in range(4)] == [0.0, 0.0, 0.0, 1.0]
    for asker in range(10_000):
        buckets.take(str(asker), 100.0)
    assert len(buckets._held) == 4096
