"""`firstfault what-if`: of a log, of a run of a service, and of a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from firstfault import Client
from firstfault.client_errors import Conflict
from service.cli import app
from service.local_kafka import LocalKafka

from .api_builders import Seeded, seeded, served
from .conftest import NewTopic
from .kafka_builders import produce_keyed
from .service_builders import an_incident, log_lines, write_log
from .test_what_if import growing, recorded

CALM = ("--set", "detectors.explosion.ten_fold=50", "--set", "detectors.explosion.norm_hold=100.0")


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["what-if", *arguments])


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[Seeded, str]]:
    folder = tmp_path / "history"
    verdict = recorded(folder, growing())
    with seeded(tmp_path, history_folder=folder) as api, served(api.app) as (port, _):
        api.put_verdict(verdict)
        yield api, f"http://127.0.0.1:{port}"


def test_a_log_is_judged_under_both_settings(tmp_path: Path) -> None:
    log = write_log(tmp_path / "job.jsonl", growing())
    told = command(str(log), *CALM)
    assert told.exit_code == 1
    assert told.stdout.splitlines()[0] == "job: gradient_explosion now, healthy under the other settings"
    assert "    certainty: confirmed → suspected" in told.stdout.splitlines()
    same = command(str(log), "--set", "detectors.stall.silent_iterations=65")
    assert (same.exit_code, "stays: The gradient norm" in same.stdout) == (0, True)


def test_two_files_of_settings_are_compared(tmp_path: Path) -> None:
    log = write_log(tmp_path / "job.jsonl", growing())
    for name, value in (("now", 8.0), ("other", 100.0)):
        text = f"[detectors.explosion]\nnorm_hold = {value}\nten_fold = 50.0\n"
        (tmp_path / f"{name}.toml").write_text(text)
    files = ("--base", str(tmp_path / "now.toml"), "--config", str(tmp_path / "other.toml"))
    one = json.loads(command(str(log), *files, "--json").stdout)
    assert (one["run"], one["after"]["label"], [part["kind"] for part in one["differences"]]) == (
        "job",
        "healthy",
        ["changes"],
    )


def test_a_run_of_the_service_is_judged_out_of_its_history(service: tuple[Seeded, str]) -> None:
    _, url = service
    told = command("job", *CALM, "--url", url)
    assert told.exit_code == 1, told.output
    assert "    certainty: confirmed → suspected" in told.stdout.splitlines()
    answer = Client(url).what_if("job", {"detectors.stall.silent_iterations": 65})
    assert [one["kind"] for one in answer["differences"]] == ["stays"]


def test_what_history_does_not_give_again_is_refused_in_words(service: tuple[Seeded, str]) -> None:
    api, url = service
    api.put("bare", an_incident())
    refused = command("bare", *CALM, "--url", url)
    assert refused.exit_code == 2
    assert "no values of single ranks are kept of attempt 0" in refused.stderr
    with pytest.raises(Conflict, match="no values of single ranks"):
        Client(url).what_if("bare", {"detectors.explosion.norm_hold": 100.0})


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "both settings are the same"),
        (("--set", "detectors.explosion"), "--set must be NAME=VALUE"),
        (("--set", "detectors.explosion.norm_hold=much"), "must be a number"),
        (("--set", "store.url=x"), "only settings of detectors can be tried"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    log = write_log(tmp_path / "job.jsonl", growing(iterations=20))
    refused = command(str(log), *arguments)
    assert refused.exit_code == 2
    assert words in refused.stderr


@pytest.mark.kafka
def test_a_run_is_judged_from_its_topic_with_others_beside_it(
    broker: LocalKafka, new_topic: NewTopic, tmp_path: Path
) -> None:
    topic = new_topic(1)
    produce_keyed(broker.address, topic, growing())
    produce_keyed(broker.address, topic, log_lines("other", iterations=40, odd_rank=3, odd_from=20))
    settings = tmp_path / "other.toml"
    settings.write_text(f'[kafka.topics]\ntelemetry = "{topic}"\n')
    files = ("--base", str(settings), "--config", str(settings))
    told = command("job", *CALM, *files, "--kafka", broker.address)
    assert told.exit_code == 1, told.output
    assert told.stdout.splitlines()[0] == "job: gradient_explosion now, healthy under the other settings"
    assert "other" not in told.stdout.splitlines()[1]
    nobody = command("nobody", *CALM, *files, "--kafka", broker.address)
    assert (nobody.exit_code, "no record of a run 'nobody'" in nobody.stderr) == (2, True)
    forget_first(broker.address, topic, 10)
    cut = command("job", *CALM, *files, "--kafka", broker.address)
    assert (cut.exit_code, "begins at offset 10: the topic has let go of records" in cut.stderr) == (2, True)


def forget_first(address: str, topic: str, count: int) -> None:
    """Let the topic go of the first records of every partition, as its retention would."""
    from kafka import KafkaAdminClient, TopicPartition

    admin = KafkaAdminClient(bootstrap_servers=[address])
    admin.delete_records({TopicPartition(topic, number): count for number in (0,)})
    admin.close()
