"""Alerts from the store to a receiver: what is told, when, how often, and signed by what."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from service import tables
from service.alerts import dispatch
from service.alerts.config import ChannelConfig
from service.alerts.outbox import put_test
from service.store import StoreConfig
from service.triage import Decision, decide

from .alert_builders import (
    OLD_SECRET,
    SECRET,
    Alerting,
    Got,
    Receiver,
    a_webhook,
    is_signed,
    quick,
    wait_until,
)
from .service_builders import an_incident

SUSPECTED = an_incident(certainty="suspected", first={"ranks": [], "rank_count": 0, "suspects": []})


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", SECRET)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as opened:
        yield opened


def alerting(
    folder: Path, receiver: Receiver, store_config: StoreConfig | None = None, **settings: Any
) -> Alerting:
    return Alerting(folder, quick({"ops": a_webhook(f"{receiver.url}/hook", **settings)}), store_config)


def decided(alerts: Alerting, state: str, muted_until: float | None = None) -> None:
    decision = Decision(state=state, note="said so", muted_until=muted_until, who="ana")
    with alerts.database.write() as db:
        assert decide(db, "a1", decision, time.time())


def deliveries(alerts: Alerting) -> list[tuple[str, str]]:
    rows = sorted(alerts.rows(tables.alert_deliveries), key=lambda row: row.seq)
    return [(row.kind, row.state) for row in rows]


def test_a_new_incident_reaches_a_webhook_signed_and_in_alertmanagers_shape(
    tmp_path: Path, receiver: Receiver, store_config: StoreConfig
) -> None:
    with alerting(tmp_path, receiver, store_config) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        (got,) = receiver.wait_for(1)
        wait_until(lambda: deliveries(alerts) == [("alert", "sent")])
    assert (got.path, is_signed(got, SECRET), got.body.isascii()) == ("/hook", True, True)
    body = got.json
    assert (body["version"], body["status"], body["receiver"]) == ("4", "firing", "ops")
    (alert,) = body["alerts"]
    assert alert["labels"] == {
        "alertname": "FirstfaultIncident",
        "run": "llama-7b",
        "label": "silent_drift",
        "severity": "critical",
        "host": "node-07",
    }
    assert alert["annotations"]["summary"].startswith("Rank 3 (host node-07) holds other")
    assert alert["generatorURL"] == "https://ff.example/?incident=a1"
    ours = alert["firstfault"]
    assert (ours["suspects"], ours["interval"]) == (
        [{"rank": 3, "host": "node-07", "device": None}],
        [1190, 1200],
    )
    assert ours["last_good"]["checkpoint"] == "/ckpt/iter_1000"


def test_one_message_when_it_opens_one_when_it_gets_worse_and_one_when_it_is_over(
    tmp_path: Path, receiver: Receiver
) -> None:
    with alerting(tmp_path, receiver, min_certainty="suspected") as alerts:
        alerts.send()
        alerts.judged(SUSPECTED)
        receiver.wait_for(1)
        alerts.judged({**SUSPECTED, "detected_at_iteration": 1201})  # more of the same
        alerts.judged({**SUSPECTED, "certainty": "confirmed"})
        receiver.wait_for(2)
        alerts.judged(an_incident())  # its ranks became known
        receiver.wait_for(3)
        alerts.judged(an_incident(evidence=[]))
        alerts.judged()
        got = receiver.wait_for(4)
        wait_until(lambda: deliveries(alerts) == [("alert", "sent")] * 4)
    assert [one.firing for one in got] == [
        [("a1", "opened")],
        [("a1", "worsened")],
        [("a1", "worsened")],
        [("a1", "resolved")],
    ]
    last = got[-1].json
    assert (last["status"], last["alerts"][0]["firstfault"]["over_because"]) == (
        "resolved",
        "later records explain it",
    )


def test_the_same_verdict_read_again_after_a_crash_tells_nothing(tmp_path: Path, receiver: Receiver) -> None:
    with alerting(tmp_path, receiver) as alerts:
        alerts.judged(an_incident())
        alerts.judged(an_incident())
        assert deliveries(alerts) == [("alert", "waiting")]


@pytest.mark.parametrize("state", ["resolved", "false_alarm"])
def test_who_resolves_an_incident_ends_it_for_the_channel_too(
    tmp_path: Path, receiver: Receiver, state: str
) -> None:
    with alerting(tmp_path, receiver) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        receiver.wait_for(1)
        wait_until(lambda: deliveries(alerts) == [("alert", "sent")])
        decided(alerts, state)
        assert receiver.wait_for(2)[1].firing == [("a1", "resolved")]


def test_an_acknowledged_incident_is_told_again_only_when_it_gets_worse(
    tmp_path: Path, receiver: Receiver
) -> None:
    with alerting(tmp_path, receiver, min_certainty="suspected") as alerts:
        alerts.judged(SUSPECTED)
        decided(alerts, "acknowledged")
        alerts.send()
        wait_until(lambda: deliveries(alerts) == [("alert", "dropped")])
        alerts.judged({**SUSPECTED, "detected_at_iteration": 1300})
        alerts.judged({**SUSPECTED, "certainty": "confirmed"})
        assert receiver.wait_for(1)[0].firing == [("a1", "worsened")]


def test_a_muted_incident_sends_nothing_and_reminds_of_itself_when_the_mute_ends(
    tmp_path: Path, receiver: Receiver
) -> None:
    with alerting(tmp_path, receiver, min_certainty="suspected") as alerts:
        alerts.send()
        alerts.judged(SUSPECTED)
        receiver.wait_for(1)
        wait_until(lambda: deliveries(alerts) == [("alert", "sent")])
        ends = time.time() + 0.6
        decided(alerts, "muted", ends)
        alerts.judged({**SUSPECTED, "certainty": "confirmed"})
        got = receiver.wait_for(3)
    assert min(one.at for one in got[1:]) >= ends - 0.01
    assert sorted(one.firing[0][1] for one in got[1:]) == ["reminder", "worsened"]


def test_while_a_key_is_replaced_both_sign(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keys").write_text(f"{SECRET}\n{OLD_SECRET}\n")
    settings: dict[str, Any] = {"secret_env": "", "secret_file": str(tmp_path / "keys")}
    with alerting(tmp_path, receiver, **settings) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        (got,) = receiver.wait_for(1)
    assert is_signed(got, SECRET)
    assert is_signed(got, OLD_SECRET)


def test_a_receiver_that_fails_gets_the_same_message_under_the_same_id_again(
    tmp_path: Path, receiver: Receiver
) -> None:
    receiver.answer = lambda _: (503 if len(receiver.got) < 3 else 200, {}, b"")
    with alerting(tmp_path, receiver) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        got = receiver.wait_for(4)
        wait_until(lambda: deliveries(alerts) == [("alert", "sent")])
        results = {row.result: row.messages for row in alerts.rows(tables.alert_results)}
    assert len({(one.headers["webhook-id"], one.body) for one in got}) == 1
    assert results == {"failed": 3, "sent": 1}


def test_a_receiver_that_asks_for_time_gets_it(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answer = lambda _: (429, {"Retry-After": "1"}, b"") if not receiver.got else (200, {}, b"")
    with alerting(tmp_path, receiver) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        first, second = receiver.wait_for(2)
    assert second.at - first.at >= 1.0


@pytest.mark.parametrize(("status", "bound"), [(410, 3600.0), (500, 0.0)])
def test_what_will_never_be_taken_is_given_up(
    tmp_path: Path, receiver: Receiver, status: int, bound: float
) -> None:
    receiver.answer = lambda _: (status, {}, b"")
    config = quick({"ops": a_webhook(receiver.url)}, give_up_after_s=bound)
    with Alerting(tmp_path, config) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        wait_until(lambda: deliveries(alerts) == [("alert", "given_up")])
        (row,) = alerts.rows(tables.alert_results)
    assert (row.result, row.detail, len(receiver.got)) == ("given_up", f"answered {status}", 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"min_severity": "critical"},
        {"labels": ("nan",)},
        {"runs": "mistral-*"},
    ],
)
def test_a_channel_hears_only_of_what_it_asked_for(tmp_path: Path, receiver: Receiver, settings: Any) -> None:
    with alerting(tmp_path, receiver, **settings) as alerts:
        alerts.judged(an_incident(severity="warning"))
        assert deliveries(alerts) == []


def test_further_incidents_of_a_run_wait_for_the_cool_down_and_come_together(
    tmp_path: Path, receiver: Receiver
) -> None:
    with alerting(tmp_path, receiver, cool_down_s=1.0) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        receiver.wait_for(1)
        wait_until(lambda: deliveries(alerts) == [("alert", "sent")])
        alerts.judged(an_incident(), an_incident(id="b2"))
        alerts.judged(an_incident(), an_incident(id="b2"), an_incident(id="c3"))
        alerts.judged(an_incident(id="of-another"), run="other")
        got = receiver.wait_for(3)
        first, second = sorted(
            row.due_at for row in alerts.rows(tables.alert_deliveries) if row.run != "other"
        )
    assert second - first >= 1.0
    assert [one.firing for one in got] == [
        [("a1", "opened")],
        [("of-another", "opened")],
        [("b2", "opened"), ("c3", "opened")],
    ]


def test_what_comes_and_goes_while_a_channel_cools_down_is_not_told(
    tmp_path: Path, receiver: Receiver
) -> None:
    with alerting(tmp_path, receiver, cool_down_s=3600.0) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        receiver.wait_for(1)
        wait_until(lambda: deliveries(alerts) == [("alert", "sent")])
        for _ in range(5):
            alerts.judged()
            alerts.judged(an_incident())
            alerts.judged(an_incident(), an_incident(id="b2"))
        alerts.judged(an_incident())
        assert deliveries(alerts) == [("alert", "sent")]


def test_however_many_ranks_turn_bad_at_once_there_is_one_message(tmp_path: Path, receiver: Receiver) -> None:
    ranks = list(range(1000))
    suspects = [{"rank": rank, "host": f"h{rank // 8}", "device": None, "why": ""} for rank in ranks]
    storm = an_incident(first={"ranks": ranks, "rank_count": 10_000, "suspects": suspects})
    with alerting(tmp_path, receiver) as alerts:
        alerts.send()
        alerts.judged(storm)
        (got,) = receiver.wait_for(1)
    assert len(got.body) < 32_768
    assert got.json["alerts"][0]["firstfault"]["rank_count"] == 10_000


def test_of_several_workers_one_sends(tmp_path: Path, receiver: Receiver, store_config: StoreConfig) -> None:
    with alerting(tmp_path, receiver, store_config) as alerts:
        for _ in range(4):
            alerts.send()
        for number in range(12):
            alerts.judged(an_incident(id=f"i{number}"), run=f"run-{number}")
        wait_until(lambda: deliveries(alerts) == [("alert", "sent")] * 12)
    assert len({one.headers["webhook-id"] for one in receiver.got}) == len(receiver.got) == 12


def test_a_receiver_that_hangs_holds_up_no_other(tmp_path: Path, receiver: Receiver) -> None:
    def hang(_: Got) -> tuple[int, dict[str, str], bytes]:
        time.sleep(1.5)
        return 200, {}, b""

    with Receiver(hang) as stuck:
        channels: dict[str, ChannelConfig] = {"stuck": a_webhook(stuck.url), "ops": a_webhook(receiver.url)}
        with Alerting(tmp_path, quick(channels, timeout_s=0.5)) as alerts:
            alerts.send()
            alerts.judged(an_incident())
            receiver.wait_for(1, timeout_s=1.0)


def test_a_test_message_says_that_it_is_one(tmp_path: Path, receiver: Receiver) -> None:
    with alerting(tmp_path, receiver) as alerts:
        with alerts.database.write() as db:
            name = put_test(db, "ops", time.time())
        alerts.send()
        (got,) = receiver.wait_for(1)
    assert (got.headers["webhook-id"], is_signed(got, SECRET)) == (name, True)
    assert got.json["commonLabels"]["alertname"] == "FirstfaultTest"


def test_infinite_numbers_are_text_in_a_message(tmp_path: Path, receiver: Receiver) -> None:
    odd = an_incident(causes=[{"kind": "data", "stage": "data", "confidence": "NaN", "because": []}])
    with alerting(tmp_path, receiver) as alerts:
        alerts.send()
        alerts.judged(odd, run="naïve \u202e<b>\n")
        (got,) = receiver.wait_for(1)
    assert got.body.isascii()
    (alert,) = got.json["alerts"]
    assert alert["firstfault"]["causes"][0]["confidence"] == "NaN"
    assert "\u202e" not in alert["labels"]["run"]


def test_a_message_to_a_channel_that_was_taken_out_of_the_settings_is_given_up(
    tmp_path: Path, receiver: Receiver
) -> None:
    with alerting(tmp_path, receiver) as alerts:
        alerts.judged(an_incident())
        for later, state in ((86_400.0, "waiting"), (2 * 86_400.0, "given_up")):
            with alerts.database.write() as db:
                dispatch.prune(db, time.time() + later, 604_800.0, 86_400.0)
            assert deliveries(alerts) == [("alert", state)]
        with alerts.database.write() as db:
            dispatch.prune(db, time.time() + 30 * 86_400.0, 604_800.0, 86_400.0)
        assert deliveries(alerts) == []


def test_every_key_of_a_channel_is_in_the_documentation() -> None:
    text = (Path(__file__).parent.parent / "docs" / "alerts.md").read_text("utf-8")
    assert [one.name for one in fields(ChannelConfig) if f"| `{one.name}` |" not in text] == []
