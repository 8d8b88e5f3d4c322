"""An Alertmanager that speaks API v2: it holds what stands, under few labels, and nothing else."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from service import tables
from service.alerts.outbox import put_test
from service.triage import Decision, decide

from .alert_builders import Alerting, Got, Receiver, an_alertmanager, quick, wait_until
from .service_builders import Json, an_incident

LABELS = {
    "type": "object",
    "additionalProperties": {"type": "string"},
    "propertyNames": {"pattern": "^[a-zA-Z_][a-zA-Z0-9_]*$"},
}
POSTABLE_ALERTS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["labels"],
        "additionalProperties": False,
        "properties": {
            "labels": {**LABELS, "minProperties": 1},
            "annotations": LABELS,
            "startsAt": {"type": "string", "format": "date-time"},
            "endsAt": {"type": "string", "format": "date-time"},
            "generatorURL": {"type": "string", "format": "uri"},
        },
    },
}
"""What ``POST /api/v2/alerts`` takes (``postableAlerts`` of its OpenAPI document), with the rules of
Prometheus for names of labels; keys that it does not know, which it would ignore, are faults here."""
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class Alertmanager(Receiver):
    """Takes alerts as the real one does: told apart by all of their labels, over when their end has come."""

    def __init__(self) -> None:
        self.alerts: dict[frozenset[tuple[str, str]], Json] = {}
        super().__init__(self._take)

    def _take(self, got: Got) -> tuple[int, Mapping[str, str], bytes]:
        if got.path != "/prefix/api/v2/alerts" or got.headers["content-type"] != "application/json":
            return 404, {}, b""
        try:
            jsonschema.validate(got.json, POSTABLE_ALERTS)
        except jsonschema.ValidationError as error:
            return 400, {}, str(error).encode()
        for alert in got.json:
            assert _TIME.fullmatch(alert["startsAt"]) and _TIME.fullmatch(alert["endsAt"])
            assert alert["startsAt"] <= alert["endsAt"]
            self.alerts[frozenset((k, v) for k, v in alert["labels"].items() if v)] = alert
        return 200, {}, b""

    def active(self) -> list[Json]:
        """The labels of what is not over."""
        now = _text(time.time())
        held = [one["labels"] for one in list(self.alerts.values()) if one["endsAt"] > now]
        return sorted(held, key=lambda one: sorted(one.items()))


@pytest.fixture
def manager() -> Iterator[Alertmanager]:
    with Alertmanager() as opened:
        assert isinstance(opened, Alertmanager)
        yield opened


def alerting(folder: Path, manager: Alertmanager, **settings: Any) -> Alerting:
    channel = an_alertmanager(f"{manager.url}/prefix", min_certainty="suspected")
    return Alerting(folder, quick({"am": channel}, **settings))


def decided(alerts: Alerting, state: str, muted_until: float | None = None) -> None:
    decision = Decision(state=state, note="said so", muted_until=muted_until, who="ana")
    with alerts.database.write() as db:
        assert decide(db, "a1", decision, time.time())


def labels(**changes: str) -> Json:
    usual = {"run": "llama-7b", "label": "silent_drift", "severity": "critical", "host": "node-07"}
    return {"alertname": "FirstfaultIncident", **usual, **changes}


def test_an_alert_stands_until_it_is_resolved_and_is_told_again_before_its_end(
    tmp_path: Path, manager: Alertmanager
) -> None:
    with alerting(tmp_path, manager) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        manager.wait_for(4)
        wait_until(lambda: manager.active() == [labels()])
        (alert,) = manager.alerts.values()
        assert (alert["annotations"]["ranks"], alert["annotations"]["iteration"]) == ("3", "1200")
        alerts.judged()
        wait_until(lambda: manager.active() == [])
    assert alert["generatorURL"] == "https://ff.example/?incident=a1"


def test_without_anything_that_stands_nothing_is_repeated(tmp_path: Path, manager: Alertmanager) -> None:
    with alerting(tmp_path, manager, resend_every_s=0.1) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        manager.wait_for(1)
        alerts.judged()
        wait_until(lambda: kinds(alerts) == ["alert", "alert"])
        assert manager.active() == []


def test_when_labels_change_the_old_alert_ends(tmp_path: Path, manager: Alertmanager) -> None:
    unknown = {"ranks": [], "rank_count": 0, "suspects": []}
    with alerting(tmp_path, manager) as alerts:
        alerts.send()
        alerts.judged(an_incident(severity="warning", certainty="suspected", first=unknown))
        before = {key: value for key, value in labels(severity="warning").items() if key != "host"}
        wait_until(lambda: manager.active() == [before])
        alerts.judged(an_incident())
        wait_until(lambda: manager.active() == [labels()])


def test_two_incidents_under_the_same_labels_stand_until_both_are_over(
    tmp_path: Path, manager: Alertmanager
) -> None:
    with alerting(tmp_path, manager, resend_every_s=0.1) as alerts:
        alerts.send()
        alerts.judged(an_incident(), an_incident(id="b2"))
        wait_until(lambda: manager.active() == [labels()])
        alerts.judged(an_incident())
        told = len(manager.got)
        later = manager.wait_for(told + 3)[told:]
        ends = [alert["endsAt"] > _text(one.at) for one in later for alert in one.json]
        assert len(ends) >= 3 and all(ends)
        alerts.judged()
        wait_until(lambda: manager.active() == [])


@pytest.mark.parametrize("state", ["resolved", "false_alarm", "muted"])
def test_what_a_person_ends_or_mutes_ends_there_too(
    tmp_path: Path, manager: Alertmanager, state: str
) -> None:
    with alerting(tmp_path, manager, resend_every_s=0.1) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        wait_until(lambda: manager.active() == [labels()])
        decided(alerts, state, time.time() + 1.0 if state == "muted" else None)
        wait_until(lambda: manager.active() == [])
        if state == "muted":
            wait_until(lambda: manager.active() == [labels()])


def test_an_alertmanager_that_was_away_is_told_of_what_stands_then(
    tmp_path: Path, manager: Alertmanager
) -> None:
    take, manager.answer = manager.answer, lambda _: (503, {}, b"")
    with alerting(tmp_path, manager) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        manager.wait_for(2)
        alerts.judged(an_incident(), an_incident(id="b2", label="nan", pattern="immediate_nonfinite"))
        alerts.judged(an_incident(id="b2", label="nan", pattern="immediate_nonfinite"))
        manager.answer = take
        wait_until(lambda: manager.active() == [labels(label="nan")])


def test_a_test_stands_for_a_minute(tmp_path: Path, manager: Alertmanager) -> None:
    with alerting(tmp_path, manager) as alerts:
        with alerts.database.write() as db:
            put_test(db, "am", time.time())
        alerts.send()
        wait_until(lambda: [one["alertname"] for one in manager.active()] == ["FirstfaultTest"])


def kinds(alerts: Alerting) -> list[str]:
    """What deliveries there are."""
    return sorted(row.kind for row in alerts.rows(tables.alert_deliveries))


def _text(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
