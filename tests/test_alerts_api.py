"""Alert channels over the API, the command line, `/readyz` and the doctor: how they do, and no secret."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service import tables
from service.alerts import dispatch
from service.alerts.config import AlertsConfig, ChannelConfig, ChannelKind
from service.cli import app
from service.doctor.channels import look_at_channels

from .alert_builders import SECRET, Receiver, a_webhook, an_alertmanager, is_signed, quick
from .api_builders import Seeded
from .service_builders import an_incident

PLANTED = "s3cr3t-in-the-path"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK", SECRET)
    monkeypatch.setenv("CHAT", f"slack://{PLANTED}/b/c")


CHAT = ChannelConfig(kind=ChannelKind.APPRISE, url_env="CHAT")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Seeded]:
    channels = {"ops": a_webhook(f"https://hooks.example/{PLANTED}"), "chat": CHAT}
    seeded = Seeded(tmp_path, alerts=AlertsConfig(channels=channels))
    yield seeded
    seeded.store.close()


def told(seeded: Seeded, path: str) -> Any:
    answer = seeded.client().get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_channels_are_told_with_their_results_and_without_their_secrets(api: Seeded) -> None:
    with api.store.database.write() as db:
        dispatch.count(db, "ops", "sent", time.time(), "answered 204")
        dispatch.count(db, "gone", "given_up", time.time(), "answered 410")
    answer = api.client().get("/v1/alerts/channels")
    assert PLANTED not in answer.text and SECRET not in answer.text
    items = {one["name"]: one for one in answer.json()["items"]}
    assert (items["ops"]["target"], items["ops"]["results"][0]["messages"]) == ("https://hooks.example/…", 1)
    assert (items["chat"]["target"], items["chat"]["kind"]) == ("slack://…", "apprise")
    assert (items["gone"]["kind"], items["gone"]["is_failing"]) == (None, True)


def test_deliveries_are_paged_and_say_what_they_told(api: Seeded) -> None:
    for number in range(3):
        api.put(f"run-{number}", an_incident(id=f"i{number}"))
    first = told(api, "/v1/alerts/deliveries?channel=ops&limit=2")
    second = told(api, f"/v1/alerts/deliveries?channel=ops&limit=2&cursor={first['next']}")
    items = [*first["items"], *second["items"]]
    assert [one["run"] for one in items] == ["run-2", "run-1", "run-0"]
    assert (second["next"], {one["state"] for one in items}) == (None, {"waiting"})
    assert items[0]["incidents"][0]["event"] == "opened"
    assert told(api, "/v1/alerts/deliveries?state=sent")["items"] == []


def test_a_test_is_put_out_for_a_worker_and_an_unknown_channel_is_not_found(api: Seeded) -> None:
    answer = api.client().post("/v1/alerts/channels/ops/test")
    assert answer.status_code == 202
    (item,) = told(api, "/v1/alerts/deliveries")["items"]
    assert (item["id"], item["kind"]) == (answer.json()["id"], "test")
    assert api.client().post("/v1/alerts/channels/nobody/test").status_code == 404


def test_readiness_names_a_channel_that_does_not_work_and_no_other(api: Seeded) -> None:
    def reasons() -> list[str]:
        found = told(api, "/readyz")["reasons"]
        return [one["detail"] for one in found if one["code"] == "alerts-failing"]

    api.put("job", an_incident())
    assert reasons() == []
    with api.store.database.write() as db:
        db.execute(tables.alert_deliveries.update().values(created_at=time.time() - 3600.0))
        dispatch.count(db, "ops", "failed", time.time(), "answered 503")
        dispatch.count(db, "chat", "sent", time.time(), "taken")
    assert reasons() == [
        "the alert channel chat does not work: 1 messages wait and no worker sends them",
        "the alert channel ops does not work: 1 messages wait, the last try failed: answered 503",
    ]


def run(folder: Path, *arguments: str, channels: str) -> Any:
    path = folder / "ff.toml"
    path.write_text(channels)
    return CliRunner().invoke(app, ["alerts", *arguments, "--config", str(path)])


def channel(url: str) -> str:
    return (
        f'[alerts.channels.ops]\nkind = "webhook"\nurl = "{url}"\nsecret_env = "HOOK"\nallow_private = true\n'
    )


def test_the_command_sends_a_signed_test_and_says_what_became_of_it(tmp_path: Path) -> None:
    with Receiver() as receiver:
        good = run(tmp_path, "test", "ops", channels=channel(f"{receiver.url}/{PLANTED}"))
        receiver.answer = lambda _: (302, {"Location": "http://169.254.169.254/"}, b"")
        bad = run(tmp_path, "test", "ops", channels=channel(receiver.url))
    assert (good.exit_code, good.stderr) == (0, "firstfault: ops: answered 200\n")
    assert is_signed(receiver.got[0], SECRET)
    assert (bad.exit_code, "redirects are not followed" in bad.stderr, len(receiver.got)) == (3, True, 2)


def test_the_command_names_a_channel_that_is_not_there_or_has_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = channel("http://127.0.0.1:9/")
    unknown = run(tmp_path, "test", "opps", channels=text)
    monkeypatch.delenv("HOOK")
    missing = run(tmp_path, "test", "ops", channels=text)
    assert (unknown.exit_code, "there is no channel 'opps', only ops" in unknown.stderr) == (2, True)
    assert (missing.exit_code, "secret_env: HOOK: is empty or not set" in missing.stderr) == (2, True)


def test_the_list_names_channels_without_their_secrets(tmp_path: Path) -> None:
    text = channel(f"https://hooks.example/{PLANTED}")
    listed = run(tmp_path, "list", "--json", "--data", str(tmp_path / "none"), channels=text)
    plain = run(tmp_path, "list", "--data", str(tmp_path / "none"), channels=text)
    assert json.loads(listed.stdout)["target"] == "https://hooks.example/…"
    assert plain.stdout.startswith("ops  webhook https://hooks.example/…  warning and confirmed or more")
    assert PLANTED not in listed.output + plain.output


def test_the_doctor_has_one_line_for_each_channel_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAD", "no-whsec")
    with Receiver() as receiver:
        channels = {
            "good": an_alertmanager(receiver.url),
            "closed": an_alertmanager("http://127.0.0.1:9"),
            "inside": an_alertmanager("https://127.0.0.1", allow_private=False),
            "unsigned": a_webhook(receiver.url, secret_env="BAD"),
            "chat": CHAT,
        }
        found = list(look_at_channels(quick(channels)))
    assert [str(one.state) for one in found] == ["ok", "fail", "fail", "fail", "ok"]
    assert found[2].cure == "correct the address, or set allow_private = true"
    assert "a secret must be whsec_" in found[3].found
    assert all(PLANTED not in one.line() and "no-whsec" not in one.line() for one in found)
    assert receiver.got == []
