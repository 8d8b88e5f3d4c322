"""Health, readiness, freshness and figures: degraded is said, and never flaps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert, update
from starlette.testclient import TestClient

from service.api.app import make_app
from service.api.settings import ApiConfig
from service.api.workers import Reason
from service.latency import Latency
from service.store_config import StoreConfig
from service.tables import alert_deliveries, alert_results, health, rejected

from .api_builders import Json, Seeded, seeded
from .service_builders import an_incident

CONFIG = ApiConfig(worker_silent_after_s=15.0, behind_after_messages=1000)


@pytest.fixture
def api(tmp_path: Path, store_config: StoreConfig) -> Iterator[Seeded]:
    with seeded(tmp_path, CONFIG, store_config=store_config) as one:
        yield one


def readiness(api: Seeded) -> tuple[int, str, list[str]]:
    answer = api.client().get("/readyz")
    body = answer.json()
    return answer.status_code, body["status"], [one["code"] for one in body["reasons"]]


def samples(client: TestClient) -> dict[str, float]:
    """Every sample by name and labels."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {
        one.name + "".join(f" {name}={value}" for name, value in sorted(one.labels.items())): one.value
        for family in families
        for one in family.samples
    }


def test_all_is_well_while_a_worker_speaks_and_its_source_answers(api: Seeded) -> None:
    api.say_healthy(source="kafka", parts=["0"], lag_messages=3, unavailable_since=None, starved=[])
    assert readiness(api) == (200, "ready", [])
    assert api.client().get("/healthz").json() == {"status": "ok"}


@pytest.mark.parametrize(
    ("said", "code", "named"),
    [
        (
            {"unavailable_since": 1_764_470_000.0, "reason": "refused"},
            "source-away",
            "2025-11-30T02:33:20.000Z (refused)",
        ),
        ({"lag_messages": 1001}, "worker-behind", "1001"),
        ({"starved": ["telemetry:3"]}, "partition-starved", "telemetry:3"),
        ({"split_runs": {"llama": "judged by another"}}, "run-split", "'llama'"),
        ({"store_failure": "disk is full"}, "store-refuses", "disk is full"),
    ],
)
def test_what_is_amiss_is_said_while_the_service_stays_ready(
    api: Seeded, said: Json, code: str, named: str
) -> None:
    api.say_healthy(**said)
    assert readiness(api) == (200, "degraded", [code])
    (reason,) = api.client().get("/readyz").json()["reasons"]
    assert named in reason["detail"]


def test_a_store_without_a_worker_says_so(api: Seeded) -> None:
    assert readiness(api) == (200, "degraded", ["no-worker"])


def test_a_worker_that_fell_silent_is_dead(api: Seeded) -> None:
    api.say_healthy()
    api.shift_s = 16.0
    assert readiness(api) == (200, "degraded", ["worker-dead"])


def test_a_worker_that_was_replaced_or_ended_cleanly_does_not_count_as_dead(api: Seeded) -> None:
    tenure = api.store.claim("kafka", ["0", "1"]).tenure
    api.say_healthy(source="kafka", parts=["0", "1"])
    api.shift_s = 16.0
    at_the_same_parts(api, "worker:node-1:2", ["0", "1"])
    assert readiness(api) == (200, "ready", [])
    at_the_same_parts(api, "worker:node-1:2", ["0"])
    assert readiness(api) == (200, "degraded", ["worker-dead"])
    assert "nobody holds 1" in api.client().get("/readyz").text
    api.store.release(tenure)
    assert readiness(api) == (200, "ready", [])


def test_what_the_starter_of_the_service_knows_is_told_too(tmp_path: Path) -> None:
    with seeded(tmp_path) as api:
        app = make_app(
            api.store.database, further_reasons=lambda: [Reason("worker-crash-loop", "it ended three times")]
        )
        api.app = app
        api.say_healthy()
        assert readiness(api) == (200, "degraded", ["worker-crash-loop"])


def at_the_same_parts(api: Seeded, component: str, parts: list[str]) -> None:
    """Another worker speaks, at the time of the API's clock."""
    api.store.say_health(component, {"source": "kafka", "parts": parts})
    with api.store.database.write() as db:
        db.execute(update(health).where(health.c.component == component).values(at=health.c.at + 16.0))


def test_ranks_gone_silent_are_told_until_somebody_has_dealt_with_them(api: Seeded) -> None:
    api.say_healthy()
    api.put("llama", an_incident(label="stall", pattern="hang"))
    assert readiness(api) == (200, "degraded", ["rank-silent"])
    api.client().post("/v1/incidents/a1/state", json={"state": "acknowledged"})
    assert readiness(api) == (200, "ready", [])


