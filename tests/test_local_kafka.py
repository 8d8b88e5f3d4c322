"""The local broker: where it comes from, and starting and stopping it by command."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from service import local_kafka
from service.kafka_jars import BrokerUnavailable, find_java, kafka_jars

MAVEN = """#!/bin/sh
echo called >> "$HERE/calls"
sleep 0.3
for word in "$@"; do
  case "$word" in -DoutputDirectory=*) : > "${word#-DoutputDirectory=}/kafka_2.13-$WHAT.jar" ;; esac
done
"""


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder as search path, and a cache folder of its own."""
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("HERE", str(tmp_path))
    monkeypatch.setenv("WHAT", "4")
    (tmp_path / "tools").mkdir()
    return tmp_path / "tools"


def install(tool: Path, script: str) -> None:
    tool.write_text(script)
    tool.chmod(0o755)


def test_a_missing_java_is_named(tools: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="Java >= 17 is missing"):
        find_java()


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_402"])
def test_an_old_java_is_named_with_its_release(tools: Path, version: str) -> None:
    install(tools / "java", f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    release = version.removeprefix("1.").split(".")[0]
    with pytest.raises(BrokerUnavailable, match=f"Java must be >= 17 .* got {release}"):
        find_java()


def test_a_missing_maven_is_named(tools: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="Maven is missing"):
        kafka_jars("9.9.9")


def test_a_failing_maven_is_quoted_and_nothing_half_done_is_used(tools: Path) -> None:
    install(tools / "mvn", "#!/bin/sh\necho 'no such artifact'\nexit 1\n")
    for _ in range(2):
        with pytest.raises(BrokerUnavailable, match="no such artifact"):
            kafka_jars("9.9.9")


def test_concurrent_callers_download_once_and_later_ones_need_no_maven(
    tools: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    install(tools / "mvn", MAVEN)
    leftover = tmp_path / "cache" / "firstfault" / "kafka-4.partial"
    leftover.mkdir(parents=True)
    (leftover / "half.jar").touch()
    found: list[Path] = []
    callers = [threading.Thread(target=lambda: found.append(kafka_jars("4"))) for _ in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert (tmp_path / "calls").read_text() == "called\n"
    (tools / "mvn").unlink()
    monkeypatch.setenv("PATH", str(tools))
    assert {*found, kafka_jars("4")} == {tmp_path / "cache" / "firstfault" / "kafka-4"}
    assert [jar.name for jar in found[0].iterdir()] == ["kafka_2.13-4.jar"]


@pytest.mark.kafka
def test_the_command_starts_a_broker_that_outlives_it_and_stops_it(
    broker: local_kafka.LocalKafka, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])

    def run(action: str, data: str = "data") -> tuple[int, str]:
        options = ["--port", port, "--data", str(tmp_path / data)]
        command = [sys.executable, "-m", "service.local_kafka", action, *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        return done.returncode, done.stdout + done.stderr

    assert run("status") == (1, "Kafka is not running\n")
    status, said = run("start")
    try:
        assert (status, said[: said.index(" (")]) == (0, f"Kafka is ready on 127.0.0.1:{port}")
        assert f"running already on 127.0.0.1:{port}" in run("start")[1]
        assert run("status")[0] == 0
        status, said = run("start", data="other")
        assert status == 3
        assert "is taken by another program" in said
    finally:
        assert run("stop") == (0, "Kafka has stopped\n")
    assert run("status")[0] == 1
    assert not local_kafka.answers(int(port))


@pytest.mark.kafka
def test_a_killed_broker_starts_again_with_its_topics(broker: local_kafka.LocalKafka, tmp_path: Path) -> None:
    from kafka import KafkaAdminClient

    with local_kafka.LocalKafka(tmp_path) as own:
        admin = KafkaAdminClient(bootstrap_servers=[own.address])
        admin.create_topics({"kept": {"num_partitions": 1}}, wait_for_metadata=True)
        admin.close()
        assert own.pid is not None
        os.kill(own.pid, signal.SIGKILL)
        own.restart()
        admin = KafkaAdminClient(bootstrap_servers=[own.address])
        assert "kept" in admin.list_topics()
        admin.close()
