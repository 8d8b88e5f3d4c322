"""Settings: what is unknown or out of range stops the start and is named in full; secrets stay secret."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from service.config import Settings, load_settings, setting_keys
from service.config_text import MASK, to_toml
from service.errors import ConfigError


def settings_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "firstfault.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_file_every_setting_has_its_default() -> None:
    assert load_settings(environment={}) == Settings()


def test_a_file_sets_fields_of_nested_tables_and_the_rest_keeps_its_default(tmp_path: Path) -> None:
    path = settings_file(
        tmp_path,
        """
        [kafka]
        bootstrap = ["a:1", "b:2"]
        session_timeout_s = 20
        [kafka.topics]
        telemetry = "train"
        [kafka.client]
        security_protocol = "SSL"
        [pipeline.alignment]
        lateness_iterations = 8
        """,
    )
    settings = load_settings(path, environment={})
    assert settings.kafka.bootstrap == ("a:1", "b:2")
    assert settings.kafka.session_timeout_s == 20.0
    assert settings.kafka.topics.telemetry == "train"
    assert settings.kafka.topics.verdicts == "firstfault.verdicts"
    assert settings.kafka.client == {"security_protocol": "SSL"}
    assert settings.pipeline.alignment.lateness_iterations == 8
    assert settings.worker == Settings().worker


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[kafka]\nbotstrap = []", "kafka.botstrap: unknown key; kafka has bootstrap"),
        ("[kafka.topics]\ntele = 'x'", "kafka.topics.tele: unknown key"),
        ("[kafak]\n", "kafak: unknown key; there is kafka"),
        ("[worker]\njudge_evry_s = 1", "max_losses; did you mean judge_every_s?"),
        ("kafka = 3", "kafka must be a table, got 3"),
        ("[worker]\njudge_every_s = 'often'", "worker.judge_every_s must be a number, got 'often'"),
        ("[worker]\njudge_every_s = -1", "worker.judge_every_s must be from 0.0 to 3600, got -1"),
        ("[worker]\ncheckpoint_every_records = 1.5", "worker.checkpoint_every_records must be an integer"),
        ("[worker]\ncheckpoint_every_records = 0", "worker.checkpoint_every_records must be >= 1, got 0"),
        ("[worker]\ncheckpoint_every_records = true", "worker.checkpoint_every_records must be an integer"),
        ("[kafka]\ncreate_topics = 1", "kafka.create_topics must be true or false, got 1"),
        ("[kafka]\nbootstrap = [1]", "kafka.bootstrap must be text, got 1"),
        (
            "[pipeline.alignment]\nlateness_iterations = 0",
            "pipeline.alignment.lateness_iterations must be >= 1, got 0",
        ),
        (
            "[kafka]\nbootstrap = ['broker']",
            "kafka.bootstrap must be host:port, the port from 1 to 65535, got",
        ),
        ("[kafka]\nbootstrap = ['b:0']", "kafka.bootstrap must be host:port"),
        ("[kafka]\ngroup = ''", "kafka.group must not be empty"),
        ("[kafka.topics]\nverdicts = 'a b'", "kafka.topics.verdicts must be 1 to 249 of a-z"),
        ("[kafka.topics]\ntelemetry = '..'", "kafka.topics.telemetry must be 1 to 249 of a-z"),
        ("[kafka.topics]\ntelemetry = 'firstfault.verdicts'", "dead_letter must be three topics, got"),
        ("[kafka.topics]\ntelemetry_partitions = 0", "kafka.topics.telemetry_partitions must be >= 1, got 0"),
        ("[decode]\npiece_bytes = 0", "decode.piece_bytes must be >= 1, got 0"),
        ("[kafka", "not TOML"),
    ],
)
def test_what_cannot_be_stops_the_start_with_the_full_name(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(settings_file(tmp_path, text), environment={})
    assert message in str(caught.value)


def _numbers() -> list[str]:
    values = tomllib.loads(to_toml(Settings()))
    numbers = []
    for key in setting_keys():
        value: object = values
        for part in key.split("."):
            value = value[part] if isinstance(value, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool):
            numbers.append(key)
    return numbers


@pytest.mark.parametrize("key", _numbers())
def test_every_number_has_bounds(key: str) -> None:
    for value in (-1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match=f"^{re.escape(key)} must be "):
            load_settings(environment={}, overrides={key: value})


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"nowhere.*: No such file"):
        load_settings(Path("/nowhere/x.toml"), environment={})


def test_the_environment_wins_over_the_file_and_the_command_line_over_both(tmp_path: Path) -> None:
    path = settings_file(tmp_path, "[kafka]\nbootstrap = ['file:1']\ngroup = 'g'")
    environment = {"FIRSTFAULT_KAFKA": "env:1, env:2"}
    assert load_settings(path, environment=environment).kafka.bootstrap == ("env:1", "env:2")
    last = load_settings(path, environment=environment, overrides={"kafka.bootstrap": "cli:1"})
    assert last.kafka.bootstrap == ("cli:1",)
    assert last.kafka.group == "g"


def test_shown_settings_read_back_and_hide_secrets(tmp_path: Path) -> None:
    environment = {"FIRSTFAULT_KAFKA": "b:1", "FIRSTFAULT_KAFKA_PASSWORD": "hunter2"}
    shown = to_toml(load_settings(environment=environment))
    assert "hunter2" not in shown
    assert tomllib.loads(shown)["kafka"]["client"]["sasl_plain_password"] == MASK
    again = load_settings(settings_file(tmp_path, shown), environment=environment)
    assert again == load_settings(environment=environment)


def test_every_setting_is_shown() -> None:
    shown = tomllib.loads(to_toml(Settings()))
    for key in setting_keys():
        node: object = shown
        for part in key.split("."):
            assert isinstance(node, dict)
            assert part in node, key
            node = node[part]


@pytest.mark.parametrize("key", ["store.password", "kafka.client.sasl_plain_password"])
def test_the_mask_of_a_secret_is_not_taken_for_the_secret(key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} is the mask that `config show` prints"):
        load_settings(environment={}, overrides={key: MASK})


def test_a_variable_may_name_a_file_that_holds_it(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("correct horse \n")
    environment = {"FIRSTFAULT_STORE_PASSWORD_FILE": str(secret)}
    assert load_settings(environment=environment).store.password == "correct horse "
    with pytest.raises(ConfigError, match="must not both be set"):
        load_settings(environment={**environment, "FIRSTFAULT_STORE_PASSWORD": "x"})


@pytest.mark.parametrize(
    ("body", "words"), [(None, "No such file"), (b"\xff", "must be UTF-8"), (b"x" * 70_000, "at most 65536")]
)
def test_a_file_of_a_variable_that_cannot_be_read_is_named(
    tmp_path: Path, body: bytes | None, words: str
) -> None:
    path = tmp_path / "secret"
    if body is not None:
        path.write_bytes(body)
    with pytest.raises(ConfigError, match=words) as told:
        load_settings(environment={"FIRSTFAULT_KAFKA_PASSWORD_FILE": str(path)})
    assert str(told.value).startswith(f"FIRSTFAULT_KAFKA_PASSWORD_FILE: {path}: ")
