"""What is said of an incident, in the shape of each kind of channel.

An *alert* is a JSON object of ours that the outbox keeps: what a person needs without opening anything. From
it come the body of a webhook (Alertmanager's version 4, with ours beside it), the alerts of an Alertmanager,
and a title and a text for chats and mail. All of it is ASCII; non-finite numbers are strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from ..ink import clean
from ..sentence import LABEL_WORDS, incident_sentence

SCHEMA = 1
"""Version of what ``firstfault`` holds in a webhook's body; it changes when a key is renamed or goes away."""
ALERT_NAME = "FirstfaultIncident"
TEST_NAME = "FirstfaultTest"
_MAX_SUSPECTS = 64
"""Suspects listed in one alert: two nodes of many; the count beside them is whole."""
_MAX_NAME = 256
"""Characters of a host, a device or a run in a message: names are data, and may be 64 kB long."""
_HIDDEN = ("opened_at", "ended_at", "labels")

_MENTION = re.compile(r"@(?=\w)")

Alert = Mapping[str, Any]


def alert_of(
    incident: Mapping[str, Any], verdict: Mapping[str, Any], run_id: str, opened_at: float
) -> dict[str, Any]:
    """What is told of an incident; ``verdict`` is the one that holds it."""
    first = incident["first"]
    suspects = [
        {"rank": one.get("rank"), "host": _name(one.get("host")), "device": _name(one.get("device"))}
        for one in first.get("suspects", ())[:_MAX_SUSPECTS]
    ]
    causes = [{"kind": one["kind"], "confidence": one["confidence"]} for one in incident.get("causes", ())]
    return {
        "incident": str(incident["id"]),
        "run_id": run_id,
        "run": _name(verdict["run"]),
        **{key: str(incident[key]) for key in ("label", "pattern", "certainty", "severity")},
        "sentence": incident_sentence(incident, verdict),
        "attempt": first["attempt"],
        "iteration": first["iteration"],
        "interval": list(first.get("interval") or (None, None)),
        "phase": first.get("phase"),
        "metric": _name(first.get("metric")),
        "ranks": list(first["ranks"])[:_MAX_SUSPECTS],
        "rank_count": first["rank_count"],
        "scope": first.get("scope"),
        "tie": bool(first.get("tie")),
        "suspects": suspects,
        "last_good": incident.get("last_good"),
        "causes": causes,
        "advice": [dict(one) for one in incident.get("advice", ())][:8],
        "opened_at": opened_at,
    }


def sample_alert(channel: str, now: float) -> dict[str, Any]:
    """A message that nobody can take for an incident."""
    return {
        "incident": f"test-{channel}",
        "run_id": "test",
        "run": "test",
        "label": "undetermined",
        "pattern": "test",
        "certainty": "suspected",
        "severity": "info",
        "sentence": f"This is a test of the alert channel {channel}: nothing is wrong.",
        "attempt": 0,
        "iteration": 0,
        "interval": [None, None],
        "phase": None,
        "metric": None,
        "ranks": [],
        "rank_count": 0,
        "scope": "unknown",
        "tie": False,
        "suspects": [],
        "last_good": None,
        "causes": [],
        "advice": [],
        "opened_at": now,
        "event": "test",
        "is_firing": True,
    }


def labels_of(alert: Alert) -> dict[str, str]:
    """Few labels, the same while an incident stands: by them an Alertmanager tells alerts apart."""
    if "labels" in alert:
        return dict(alert["labels"])  # those under which it was told before
    hosts = sorted({str(one["host"]) for one in alert["suspects"] if one["host"]})
    name = TEST_NAME if alert.get("event") == "test" else ALERT_NAME
    labels = {"alertname": name, "run": alert["run"], "label": alert["label"], "severity": alert["severity"]}
    return labels | ({"host": hosts[0]} if len(hosts) == 1 else {})


def annotations_of(alert: Alert) -> dict[str, str]:
    """What changes while an incident stands, in words."""
    last_good = alert["last_good"] or {}
    told = {
        "summary": alert["sentence"],
        "incident": alert["incident"],
        "certainty": alert["certainty"],
        "ranks": _rank_words(alert),
        "iteration": str(alert["iteration"]),
        "interval": "{} to {}".format(*("?" if one is None else one for one in alert["interval"])),
        "last_good_iteration": last_good.get("iteration"),
        "last_good_checkpoint": last_good.get("checkpoint"),
        "cause": alert["causes"][0]["kind"] if alert["causes"] else None,
        "over_because": alert.get("over_because"),
    }
    return {key: str(value) for key, value in told.items() if value not in (None, "")}


