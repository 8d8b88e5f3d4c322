"""Who may ask: loopback alone without tokens, whoever has one with them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.access import create_token, forget_tokens, list_tokens, revoke_token
from service.api.settings import ApiConfig
from service.errors import ConfigError
from service.store_config import StoreConfig

from .api_builders import Seeded, seeded
from .service_builders import an_incident

EVERYTHING = ("/v1/runs", "/v1/stream", "/metrics", "/openapi.json", "/nowhere")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Seeded]:
    with seeded(tmp_path, ApiConfig(host_names=("faults.example.org",), failed_tokens_per_minute=3)) as one:
        yield one


def make_token(api: Seeded, *scopes: str, lifetime_s: float | None = None, name: str = "someone") -> str:
    with api.store.database.write() as db:
        return create_token(db, name, scopes or ("read",), time.time(), lifetime_s)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]:8000", "faults.example.org"]
)
def test_the_names_of_this_machine_are_answered(api: Seeded, host: str) -> None:
    assert api.client().get("/v1/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", EVERYTHING)
def test_a_foreign_name_for_loopback_is_refused(api: Seeded, path: str) -> None:
    client = api.client()
    for host in ("evil.org", "localhost.evil.org", "10.0.0.1", "127.0.0.1.evil.org", "", "[", "a@b"):
        answer = client.get(path, headers={"Host": host})
        assert answer.status_code == 403
        assert answer.json()["type"] == "urn:firstfault:problem:foreign-request"


@pytest.mark.parametrize("path", EVERYTHING)
def test_a_page_of_another_site_is_refused(api: Seeded, path: str) -> None:
    client = api.client()
    for headers in (
        {"Origin": "https://evil.org"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ):
        assert client.get(path, headers=headers).status_code == 403


def test_our_own_pages_and_links_that_people_follow_are_answered(api: Seeded) -> None:
    client = api.client()
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for headers in ({"Origin": "http://127.0.0.1:8000"}, {"Sec-Fetch-Site": "same-origin"}, link):
        assert client.get("/v1/runs", headers=headers).status_code == 200
    assert client.post("/v1/incidents/a1/state", json={"state": "open"}, headers=link).status_code == 403


def test_another_machine_is_refused_while_there_is_no_token(api: Seeded) -> None:
    answer = api.client(address="10.0.0.9").get("/v1/runs")
    assert answer.status_code == 403
    assert "firstfault token create" in answer.json()["detail"]


def test_with_tokens_every_machine_is_served_that_has_one(api: Seeded) -> None:
    token = make_token(api)
    far = api.client("http://faults.example.org", address="10.0.0.9", token=token)
    assert far.get("/v1/runs").status_code == 200
    assert far.get("/metrics").status_code == 200


@pytest.mark.parametrize("path", EVERYTHING)
def test_with_tokens_nobody_is_served_without_one_loopback_included(api: Seeded, path: str) -> None:
    make_token(api)
    answer = api.client().get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    assert answer.headers["www-authenticate"] == 'Bearer realm="firstfault"'


def test_a_scope_opens_what_it_names_and_nothing_else(api: Seeded) -> None:
    api.put("llama", an_incident())
    change = {"state": "acknowledged"}
    read = api.client(token=make_token(api, "read"))
    write = api.client(token=make_token(api, "write", name="on-call"))
    ingest = api.client(token=make_token(api, "ingest"))
    assert [one.get("/v1/incidents/a1").status_code for one in (read, write, ingest)] == [200, 403, 403]
    posted = [one.post("/v1/incidents/a1/state", json=change).status_code for one in (read, write, ingest)]
    assert posted == [403, 200, 403]
    refused = ingest.get("/v1/runs")
    assert refused.headers["www-authenticate"] == 'Bearer error="insufficient_scope", scope="read"'
    assert [one.post("/v1/telemetry").status_code for one in (read, write)] == [403, 403]
    assert read.get("/v1/incidents/a1").json()["log"][0]["who"] == "on-call"


def test_tokens_that_are_wrong_expired_or_revoked_are_refused(tmp_path: Path) -> None:
    with seeded(tmp_path) as api:
        good, short = make_token(api), make_token(api, lifetime_s=60.0)
        assert api.client(token=short).get("/v1/runs").status_code == 200
        api.shift_s = 61.0
        wrong = (short, good[:-1] + ("A" if good[-1] != "A" else "B"), good[3:], "ff_", good + "=", "é" * 46)
        for token in wrong:
            answer = api.client().get("/v1/runs", headers=[(b"authorization", b"Bearer " + token.encode())])
            assert answer.status_code == 401, token
            assert 'error="invalid_token"' in answer.headers["www-authenticate"]
            assert token not in answer.text
        with api.store.database.write() as db:
            assert len(revoke_token(db, good[:11], api.now())) == 1
        assert api.client(token=good).get("/v1/runs").status_code == 401


def test_a_service_whose_last_token_is_revoked_does_not_open_itself(api: Seeded) -> None:
    token = make_token(api)
    with api.store.database.write() as db:
        revoke_token(db, token[:11], time.time())
    assert api.client().get("/v1/runs").status_code == 401
    with api.store.database.write() as db:
        forget_tokens(db)
    assert api.client().get("/v1/runs").status_code == 200


def test_an_address_with_many_wrong_tokens_is_told_to_wait_and_others_are_not(api: Seeded) -> None:
    good = make_token(api)
    guessing = api.client(token="ff_" + "x" * 43)
    assert [guessing.get("/v1/runs").status_code for _ in range(4)] == [401, 401, 401, 429]
    assert 1 <= int(guessing.get("/v1/runs").headers["retry-after"]) <= 61
    assert api.client(address="10.0.0.8", token="ff_" + "x" * 43).get("/v1/runs").status_code == 401
    assert api.client(token=good).get("/v1/runs").status_code == 200


def test_the_store_holds_no_token_but_its_hash_and_when_it_was_used(api: Seeded) -> None:
    token = make_token(api)
    api.client(token=token).get("/v1/runs")
    assert re.fullmatch(r"ff_[A-Za-z0-9_-]{43}", token)
    with api.store.database.read() as db:
        (listed,) = list_tokens(db)
        stored = b"".join(repr(tuple(row)).encode() for row in db.exec_driver_sql("SELECT * FROM tokens"))
    assert token.encode() not in stored
    assert token.startswith(listed.prefix)
    assert listed.last_used_at is not None


def test_tokens_are_kept_in_each_kind_of_database(tmp_path: Path, store_config: StoreConfig) -> None:
    with seeded(tmp_path, store_config=store_config) as api:
        assert api.client().get("/v1/runs").status_code == 200
        token = make_token(api)
        assert api.client(token=token).get("/v1/runs").status_code == 200
        assert api.client().get("/v1/runs").status_code == 401
        with api.store.database.write() as db:
            assert len(revoke_token(db, token[:11], time.time())) == 1
            assert revoke_token(db, token[:11], time.time()) == []
        assert api.client(token=token).get("/v1/runs").status_code == 401


def test_every_documented_operation_needs_a_token_of_its_scope(api: Seeded) -> None:
    paths = api.client().get("/openapi.json").json()["paths"]
    tokens = {scope: make_token(api, scope) for scope in ("read", "write", "ingest")}
    guarded = [
        (method.upper(), re.sub(r"{[^}]+}", "0", path), operation["security"][0]["token"][0])
        for path, item in paths.items()
        for method, operation in item.items()
        if path not in ("/healthz", "/readyz")
    ]
    assert len(guarded) >= 11
    for method, path, needed in guarded:
        assert api.client().request(method, path).status_code == 401
        for scope, token in tokens.items():
            if scope != needed:
                assert api.client(token=token).request(method, path).status_code == 403


def test_a_token_needs_a_scope_that_exists_and_a_name(api: Seeded) -> None:
    with api.store.database.write() as db:
        for name, scopes in (("a", ("admin",)), ("a", ()), ("", ("read",)), ("a\nb", ("read",))):
            with pytest.raises(ConfigError, match="must be"):
                create_token(db, name, scopes, time.time())


def test_probes_need_no_token_and_are_told_no_names(api: Seeded) -> None:
    token = make_token(api)
    api.store.say_health("worker:node-1:7", {"split_runs": {"secret-run": "x"}})
    assert api.client().get("/healthz").status_code == 200
    blind = api.client(address="10.0.0.9").get("/readyz")
    assert (blind.status_code, blind.json()["reasons"]) == (200, [{"code": "run-split", "detail": None}])
    assert "secret-run" in api.client(token=token).get("/readyz").text


def test_every_answer_protects_the_browser(api: Seeded) -> None:
    for path in ("/healthz", "/v1/runs", "/nowhere", "/openapi.json"):
        headers = api.client().get(path).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe-eval" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
