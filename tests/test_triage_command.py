"""`firstfault mute` and `feedback` against a real service: what they say, and how they refuse."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.cli import app

from .api_builders import Seeded, seeded, served
from .service_builders import an_incident


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[Seeded, str]]:
    with seeded(tmp_path) as api, served(api.app) as (port, _):
        yield api, f"http://127.0.0.1:{port}"


def command(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--url", url])


def test_a_rule_is_made_listed_and_ended(service: tuple[Seeded, str]) -> None:
    api, url = service
    api.put("llama", an_incident())
    made = command(url, "mute", "add", "--run", "lla*", "--for", "12h", "--comment", "known \x1b[31m")
    assert made.exit_code == 0, made.output
    name = made.stdout.strip()
    assert api.client().get("/v1/incidents/a1").json()["muted_by"]["id"] == name
    listed = command(url, "mute", "list").stdout
    assert (name in listed, "run=lla*" in listed, "\x1b" in listed) == (True, True, False)
    assert json.loads(command(url, "mute", "list", "--json").stdout)["who"] == "local"
    assert "ended by local" in command(url, "mute", "end", name).stderr
    assert "no rule mutes anything" in command(url, "mute", "list").stderr
    assert "over since" in command(url, "mute", "list", "--all").stdout
    assert api.client().get("/v1/incidents/a1").json()["muted_by"] is None


def test_feedback_is_a_table_of_what_people_said(service: tuple[Seeded, str]) -> None:
    api, url = service
    assert "no detector has fired yet" in command(url, "feedback").stderr
    api.put("one", an_incident(id="a1"), an_incident(id="a2"))
    change = {"state": "false_alarm", "note": "a test"}
    api.client().post("/v1/incidents/a1/state", json=change)
    head, line = command(url, "feedback").stdout.splitlines()
    assert " ".join(head.split()) == "detector pattern fired confirmed withdrawn real false precision"
    assert " ".join(line.split()) == "checksum_vote replica_divergence 2 2 0 0 1 0.00 (0.00 to 0.79)"
    assert json.loads(command(url, "feedback", "--json").stdout)["judged"] == 1


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("mute", "add", "--for", "12h", "--comment", "why"), 2, "at least one of run"),
        (("mute", "add", "--run", "a", "--for", "soon", "--comment", "why"), 2, "--for must be a number of"),
        (("mute", "end", "nobody"), 2, "there is no mute 'nobody'"),
    ],
)
def test_a_refusal_is_one_line_that_says_why(
    service: tuple[Seeded, str], arguments: tuple[str, ...], status: int, words: str
) -> None:
    refused = command(service[1], *arguments)
    assert refused.exit_code == status
    assert words in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_a_service_that_does_not_answer_is_status_three() -> None:
    away = command("http://127.0.0.1:9", "feedback")
    assert away.exit_code == 3
    assert "http://127.0.0.1:9" in away.stderr
    assert command("ftp://x", "feedback").exit_code == 2
