"""Runs over HTTP: lists, one run, its verdict and its history."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.api.settings import ApiConfig
from service.store_config import StoreConfig

from .api_builders import Seeded, an_odd_incident, canonical, seeded
from .service_builders import a_verdict, an_incident

HOSTILE = (
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "a/b/c?d=e&f#g%2F",
    "'; DROP TABLE runs; --",
    '"quoted" \\ back',
    "\u202eevil\u202c \u2066rtl",
    "{{7*7}} =cmd|' /C calc'!A0",
    "x" * 256,
    "日本語 🚀",
)


@pytest.fixture
def api(tmp_path: Path, store_config: StoreConfig) -> Iterator[Seeded]:
    with seeded(tmp_path, store_config=store_config) as one:
        yield one


def names(api: Seeded, path: str) -> tuple[list[str], str | None]:
    page = api.client().get(path).json()
    return [one["run"] for one in page["items"]], page["next"]


def test_runs_are_listed_newest_first_with_what_is_open(api: Seeded) -> None:
    api.put("first", an_incident())
    api.put("second")
    page = api.client().get("/v1/runs").json()
    assert [(one["run"], one["label"], one["severity"], one["open_incidents"]) for one in page["items"]] == [
        ("second", "healthy", "none", 0),
        ("first", "silent_drift", "critical", 1),
    ]
    assert page["next"] is None


def test_runs_by_severity_begin_with_the_worst(api: Seeded) -> None:
    api.put("bad", an_incident(id="a1"))
    api.put("middling", an_incident(id="a2", severity="warning"))
    api.put("good")
    assert names(api, "/v1/runs?order=severity")[0] == ["bad", "middling", "good"]


def test_a_page_is_not_moved_by_runs_that_come_between(api: Seeded) -> None:
    for number in range(5):
        api.put(f"run-{number}")
    seen, cursor = names(api, "/v1/runs?limit=2")
    api.put("between")
    while cursor is not None:
        more, cursor = names(api, f"/v1/runs?limit=2&cursor={cursor}")
        seen += more
    assert seen == ["run-4", "run-3", "run-2", "run-1", "run-0"]


def test_a_cursor_of_another_order_is_refused(api: Seeded) -> None:
    api.put("a")
    api.put("b")
    _, cursor = names(api, "/v1/runs?limit=1")
    answer = api.client().get(f"/v1/runs?order=severity&cursor={cursor}")
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == "cursor"


@pytest.mark.parametrize(
    "cursor", ["", "x", "W10", "WyJydW5zL25ld2VzdCIsMWU0MDAsImEiXQ", "e30", "é", "A" * 600]
)
def test_what_is_no_cursor_is_refused(api: Seeded, cursor: str) -> None:
    assert api.client().get("/v1/runs", params={"cursor": cursor}).status_code == 422


def test_runs_are_filtered_by_name_label_and_severity(api: Seeded) -> None:
    api.put("team/llama", an_incident())
    api.put("team/llama-2")
    assert names(api, "/v1/runs?run=team%2Fllama")[0] == ["team/llama"]
    assert names(api, "/v1/runs?label=healthy")[0] == ["team/llama-2"]
    assert names(api, "/v1/runs?severity=critical")[0] == ["team/llama"]
    assert names(api, "/v1/runs?run=team%2Fllama&label=healthy")[0] == []


def test_runs_are_found_by_a_part_of_their_name_in_any_case_and_a_wildcard_is_itself(api: Seeded) -> None:
    for name in ("team/Llama-7b", "team/50%_done", "other"):
        api.put(name)
    assert names(api, "/v1/runs?text=llama")[0] == ["team/Llama-7b"]
    assert names(api, "/v1/runs?text=team")[0] == ["team/50%_done", "team/Llama-7b"]
    assert names(api, "/v1/runs?text=%25_")[0] == ["team/50%_done"]
    assert names(api, "/v1/runs?text=_")[0] == ["team/50%_done"]


def test_runs_are_found_by_what_people_made_of_their_incidents(api: Seeded) -> None:
    api.put("seen", an_incident(id="a1"))
    api.put("new", an_incident(id="a2"))
    api.put("doubtful", an_incident(id="a3", certainty="suspected"))
    change = {"state": "acknowledged", "note": "mine"}
    assert api.client().post("/v1/incidents/a1/state", json=change).status_code == 200
    assert names(api, "/v1/runs?state=acknowledged")[0] == ["seen"]
    assert names(api, "/v1/runs?state=open")[0] == ["new"]
    (seen,) = api.client().get("/v1/runs?text=seen").json()["items"]
    assert (seen["incident_states"], seen["open_incidents"]) == ({"acknowledged": 1}, 0)


def test_a_filter_with_a_slip_in_its_name_is_refused_and_named(api: Seeded) -> None:
    problem = api.client().get("/v1/runs?lable=nan&limit=1&limit=2").json()
    assert problem["status"] == 422
    assert {one["parameter"] for one in problem["errors"]} == {"lable", "limit"}
    assert "known: cursor, label, limit, order, run, severity, state, text" in problem["detail"]


def test_a_parameter_that_breaks_a_rule_is_told_with_its_value(api: Seeded) -> None:
    problem = api.client().get("/v1/runs", params={"limit": "-1", "run": "a\nb" + "c" * 300}).json()
    told = {one["parameter"]: one["detail"] for one in problem["errors"]}
    assert told["limit"] == "Input should be greater than or equal to 1, got '-1'"
    assert told["run"].startswith(
        "must be text of 1 to 256 bytes of UTF-8 without control characters, got 'a"
    )
    assert len(told["run"]) < 200 and problem["title"] == "Unprocessable Content"


def test_a_limit_beyond_the_settings_is_refused(tmp_path: Path) -> None:
    with seeded(tmp_path, ApiConfig(max_page_items=10)) as api:
        assert api.client().get("/v1/runs?limit=10").status_code == 200
        assert api.client().get("/v1/runs?limit=11").status_code == 422
        assert api.client().get("/v1/runs").status_code == 200


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_comes_back_as_it_was_and_harms_nothing(api: Seeded, name: str) -> None:
    run_id = api.put(name, an_incident())
    client = api.client()
    answers = [
        client.get("/v1/runs", params={"run": name}),
        client.get(f"/v1/runs/{run_id}"),
        client.get(f"/v1/runs/{run_id}/verdict"),
        client.get("/v1/incidents", params={"run": name}),
    ]
    assert [one.status_code for one in answers] == [200] * 4
    assert all(one.headers["content-type"] == "application/json" for one in answers)
    assert all(one.headers["x-content-type-options"] == "nosniff" for one in answers)
    listed, run, verdict, incidents = (one.json() for one in answers)
    assert [one["run"] for one in listed["items"]] == [name]
    assert (run["run"], verdict["verdict"]["run"]) == (name, name)
    assert [one["run"] for one in incidents["items"]] == [name]


def test_a_name_that_telemetry_cannot_have_is_refused(api: Seeded) -> None:
    for name in ("", "a\x00b", "a\nb", "x" * 257):
        assert api.client().get("/v1/runs", params={"run": name}).status_code == 422


def test_the_canonical_verdict_comes_byte_for_byte(api: Seeded) -> None:
    verdict = a_verdict("odd", an_odd_incident("a1"))
    run_id = api.put_verdict(verdict)
    body = api.client().get(f"/v1/runs/{run_id}/verdict").content
    assert body.endswith(b',"verdict":' + canonical(verdict) + b"}")


def test_what_is_not_a_number_is_text_in_every_answer_and_never_null(api: Seeded) -> None:
    run_id = api.put(
        "odd", an_odd_incident("a1"), annotations=[_annotation("spike_recovered", 7, {"loss": "NaN"})]
    )
    client = api.client()
    evidence = client.get("/v1/incidents/a1").json()["incident"]["evidence"][0]
    assert (evidence["statistic"], evidence["threshold"]) == ("NaN", "-Infinity")
    assert evidence["detail"] == {"value": "Infinity"}
    verdict = client.get(f"/v1/runs/{run_id}/verdict").json()["verdict"]
    assert verdict["incidents"][0]["evidence"][0] == evidence
    events = client.get(f"/v1/runs/{run_id}/events?kind=annotation").json()["items"]
    assert events[0]["detail"] == {"loss": "NaN"}


def test_a_run_whose_clocks_tell_nonsense_is_shown_without_them(api: Seeded) -> None:
    for name, clock in (("nan", float("nan")), ("far", 1e300), ("before", -5.0), ("unknown", None)):
        run_id = api.put_verdict(a_verdict(name), newest_record_at=clock)
        answer = api.client().get(f"/v1/runs/{run_id}")
        assert (answer.status_code, answer.json()["newest_record_at"]) == (200, None)


def test_a_counter_beyond_what_json_readers_keep_is_text(api: Seeded) -> None:
    run_id = api.put("long", judged_to_iteration=2**53 + 1)
    client = api.client()
    assert client.get(f"/v1/runs/{run_id}").json()["judged_to_iteration"] == "9007199254740993"
    assert client.get("/v1/runs").json()["items"][0]["judged_to_iteration"] == "9007199254740993"


@pytest.mark.parametrize("path", ["", "/verdict"])
def test_an_answer_that_the_client_has_is_not_sent_again(api: Seeded, path: str) -> None:
    api.say_healthy()
    run_id = api.put("a")
    client = api.client()
    first = client.get(f"/v1/runs/{run_id}{path}")
    tag = first.headers["etag"]
    again = client.get(f"/v1/runs/{run_id}{path}", headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    api.put("a", an_incident())
    changed = client.get(f"/v1/runs/{run_id}{path}", headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


def test_a_run_says_in_one_sentence_what_happened(api: Seeded) -> None:
    run_id = api.put("llama", an_incident())
    sentence = api.client().get(f"/v1/runs/{run_id}").json()["sentence"]
    assert sentence.startswith("Rank 3 (host node-07) holds other parameters")


def test_the_history_of_a_run_is_paged_without_gap_or_double(api: Seeded) -> None:
    annotations = [_annotation("loss_scale_skip", place, {}) for place in (4, 4, 4, 9)]
    run_id = api.put("a", an_incident(), annotations=annotations)
    api.put("a", an_incident(certainty="suspected"), annotations=annotations)
    client = api.client()
    whole = client.get(f"/v1/runs/{run_id}/events").json()
    paged, cursor = [], ""
    while cursor is not None:
        page = client.get(f"/v1/runs/{run_id}/events?limit=2{cursor and '&cursor=' + cursor}").json()
        paged += page["items"]
        cursor = page["next"]
    assert paged == whole["items"]
    assert [(one["kind"], one["iteration"]) for one in paged[:5]] == [
        *[("annotation", 4)] * 3,
        ("annotation", 9),
        ("incident", 1200),
    ]
    changes = [one for one in paged if one["kind"] == "change"]
    assert [one["name"] for one in changes] == ["incident_new", "run_new", "incident_changed", "run_changed"]
    assert [one["seq"] for one in changes] == sorted(one["seq"] for one in changes)


def test_the_history_of_one_kind_holds_no_other(api: Seeded) -> None:
    run_id = api.put("a", an_incident(), annotations=[_annotation("loss_scale_skip", 4, {})])
    for kind in ("incident", "annotation", "change"):
        items = api.client().get(f"/v1/runs/{run_id}/events?kind={kind}").json()["items"]
        assert {one["kind"] for one in items} == {kind}


@pytest.mark.parametrize("path", ["", "/verdict", "/events", "/curves?metric=loss", "/matrix?metric=loss"])
def test_a_run_that_does_not_exist_is_a_problem_that_names_it(api: Seeded, path: str) -> None:
    answer = api.client().get(f"/v1/runs/0123456789abcdef{path}")
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:firstfault:problem:not-found"
    assert "0123456789abcdef" in answer.json()["detail"]


def test_the_request_id_is_echoed_and_names_the_problem(api: Seeded) -> None:
    given = api.client().get("/nowhere", headers={"X-Request-ID": "abc-1"})
    assert given.headers["x-request-id"] == "abc-1"
    assert given.json()["instance"] == "urn:firstfault:request:abc-1"
    odd = api.client().get("/nowhere", headers={"X-Request-ID": "a b\tc"})
    assert odd.headers["x-request-id"] != "a b\tc"
    assert json.loads(odd.content)["instance"].endswith(odd.headers["x-request-id"])


def _annotation(kind: str, iteration: int, detail: dict[str, object]) -> dict[str, object]:
    return {"kind": kind, "attempt": 0, "iteration": iteration, "detail": detail}