def test_only_a_store_that_cannot_be_read_makes_the_service_unready(api: Seeded) -> None:
    with api.store.database.write() as db:
        db.exec_driver_sql("DROP TABLE health")
    assert readiness(api) == (503, "unready", ["store-unavailable"])
    assert api.client().get("/healthz").status_code == 200


def test_a_verdict_says_while_it_may_be_out_of_date(api: Seeded) -> None:
    run_id = api.put("llama")
    api.say_healthy()
    client = api.client()
    fresh = client.get(f"/v1/runs/{run_id}/verdict").json()["freshness"]
    assert (fresh["stale"], fresh["stale_reasons"], fresh["revision"]) == (False, [], 1)
    assert fresh["judged_to_iteration"] == 1840
    api.say_healthy(unavailable_since=time.time(), reason="refused")
    away = client.get(f"/v1/runs/{run_id}").json()["freshness"]
    assert away["stale"] is True
    assert "is away since" in away["stale_reasons"][0]


def test_silent_ranks_do_not_make_a_verdict_stale(api: Seeded) -> None:
    run_id = api.put("llama", an_incident(label="stall", pattern="hang"))
    api.say_healthy()
    assert api.client().get(f"/v1/runs/{run_id}").json()["freshness"]["stale"] is False


def test_a_quiet_run_says_since_when(api: Seeded) -> None:
    run_id = api.put("llama")
    api.store.note_quiet({"llama": 1_764_470_000.0})
    run = api.client().get(f"/v1/runs/{run_id}").json()
    assert run["quiet_since"] == run["freshness"]["quiet_since"] == "2025-11-30T02:33:20.000Z"


def test_a_store_that_cannot_be_used_is_a_problem_that_may_pass(api: Seeded) -> None:
    with api.store.database.write() as db:
        db.exec_driver_sql("DROP TABLE runs")
    answer = api.client().get("/v1/runs")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert int(answer.headers["retry-after"]) > 0
    assert "SELECT" not in answer.text


def test_a_bug_is_a_problem_that_tells_nothing_but_its_id(
    api: Seeded, caplog: pytest.LogCaptureFixture
) -> None:
    with api.store.database.write() as db:
        db.execute(insert(health).values(component="worker:x", at=1e12, body=b"\xff"))
    answer = api.client().get("/readyz", headers={"X-Request-ID": "bug-1"})
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.headers["content-security-policy"]
    assert "UnicodeDecodeError" not in answer.text
    assert [one.request_id for one in caplog.records if hasattr(one, "request_id")] == ["bug-1"]


def test_every_answer_is_a_line_where_that_is_asked_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "service.api.frame")
    for asked in (False, True):
        with seeded(tmp_path / str(asked), ApiConfig(logs_requests=asked)) as api:
            api.client().get("/v1/runs?run=secret", headers={"X-Request-ID": f"id-{asked}"})
    (line,) = [vars(one) for one in caplog.records if one.name == "service.api.frame"]
    told = [line[name] for name in ("request_id", "method", "route", "status", "client", "token")]
    assert told == ["id-True", "GET", "/v1/runs", 200, "127.0.0.1", None]
    assert "secret" not in str(line)


def test_figures_tell_what_is_stored_and_what_the_workers_say(api: Seeded) -> None:
    api.put("one", an_incident())
    api.put("two")
    counts: dict[str, Any] = {"records": 500, "verdicts": 7}
    api.say_healthy(
        counts=counts, late_records=2, lag_messages=3, verdict_seconds={"median": 0.1, "longest": 0.5}
    )
    found = samples(api.client())
    assert found["firstfault_runs label=healthy"] == 1
    assert found["firstfault_incidents certainty=confirmed label=silent_drift"] == 1
    assert (found["firstfault_records_total"], found["firstfault_late_total"]) == (500, 2)
    assert (found["firstfault_lag_messages"], found["firstfault_workers"]) == (3, 1)
    assert found["firstfault_verdict_seconds of=longest"] == 0.5
    assert 0 <= found["firstfault_worker_age_seconds"] < 15
    assert found["firstfault_store_up"] == 1
    assert "firstfault_checkpoint_bytes" not in found


def test_figures_of_two_workers_add_up_by_partition_reason_and_bucket(api: Seeded) -> None:
    first, second = Latency(), Latency()
    for span_s in (0.02, 0.3, 1000.0):
        first.add(span_s)
    second.add(0.04)
    now = api.now()
    body = {"lag_by_part": {"t:0": 5}, "dropped_verdicts": 2, "polled_at": now - 40.0}
    api.say_healthy(
        **body, detection=first.body(), newest_record_at=now - 60.0, history={"unfrozen_windows": 1}
    )
    api.store.say_health(
        "worker:node-2:9", {"lag_by_part": {"t:1": 7}, "polled_at": now, "detection": second.body()}
    )
    found = samples(api.client())
    lags = [found[f"firstfault_partition_lag_messages part=t:{n}"] for n in (0, 1)]
    assert lags == [5, 7]
    assert found["firstfault_dropped_total reason=verdict"] == 2
    assert found["firstfault_dropped_total reason=incident_window"] == 1
    assert 40 <= found["firstfault_poll_age_seconds"] < 50
    assert 60 <= found["firstfault_watermark_age_seconds"] < 70
    buckets = [found[f"firstfault_detect_seconds_bucket le={le}"] for le in ("0.05", "0.5", "300.0", "+Inf")]
    assert buckets == [2, 3, 3, 4]
    assert found["firstfault_detect_seconds_count"] == 4
    assert found["firstfault_detect_seconds_sum"] == pytest.approx(1000.36)


