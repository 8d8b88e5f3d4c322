"""What people make of incidents, what new evidence undoes of it, and rules that mute."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from service.access import create_token
from service.errors import StoreError
from service.mutes import MATCHERS, MAX_ACTIVE, Mute, Muted, MuteError, add_mute, matches, muted_now
from service.pipeline import Pipeline
from service.store_config import StoreConfig
from service.worsening import fresh_evidence, worsening

from .api_builders import Json, Seeded, seeded
from .service_builders import an_incident, batches_of, log_lines


@pytest.fixture
def api(tmp_path: Path, store_config: StoreConfig) -> Iterator[Seeded]:
    with seeded(tmp_path, store_config=store_config) as one:
        yield one


def set_state(client: TestClient, state: str, note: str = "", **change: Any) -> Any:
    body = {"state": state, "note": note, **change}
    return client.post("/v1/incidents/a1/state", json=body)


def get(client: TestClient, path: str = "/v1/incidents/a1") -> Json:
    found: Json = client.get(path).json()
    return found


def in_days(days: float) -> str:
    return (datetime.now(UTC) + timedelta(days=days)).isoformat()


def suspected(**changes: Any) -> Json:
    return an_incident(certainty="suspected", severity="warning", **changes)


def evidence(detector: str, metric: str, iteration: int) -> Json:
    return {**an_incident()["evidence"][0], "detector": detector, "metric": metric, "iteration": iteration}


def test_what_was_dealt_with_must_be_opened_before_it_is_handled_again(api: Seeded) -> None:
    api.put("one", an_incident())
    client = api.client()
    for was, wanted in (
        ("resolved", "acknowledged"),
        ("resolved", "muted"),
        ("false_alarm", "resolved"),
        ("false_alarm", "muted"),
    ):
        assert set_state(client, was, "done").status_code == 200
        end = {"muted_until": in_days(1)} if wanted == "muted" else {}
        refused = set_state(client, wanted, "again", **end)
        assert (refused.status_code, refused.json()["type"]) == (409, "urn:firstfault:problem:transition")
        assert f"an incident that is {was} can become open" in refused.json()["detail"]
        assert wanted not in get(client)["allowed"]
        assert get(client)["state"] == was
        assert set_state(client, "open", "wrong").status_code == 200
        assert set_state(client, wanted, "again", **end).json()["state"] == wanted
        assert set_state(client, "open", "once more").status_code == 200


def test_a_remark_keeps_the_state_and_needs_a_note(api: Seeded) -> None:
    api.put("one", an_incident())
    client = api.client()
    assert set_state(client, "open").status_code == 409
    assert set_state(client, "open", "the node is on its way out").status_code == 200
    assert [entry["note"] for entry in get(client)["log"]] == ["the node is on its way out"]


def test_a_false_alarm_needs_a_reason(api: Seeded) -> None:
    api.put("one", an_incident())
    refused = set_state(api.client(), "false_alarm", "  ")
    assert refused.status_code == 422
    assert "what it was instead" in refused.json()["detail"]


def test_who_did_it_is_the_name_of_the_token(api: Seeded) -> None:
    api.put("one", an_incident())
    with api.store.database.write() as db:
        token = create_token(db, "night shift", ("read", "write"), api.now())
    client = api.client(token=token)
    set_state(client, "acknowledged")
    (entry,) = get(client)["log"]
    assert (entry["who"], entry["by_system"]) == ("night shift", False)


def test_an_entry_of_the_log_cannot_be_changed_even_in_the_database(api: Seeded) -> None:
    api.put("one", an_incident())
    set_state(api.client(), "acknowledged", "mine")
    with (
        pytest.raises(StoreError, match="entries of incident_log are never changed"),
        api.store.database.write() as db,
    ):
        db.execute(text("UPDATE incident_log SET note = 'another'"))
    assert [entry["note"] for entry in get(api.client())["log"]] == ["mine"]


def test_a_resolved_incident_that_gets_worse_is_open_again_and_says_why(api: Seeded) -> None:
    api.put("one", suspected())
    client = api.client()
    set_state(client, "resolved", "it went away")
    api.put("one", an_incident())
    found = get(client)
    assert found["state"] == "open"
    last = found["log"][-1]
    assert (last["who"], last["by_system"], last["state"]) == ("firstfault", True, "open")
    assert last["note"] == "opened again: its certainty rose from suspected to confirmed"
    told = client.get(f"/v1/runs/{found['run_id']}/events?kind=change").json()["items"]
    assert [one["name"] for one in told if one["incident_id"] == "a1"] == [
        "incident_new",
        "state",
        "incident_worsened",
        "state",
    ]


def test_a_resolved_incident_stays_so_while_the_run_only_goes_on(api: Seeded) -> None:
    api.put("one", an_incident())
    set_state(api.client(), "resolved", "the node is out")
    cost = {"iterations_since_onset": [700, 710], "iterations_to_redo": 900, "device_hours": 50.0}
    api.put("one", an_incident(cost=cost))
    assert get(api.client())["state"] == "resolved"
    assert get(api.client())["incident"]["cost"] == cost


def test_a_resolved_incident_that_shows_again_later_is_open_again(api: Seeded) -> None:
    api.put("one", an_incident())
    set_state(api.client(), "resolved", "the node is out")
    seen = [*an_incident()["evidence"], evidence("repeat", "repeat_checksum/mlp", 1500)]
    api.put("one", an_incident(evidence=seen))
    assert get(api.client())["log"][-1]["note"].endswith(
        "repeat saw it in repeat_checksum/mlp at iteration 1500"
    )


def test_a_withdrawn_incident_that_returns_is_open_again(api: Seeded) -> None:
    api.put("one", an_incident())
    set_state(api.client(), "acknowledged")
    api.put("one")
    api.put("one", an_incident())
    found = get(api.client())
    assert (found["state"], found["is_withdrawn"]) == ("open", False)
    assert "later records had explained it away" in found["log"][-1]["note"]


def test_a_false_alarm_stays_one_until_it_is_worse_than_what_was_marked(api: Seeded) -> None:
    api.put("one", suspected())
    set_state(api.client(), "false_alarm", "the schedule did it")
    seen = [*an_incident()["evidence"], evidence("repeat", "repeat_checksum/mlp", 1500)]
    api.put("one", suspected(evidence=seen))
    api.put("one")
    api.put("one", suspected())
    assert get(api.client())["state"] == "false_alarm"
    api.put("one", an_incident())
    assert get(api.client())["state"] == "open"


def test_a_mute_outlasts_what_gets_worse_and_ends_by_itself(api: Seeded) -> None:
    api.put("one", suspected())
    client = api.client()
    set_state(client, "muted", "known", muted_until=in_days(1))
    api.put("one", an_incident())
    assert get(client)["state"] == "muted"
    assert get(client)["log"][-1]["muted_until"] is not None
    api.shift_s = 2 * 86_400.0
    assert get(client)["state"] == "open"
    assert "resolved" in get(client)["allowed"]


def test_revisions_tell_what_changed_and_when(api: Seeded) -> None:
    api.put("one", suspected())
    api.put("one", an_incident())
    api.put("one", an_incident(cost={"iterations_since_onset": [1, 2]}))  # the run goes on: no revision
    api.put("one")
    api.put("one", an_incident(first={"iteration": 1100}))
    found = get(api.client(), "/v1/incidents/a1/revisions")
    assert [one["kind"] for one in found["items"]] == ["new", "worsened", "withdrawn", "returned"]
    assert found["forgotten"] is False
    assert found["items"][1]["changed"] == [
        {"field": "certainty", "before": "suspected", "after": "confirmed"},
        {"field": "severity", "before": "warning", "after": "critical"},
    ]
    assert {"field": "first.iteration", "before": 1200, "after": 1100} in found["items"][3]["changed"]
    assert "since iteration 1100" in found["items"][3]["sentence"]
    assert api.client().get("/v1/incidents/b1/revisions").status_code == 404


def test_of_very_many_revisions_the_first_and_the_newest_are_kept(
    api: Seeded, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("service.revisions", "service.api.revisions"):
        monkeypatch.setattr(f"{module}.MAX_REVISIONS", 6)
    for iteration in range(11):
        api.put("one", an_incident(first={"iteration": iteration}))
    found = get(api.client(), "/v1/incidents/a1/revisions")
    kept = [one["first"]["iteration"] for one in found["items"]]
    assert kept == [0, 6, 7, 8, 9, 10]
    assert found["forgotten"] is True


def test_what_is_worse_is_said_in_words() -> None:
    assert worsening(an_incident(), an_incident()) == ""
    assert worsening(an_incident(), suspected()) == ""
    longer = [*an_incident()["chain"], {"label": "gradient_explosion", "iteration": 1711}]
    assert (
        worsening(an_incident(), an_incident(chain=longer))
        == "a gradient explosion followed at iteration 1711"
    )
    moved = an_incident(evidence=[evidence("checksum_vote", "param_checksum", 1300)])
    assert fresh_evidence(an_incident(), moved) == ""  # the same evidence, seen more exactly


def mute(client: TestClient, **rule: Any) -> Any:
    return client.post("/v1/mutes", json={"comment": "maintenance", "until": in_days(1), **rule})


@pytest.mark.parametrize(
    ("rule", "is_muted"),
    [
        ({"run": "llama-*"}, True),
        ({"run": "llama"}, False),
        ({"host": "node-0?"}, True),
        ({"host": "node-1*"}, False),
        ({"detector": "checksum_vote"}, True),
        ({"detector": "repeat"}, False),
        ({"label": "silent_drift", "pattern": "replica_divergence"}, True),
        ({"label": "silent_drift", "pattern": "stuck"}, False),
    ],
)
def test_a_rule_mutes_what_matches_all_that_it_names(rule: Json, is_muted: bool) -> None:
    named = dict.fromkeys(MATCHERS) | rule
    made = Mute(id="1", **named, comment="maintenance", who="me", created_at=0.0, until=9.0)
    assert matches(made, "llama-7b", an_incident()) == is_muted


def test_what_a_rule_mutes_is_listed_with_its_state_and_not_to_be_told(api: Seeded) -> None:
    api.put("llama-7b", an_incident())
    made = mute(api.client(), run="llama-*")
    assert made.status_code == 201
    (listed,) = get(api.client(), "/v1/incidents")["items"]
    assert (listed["muted_by"]["id"], listed["state"]) == (made.json()["id"], "open")
    with api.store.database.read() as db:
        found = muted_now(db, "a1", api.now())
        assert found is not None
        assert (found.mute_id, found.why) == (made.json()["id"], "maintenance")
        assert muted_now(db, "a1", api.now() + 2 * 86_400.0) is None


def test_a_rule_against_one_detector_hides_nothing_that_another_saw_too(api: Seeded) -> None:
    both = [
        evidence("checksum_vote", "param_checksum", 1200),
        evidence("repeat", "repeat_checksum/mlp", 1200),
    ]
    api.put("one", an_incident(evidence=both))
    mute(api.client(), detector="checksum_vote")
    assert get(api.client())["muted_by"] is None


def test_a_rule_against_a_host_hides_no_suspects_elsewhere(api: Seeded) -> None:
    suspects = [
        {"rank": rank, "host": host, "device": None, "why": ""} for rank, host in ((3, "a"), (4, "b"))
    ]
    api.put("one", an_incident(first={"ranks": [3, 4], "rank_count": 2, "suspects": suspects}))
    mute(api.client(), host="a")
    assert get(api.client())["muted_by"] is None
    mute(api.client(), host="?")
    assert get(api.client())["muted_by"] is not None


def test_a_rule_ends_by_itself_or_by_a_person_and_stays_to_be_read(api: Seeded) -> None:
    api.put("one", an_incident())
    client = api.client()
    first, second = (mute(client, run="one", until=in_days(days)).json() for days in (1, 2))
    assert get(client)["muted_by"]["id"] == second["id"]  # of several the one that holds longest
    ended = client.delete(f"/v1/mutes/{second['id']}").json()
    assert (ended["active"], ended["ended_by"]) == (False, "local")
    assert get(client)["muted_by"]["id"] == first["id"]
    api.shift_s = 1.5 * 86_400.0
    assert get(client)["muted_by"] is None
    listed = get(client, "/v1/mutes?limit=1")
    assert [one["id"] for one in listed["items"]] == [second["id"]]
    rest = get(client, f"/v1/mutes?limit=1&cursor={listed['next']}")
    assert ([one["id"] for one in rest["items"]], rest["next"]) == ([first["id"]], None)
    again = client.delete(f"/v1/mutes/{second['id']}").json()
    assert again["ended_at"] == ended["ended_at"]
    assert client.delete("/v1/mutes/none").status_code == 404
    assert get(client, f"/v1/mutes/{first['id']}")["active"] is False


def test_a_rule_that_cannot_be_is_refused_with_the_reason(api: Seeded) -> None:
    for rule, words in (
        ({}, "at least one of run, label, pattern, detector, host"),
        ({"run": "a", "comment": " "}, "needs one that says why"),
        ({"run": "a", "until": "2001-01-01T00:00:00Z"}, "in the future"),
        ({"run": "a", "until": in_days(400)}, "at most a year away"),
        ({"run": "a", "rank": 3}, "Extra inputs"),
        ({"label": "boring"}, "label"),
    ):
        refused = mute(api.client(), **rule)
        assert refused.status_code == 422
        assert words in refused.json()["detail"]


def test_there_are_only_so_many_rules_at_a_time(api: Seeded) -> None:
    with api.store.database.write() as db:
        told = Muted(until=api.now() + 60.0, why="flood", who="me", mute_id=None)
        for at in range(MAX_ACTIVE):
            add_mute(db, {"run": f"r{at}"}, told, api.now())
        with pytest.raises(MuteError, match=f"{MAX_ACTIVE} mutes at a time"):
            add_mute(db, {"run": "one more"}, told, api.now())


@pytest.mark.parametrize("fault", [{"odd_rank": 700}, {"nan_rank": 700}])
def test_one_cause_is_one_incident_however_many_ranks_there_are(fault: Json) -> None:
    pipeline = Pipeline()
    for batch in batches_of(log_lines("wide", ranks=1000, iterations=24, odd_from=16, **fault), size=8000):
        pipeline.feed(batch)
    (incident,) = pipeline.verdict("wide").incidents
    assert (incident.first.iteration, list(incident.first.ranks)) == (16, [700])
