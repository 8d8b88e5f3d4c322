"""What docs/alerts.md says holds: its recipes verify our signatures, and no secret is ever shown."""

from __future__ import annotations

import base64
import logging
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from service.alerts.config import ChannelKind
from service.alerts.signing import signed_headers
from service.config import load_settings
from service.config_text import to_toml

from .alert_builders import OLD_SECRET, SECRET, Alerting, Got, Receiver, a_webhook, quick, wait_until
from .service_builders import an_incident

TEXT = (Path(__file__).parent.parent / "docs" / "alerts.md").read_text("utf-8")
PLANTED = "pl4nted-in-the-address"


def blocks(language: str) -> list[str]:
    """The code of one language in the page."""
    return re.findall(rf"^```{language}\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture
def got(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Got:
    """A message that was signed with the new secret and the old."""
    monkeypatch.setenv("HOOK", f"{SECRET} {OLD_SECRET}")
    with Receiver() as receiver, Alerting(tmp_path, quick({"ops": a_webhook(receiver.url)})) as alerts:
        alerts.send()
        alerts.judged(an_incident())
        return receiver.wait_for(1)[0]


def test_the_recipe_in_python_knows_our_signatures_and_no_others(got: Got) -> None:
    namespace: dict[str, Any] = {}
    (code,) = blocks("python")
    exec(code, namespace)  # noqa: S102  # the page's own words, as a reader would paste them
    is_ours = namespace["is_ours"]
    assert is_ours(got.headers, got.body, SECRET) and is_ours(got.headers, got.body, OLD_SECRET)
    assert not is_ours(got.headers, got.body + b" ", SECRET)
    assert not is_ours(got.headers, got.body, "whsec_" + "A" * 32)
    assert not is_ours({**got.headers, "webhook-timestamp": "1764470000"}, got.body, SECRET)


def test_the_recipe_for_the_shell_gives_our_signature(got: Got, tmp_path: Path) -> None:
    (tmp_path / "body.json").write_bytes(got.body)
    (code,) = blocks("sh")
    message = {
        "ID": got.headers["webhook-id"],
        "TIMESTAMP": got.headers["webhook-timestamp"],
        "SECRET": SECRET,
    }
    done = subprocess.run(
        ["sh", "-c", code],
        cwd=tmp_path,
        env={**os.environ, **message, "SECRET": SECRET},
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode().strip() == got.headers["webhook-signature"].split(" ")[0]


def test_the_signature_is_that_of_the_specification() -> None:
    # the example that the specification's reference libraries share
    secret = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    body = b'{"test": 2432232314}'
    headers = signed_headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, [base64.b64decode(secret)])
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_every_channel_of_the_page_can_be() -> None:
    kinds = set()
    for text in blocks("toml"):
        for channel in tomllib.loads(text)["alerts"]["channels"].values():
            kinds.add(channel["kind"])
    assert kinds == {str(kind.value) for kind in ChannelKind}
    assert all(load_settings_of(text).alerts.channels for text in blocks("toml"))


def load_settings_of(text: str) -> Any:
    """The settings that a block of the page makes."""
    tables = tomllib.loads(text)["alerts"]
    channels = {
        f"alerts.channels.{name}.{key}": value
        for name, channel in tables["channels"].items()
        for key, value in channel.items()
    }
    return load_settings(environment={}, overrides=channels)


def test_settings_with_channels_are_shown_without_secrets_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "ff.toml"
    path.write_text(
        '[alerts.channels.ops]\nkind = "webhook"\nurl = "https://h.example/x"\nsecret_env = "HOOK"\n'
        'labels = ["nan"]\n[alerts.channels.chat]\nkind = "apprise"\nurl_file = "/run/secrets/chat"\n'
    )
    settings = load_settings(path, environment={"HOOK": SECRET})
    shown = tmp_path / "shown.toml"
    shown.write_text(to_toml(settings))
    assert SECRET not in shown.read_text()
    assert load_settings(shown, environment={}) == settings


def test_no_secret_is_in_the_log_when_everything_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("HOOK", SECRET)
    monkeypatch.setenv("WHERE", f"http://127.0.0.1:9/{PLANTED}")
    monkeypatch.setenv("TOKEN", PLANTED)
    with Receiver(lambda _: (500, {}, PLANTED.encode())) as receiver:
        channels = {
            "closed": a_webhook("", url_env="WHERE", token_env="TOKEN"),
            "failing": a_webhook(f"{receiver.url}/{PLANTED}", token_env="TOKEN"),
        }
        with Alerting(tmp_path, quick(channels)) as alerts:
            alerts.send()
            alerts.judged(an_incident())
            receiver.wait_for(2)
            wait_until(lambda: sum("trying again" in one.message for one in caplog.records) == 2)
            assert receiver.got[0].headers["authorization"] == f"Bearer {PLANTED}"
    everything = " ".join(str(vars(one)) for one in caplog.records)
    assert PLANTED not in everything and SECRET not in everything