def test_what_the_store_holds_and_what_waits_to_be_told_has_a_size_and_an_age(api: Seeded) -> None:
    api.put("one", an_incident())
    api.shift_s = 30.0
    found = samples(api.client())
    assert found["firstfault_store_bytes"] > 4096
    assert found["firstfault_disk_free_bytes"] > 0
    assert found["firstfault_outbox_messages channel=kafka"] == 1
    assert 30 <= found["firstfault_outbox_oldest_seconds channel=kafka"] < 45


def test_messages_of_alert_channels_wait_from_when_they_are_due(api: Seeded) -> None:
    now = api.now()
    row = {
        "seq": 1,
        "channel": "pager",
        "key": "a1",
        "run_id": "r",
        "run": "r",
        "payload": b"[]",
        "detail": "",
    }
    row |= {"state": "waiting", "attempts": 0, "created_at": now - 50.0, "due_at": now - 1.0, "kind": "alert"}
    odd: list[dict[str, object]] = [
        {"id": "1"},
        {"id": "2", "kind": "refresh", "created_at": now - 9000.0, "due_at": now - 5.0},
        {"id": "3", "kind": "reminder", "created_at": now - 9000.0, "due_at": now + 9000.0},
        {"id": "4", "state": "sent", "created_at": now - 9000.0},
    ]
    with api.store.database.write() as db:
        for one in odd:
            db.execute(insert(alert_deliveries).values(**{**row, **one}))
        for result, messages in (("sent", 3), ("failed", 2)):
            told = {"channel": "pager", "result": result, "messages": messages, "at": now, "detail": "x"}
            db.execute(insert(alert_results).values(**told))
    found = samples(api.client())
    assert found["firstfault_outbox_messages channel=pager"] == 2
    assert 50 <= found["firstfault_outbox_oldest_seconds channel=pager"] < 60
    assert found["firstfault_notify_total channel=pager result=sent"] == 3
    assert found["firstfault_notify_total channel=pager result=failed"] == 2


def test_routes_are_counted_by_their_template_and_nothing_by_run_or_rank(api: Seeded) -> None:
    run_id = api.put("llama", an_incident())
    client = api.client()
    for path in (f"/v1/runs/{run_id}", "/v1/runs/nope", "/wp-login.php", "/v1/incidents/a1"):
        client.get(path)
    client.request("BREW", "/v1/runs")
    text = client.get("/metrics").text
    found = samples(client)
    assert found["firstfault_http_requests_total method=GET route=/v1/runs/{run_id} status=200"] == 1
    assert found["firstfault_http_requests_total method=GET route=/v1/runs/{run_id} status=404"] == 1
    assert found["firstfault_http_requests_total method=GET route=unknown status=404"] == 1
    assert "BREW" not in text
    assert not any(name in text for name in (run_id, "llama", "wp-login"))


def test_many_reasons_of_rejection_make_few_series(api: Seeded) -> None:
    with api.store.database.write() as db:
        rows = [{"reason": f"reason {n:03}", "records": n + 1, "example": b""} for n in range(90)]
        db.execute(insert(rejected), rows)
    found = samples(api.client())
    of_rejected = {
        name: value for name, value in found.items() if name.startswith("firstfault_rejected_total")
    }
    assert len(of_rejected) == 51
    assert sum(of_rejected.values()) == sum(range(1, 91))
    assert of_rejected["firstfault_rejected_total reason=reason 089"] == 90


def test_figures_come_though_the_store_cannot_be_read(api: Seeded) -> None:
    with api.store.database.write() as db:
        db.exec_driver_sql("DROP TABLE runs")
    found = samples(api.client())
    assert found["firstfault_store_up"] == 0
    assert "firstfault_build_info" in "".join(found)


def test_wrong_tokens_are_counted(api: Seeded) -> None:
    from service.access import create_token

    with api.store.database.write() as db:
        token = create_token(db, "grafana", ("read",), time.time())
    api.client(token="ff_" + "x" * 43).get("/v1/runs")
    assert samples(api.client(token=token))["firstfault_failed_tokens_total"] == 1