def link_to(alert: Alert, base_url: str) -> str:
    """The incident's page."""
    if alert.get("event") == "test":
        return f"{base_url}/"
    return f"{base_url}/?incident={quote(alert['incident'], safe='')}"


def webhook_body(channel: str, alerts: Sequence[Alert], *, base_url: str, now: float) -> bytes:
    """The body of a webhook: Alertmanager's version 4, so that receivers of those understand it."""
    listed = [
        {
            **_standard(alert, base_url, ends_at=alert.get("ended_at")),
            "status": "firing" if alert["is_firing"] else "resolved",
            "fingerprint": alert["incident"],
            "firstfault": _extension(alert, base_url),
        }
        for alert in alerts
    ]
    is_firing = any(alert["is_firing"] for alert in alerts)
    body = {
        "version": "4",
        "groupKey": f"firstfault:{alerts[0]['run_id']}",
        "truncatedAlerts": 0,
        "status": "firing" if is_firing else "resolved",
        "receiver": channel,
        "groupLabels": {"run": alerts[0]["run"]},
        "commonLabels": _common([one["labels"] for one in listed]),
        "commonAnnotations": _common([one["annotations"] for one in listed]),
        "externalURL": base_url,
        "alerts": listed,
        "type": f"incident.{alerts[0]['event']}",
        "timestamp": _time(now),
        "firstfault": {"schema": SCHEMA, "run": alerts[0]["run"], "run_id": alerts[0]["run_id"]},
    }
    return _json(body)


def alertmanager_body(alerts: Sequence[tuple[Alert, float]], *, base_url: str) -> bytes:
    """The body of ``POST /api/v2/alerts``; each alert with the time at which it is over."""
    return _json([_standard(alert, base_url, ends_at=ends_at) for alert, ends_at in alerts])


def text_of(alerts: Sequence[Alert], *, base_url: str) -> tuple[str, str]:
    """A title, and a line or two for each alert, for a chat or a mail."""
    first = alerts[0]
    more = f" and {len(alerts) - 1} more" if len(alerts) > 1 else ""
    label = LABEL_WORDS.get(first["label"], first["label"])
    mark = {"test": "test", "resolved": "over"}.get(first["event"], first["severity"])
    title = f"[firstfault {mark}] {_unaddressed(clean(first['run'], 80))}: {clean(label)}{more}"
    return title, "\n\n".join(_paragraph(alert, base_url) for alert in alerts)


def _paragraph(alert: Alert, base_url: str) -> str:
    lines = [_unaddressed(alert["sentence"])]
    if alert.get("over_because"):
        lines.insert(0, f"Over: {alert['over_because']}.")
    last_good = alert["last_good"] or {}
    if last_good.get("iteration") is not None and alert["is_firing"]:
        checkpoint = _unaddressed(clean(last_good["checkpoint"], 200)) if last_good.get("checkpoint") else ""
        lines.append(
            f"Last good: iteration {last_good['iteration']}{f', {checkpoint}' if checkpoint else ''}."
        )
    return "\n".join([*lines, link_to(alert, base_url)])


def _unaddressed(text: str) -> str:
    """A text that calls nobody: chats wake a whole channel for `@everyone` and `@here`, also in a name."""
    return _MENTION.sub("@ ", text)


def _standard(alert: Alert, base_url: str, *, ends_at: float | None) -> dict[str, Any]:
    """What Alertmanager's own alerts have."""
    return {
        "labels": labels_of(alert),
        "annotations": annotations_of(alert),
        "startsAt": _time(alert["opened_at"]),
        "endsAt": _time(ends_at) if ends_at is not None else "0001-01-01T00:00:00Z",
        "generatorURL": link_to(alert, base_url),
    }


def _extension(alert: Alert, base_url: str) -> dict[str, Any]:
    told = {key: value for key, value in alert.items() if key not in _HIDDEN}
    return {**told, "schema": SCHEMA, "url": link_to(alert, base_url)}


def _common(tables: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {
        key: value for key, value in tables[0].items() if all(one.get(key) == value for one in tables[1:])
    }


def _rank_words(alert: Alert) -> str:
    listed = ", ".join(map(str, alert["ranks"][:16]))
    more = int(alert["rank_count"] or 0) - min(16, len(alert["ranks"]))
    return f"{listed} and {more} more" if listed and more > 0 else listed


def _name(value: object) -> str | None:
    return None if value is None else clean(str(value), _MAX_NAME)


def _time(seconds: float) -> str:
    text = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
