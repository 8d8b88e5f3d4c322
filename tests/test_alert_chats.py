"""What chats are sent through apprise: text that calls nobody and links nowhere, in the shape each takes."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import jsonschema
import pytest

from service.alerts import apprise_child
from service.alerts.message import Alert, alert_of, sample_alert, text_of

from .service_builders import Json, a_verdict, an_incident

pytest.importorskip("requests")
# apprise looks for it, once, and goes without it where it is gone
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

HOSTILE = "<!channel> <@U024BE7LH> <http://evil.example|click> @everyone @here [a](http://evil) <b>&amp;"
SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#ops"
TELEGRAM = "tgram://123456789:abcdefg_hijklmnop/12315544/"
DISCORD = "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js"
TEXT = {"type": "string"}
SLACK_MESSAGE = {
    "type": "object",
    "required": ["attachments"],
    "additionalProperties": False,
    "properties": {
        "channel": {"type": "string", "pattern": "^[#@]"},
        "icon_url": {"type": "string", "pattern": "^https://"},
        "mrkdwn": {"const": False},
        "attachments": {
            "type": "array",
            "maxItems": 100,
            "items": {
                "type": "object",
                "required": ["title", "text"],
                "additionalProperties": False,
                "properties": {
                    "title": TEXT,
                    "text": {"type": "string", "maxLength": 40_000},
                    "color": {"type": "string", "pattern": "^#[0-9A-F]{6}$"},
                    "footer": {"type": "string", "maxLength": 300},
                    "footer_icon": TEXT,
                    "ts": {"type": "number"},
                },
            },
        },
    },
}
"""What an incoming webhook of Slack takes, of its documented keys those that are sent."""


class Tags(HTMLParser):
    """The tags of a text, and what stands between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Json]:
    """The bodies that are posted, of which none leaves this machine."""
    import requests

    bodies: list[Json] = []

    def taken(_session: object, **given: Any) -> requests.Response:
        bodies.append(json.loads(given["data"]))
        answer = requests.Response()
        answer.status_code, answer._content = 200, b"ok"
        return answer

    monkeypatch.setattr("requests.Session.request", taken)
    monkeypatch.setattr(apprise_child, "_silence", lambda _: None)
    return bodies


def hostile_alert() -> Alert:
    first = {"suspects": [{"rank": 3, "host": HOSTILE, "device": HOSTILE, "why": ""}], "ranks": [3]}
    incident = an_incident(first=first, last_good={"iteration": 3, "checkpoint": HOSTILE})
    alert = alert_of(incident, a_verdict(HOSTILE, incident), "run", 1.0)
    return {**alert, "event": "opened", "is_firing": True}


def told(url: str, alert: Alert) -> str:
    title, text = text_of([alert], base_url="https://ff.example")
    return apprise_child._sent({"url": url, "title": title, "text": text})


def test_slack_gets_a_message_that_it_takes_whose_names_are_neither_links_nor_calls(sent: list[Json]) -> None:
    assert told(SLACK, hostile_alert()) == "sent"
    (body,) = sent
    jsonschema.validate(body, SLACK_MESSAGE)
    (shown,) = body["attachments"]
    assert not re.search("[<>]", shown["title"] + shown["text"])
    assert not re.search(r"@\w", shown["title"] + shown["text"])
    assert "&lt;!channel&gt;" in shown["title"]
    assert shown["text"].endswith("https://ff.example/?incident=a1")


def test_telegram_gets_markup_that_it_can_read_and_none_of_a_name(sent: list[Json]) -> None:
    assert told(TELEGRAM, hostile_alert()) == "sent"
    (body,) = sent
    read = Tags(body["text"])
    assert (body["parse_mode"], set(read.tags)) == ("HTML", {"b"})
    assert "<http://evil.example|click>" in read.text


def test_discord_is_called_by_no_name(sent: list[Json]) -> None:
    assert told(DISCORD, hostile_alert()) == "sent"
    assert "@ everyone" in sent[0]["content"]
    assert not re.search(r"@\w", sent[0]["content"])


@pytest.mark.parametrize("url", [SLACK, TELEGRAM, DISCORD])
def test_a_test_message_says_so_in_every_chat(sent: list[Json], url: str) -> None:
    assert told(url, sample_alert("pager", 1.0)) == "sent"
    assert "This is a test of the alert channel pager" in json.dumps(sent)
