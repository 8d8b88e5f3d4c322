"""Incidents over HTTP: lists, one incident, and what people make of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.store_config import StoreConfig

from .api_builders import Json, Seeded, seeded
from .service_builders import an_incident


@pytest.fixture
def api(tmp_path: Path, store_config: StoreConfig) -> Iterator[Seeded]:
    with seeded(tmp_path, store_config=store_config) as one:
        yield one


def ids(client: TestClient, **filters: Any) -> list[str]:
    return [one["id"] for one in client.get("/v1/incidents", params=filters).json()["items"]]


def set_state(client: TestClient, incident: str, tag: str | None = None, **change: Any) -> Any:
    headers = {} if tag is None else {"If-Match": tag}
    return client.post(f"/v1/incidents/{incident}/state", json=change, headers=headers)


def of_rank(incident_id: str, rank: int, host: str | None, **changes: Any) -> Json:
    suspects = [{"rank": rank, "host": host, "device": None, "why": "it differs"}]
    return an_incident(id=incident_id, first={"ranks": [rank], "suspects": suspects}, **changes)


def test_incidents_are_found_by_what_they_are_about(api: Seeded) -> None:
    api.put("one", of_rank("a1", 3, "node-07"), of_rank("a2", 4, "node-08", certainty="suspected"))
    api.put("two", of_rank("b1", 3, None, label="nan", severity="warning"))
    client = api.client()
    assert ids(client) == ["b1", "a2", "a1"]
    assert ids(client, run="one") == ["a2", "a1"]
    assert ids(client, label="nan") == ["b1"]
    assert ids(client, certainty="confirmed") == ["b1", "a1"]
    assert ids(client, severity="warning") == ["b1"]
    assert ids(client, rank=3) == ["b1", "a1"]
    assert ids(client, host="node-08") == ["a2"]
    assert ids(client, rank=3, host="node-08") == []
    assert ids(client, state="resolved") == []


def test_since_counts_from_the_last_change(api: Seeded) -> None:
    api.put("one", an_incident(id="a1"))
    between = datetime.now(UTC)
    api.put("two", an_incident(id="b1"))
    client = api.client()
    assert ids(client, since=between.isoformat()) == ["b1"]
    set_state(client, "a1", state="acknowledged")
    assert ids(client, since=between.isoformat()) == ["b1", "a1"]
    without_zone = client.get("/v1/incidents", params={"since": "2026-01-01T00:00:00"})
    assert without_zone.status_code == 422


def test_an_incident_that_was_explained_away_is_shown_by_its_id_alone(api: Seeded) -> None:
    api.put("one", an_incident(id="a1"))
    api.put("one")
    client = api.client()
    assert ids(client) == []
    assert client.get("/v1/incidents/a1").json()["is_withdrawn"] is True


def test_incidents_are_paged_and_later_ones_move_nothing(api: Seeded) -> None:
    api.put("one", *(an_incident(id=f"a{number}") for number in range(5)))
    client = api.client()
    page = client.get("/v1/incidents?limit=2").json()
    api.put("two", an_incident(id="b1"))
    seen = [one["id"] for one in page["items"]]
    while page["next"] is not None:
        page = client.get("/v1/incidents", params={"limit": 2, "cursor": page["next"]}).json()
        seen += [one["id"] for one in page["items"]]
    assert seen == ["a4", "a3", "a2", "a1", "a0"]


def test_an_incident_says_who_where_and_since_when(api: Seeded) -> None:
    api.put("llama", an_incident())
    incident = api.client().get("/v1/incidents/a1").json()
    assert incident["sentence"].startswith("Rank 3 (host node-07) holds other parameters")
    assert incident["first"]["hosts"] == ["node-07"]
    assert incident["first"]["interval"] == [1190, 1200]
    assert incident["incident"]["advice"][0]["command"] == "cordon node-07"


def test_the_sentence_about_all_ranks_knows_how_many_there_are(api: Seeded) -> None:
    everywhere = {"ranks": [], "rank_count": 8, "scope": "all", "suspects": []}
    api.put("llama", an_incident(pattern="immediate_nonfinite", first=everywhere))
    assert api.client().get("/v1/incidents/a1").json()["sentence"].startswith("All 8 ranks")
    assert api.client().get("/v1/incidents").json()["items"][0]["sentence"].startswith("All 8 ranks")


def test_a_decision_is_stored_with_its_note_and_told_in_the_stream(api: Seeded) -> None:
    run_id = api.put("llama", an_incident())
    client = api.client()
    before = client.get("/v1/incidents/a1")
    answer = set_state(client, "a1", before.headers["etag"], state="acknowledged", note="looking <b>now</b>")
    assert answer.status_code == 200
    assert answer.json()["state"] == "acknowledged"
    assert answer.json()["revision"] == before.json()["revision"] + 1
    after = client.get("/v1/incidents/a1")
    assert (after.content, after.headers["etag"]) == (answer.content, answer.headers["etag"])
    (entry,) = after.json()["log"]
    assert (entry["who"], entry["state"], entry["note"]) == ("local", "acknowledged", "looking <b>now</b>")
    told = client.get(f"/v1/runs/{run_id}/events?kind=change").json()["items"][-1]
    assert (told["name"], told["incident_id"], told["detail"]["state"]) == ("state", "a1", "acknowledged")


def test_of_two_people_with_the_same_view_the_second_is_told(api: Seeded) -> None:
    api.put("llama", an_incident())
    client = api.client()
    tag = client.get("/v1/incidents/a1").headers["etag"]
    assert set_state(client, "a1", tag, state="resolved").status_code == 200
    late = set_state(client, "a1", tag, state="false_alarm", note="a test")
    assert (late.status_code, late.json()["type"]) == (412, "urn:firstfault:problem:changed")
    incident = client.get("/v1/incidents/a1").json()
    assert (incident["state"], len(incident["log"])) == ("resolved", 1)
    assert late.headers["etag"] == client.get("/v1/incidents/a1").headers["etag"]


def test_new_evidence_makes_an_older_view_stale_but_keeps_the_decision(api: Seeded) -> None:
    api.put("llama", an_incident())
    client = api.client()
    set_state(client, "a1", state="acknowledged")
    tag = client.get("/v1/incidents/a1").headers["etag"]
    api.put("llama", an_incident(severity="warning"))
    assert set_state(client, "a1", tag, state="resolved").status_code == 412
    assert client.get("/v1/incidents/a1").json()["state"] == "acknowledged"


def test_an_incident_that_the_client_has_is_not_sent_again(api: Seeded) -> None:
    api.put("llama", an_incident())
    client = api.client()
    tag = client.get("/v1/incidents/a1").headers["etag"]
    again = client.get("/v1/incidents/a1", headers={"If-None-Match": tag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    set_state(client, "a1", state="acknowledged")
    assert client.get("/v1/incidents/a1", headers={"If-None-Match": tag}).status_code == 200


def test_a_star_matches_any_view_and_a_weak_tag_none(api: Seeded) -> None:
    api.put("llama", an_incident())
    client = api.client()
    tag = client.get("/v1/incidents/a1").headers["etag"]
    assert set_state(client, "a1", f"W/{tag}", state="resolved").status_code == 412
    assert set_state(client, "a1", "*", state="resolved").status_code == 200


def test_a_mute_ends_by_itself(api: Seeded) -> None:
    api.put("llama", an_incident())
    client = api.client()
    until = datetime.now(UTC) + timedelta(hours=1)
    muted = set_state(client, "a1", state="muted", note="known", muted_until=until.isoformat())
    assert (muted.status_code, muted.json()["state"]) == (200, "muted")
    assert ids(client, state="muted") == ["a1"]
    assert client.get("/v1/runs").json()["items"][0]["open_incidents"] == 0
    api.shift_s = 3601.0
    over = client.get("/v1/incidents/a1")
    assert (over.json()["state"], over.json()["muted_until"]) == ("open", None)
    assert (ids(client, state="muted"), ids(client, state="open")) == ([], ["a1"])
    assert client.get("/v1/runs").json()["items"][0]["open_incidents"] == 1
    assert over.headers["etag"] != muted.headers["etag"]


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"state": "closed"}, "#/state"),
        ({}, "#/state"),
        ({"state": "open", "notes": "x"}, "#/notes"),
        ({"state": "open", "note": "x" * 2001}, "#/note"),
        ({"state": "muted", "note": "why"}, "#"),
        ({"state": "muted", "muted_until": "2999-01-01T00:00:00Z"}, "#"),
        ({"state": "muted", "note": "why", "muted_until": "2001-01-01T00:00:00Z"}, "#/muted_until"),
        ({"state": "muted", "note": "why", "muted_until": "2999-01-01T00:00:00Z"}, "#/muted_until"),
        ({"state": "muted", "note": "why", "muted_until": "2999-01-01T00:00:00"}, "#/muted_until"),
        ({"state": "open", "muted_until": "2999-01-01T00:00:00Z"}, "#"),
    ],
)
def test_a_decision_that_cannot_be_is_refused_and_changes_nothing(
    api: Seeded, change: Json, pointer: str
) -> None:
    api.put("llama", an_incident())
    answer = set_state(api.client(), "a1", **change)
    assert answer.status_code == 422
    assert [one["pointer"] for one in answer.json()["errors"]] == [pointer]
    assert api.client().get("/v1/incidents/a1").json()["log"] == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"state": NaN}', b'{"state": "\\ud800"}'])
def test_a_body_that_is_no_decision_is_a_problem(api: Seeded, body: bytes) -> None:
    api.put("llama", an_incident())
    headers = {"Content-Type": "application/json"}
    answer = api.client().post("/v1/incidents/a1/state", content=body, headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_body_that_is_too_large_is_refused_whatever_it_declares(api: Seeded) -> None:
    client = api.client()
    declared = client.post("/v1/incidents/a1/state", content=b"x" * 70_000)
    undeclared = client.post("/v1/incidents/a1/state", content=iter([b"x" * 40_000] * 2))
    assert [one.status_code for one in (declared, undeclared)] == [413, 413]
    assert all(one.headers["content-type"] == "application/problem+json" for one in (declared, undeclared))


def test_a_head_that_is_too_large_is_refused(api: Seeded) -> None:
    client = api.client()
    address = client.get("/v1/runs", params={"run": "x" * 17_000})
    header = client.get("/v1/runs", headers={"X-Odd": "x" * 33_000})
    assert [address.status_code, header.status_code] == [414, 431]
    assert all(one.headers["content-type"] == "application/problem+json" for one in (address, header))


@pytest.mark.parametrize("odd", ["%00", "%ff", "a%2Fb", "..%2F..", "%F0%9F%9A%80", "a" * 65])
def test_what_cannot_be_an_id_is_refused_before_anything_is_asked(api: Seeded, odd: str) -> None:
    for path in (f"/v1/runs/{odd}", f"/v1/incidents/{odd}", f"/v1/runs/{odd}/verdict"):
        assert api.client().get(path).status_code in (404, 422)


def test_a_decision_about_no_incident_is_a_problem_and_leaves_no_trace(api: Seeded) -> None:
    run_id = api.put("llama", an_incident())
    assert set_state(api.client(), "zz", state="resolved").status_code == 404
    changes = api.client().get(f"/v1/runs/{run_id}/events?kind=change").json()["items"]
    assert "state" not in {one["name"] for one in changes}


def test_a_route_says_which_methods_it_has(api: Seeded) -> None:
    answer = api.client().delete("/v1/incidents/a1")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert answer.headers["content-type"] == "application/problem+json"
