"""What keeps `firstfault serve` from starting, and where its worker is sent to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.errors import SpoolUnusable
from service.errors import ConfigError, StoreError
from service.folder_lock import FolderLock
from service.serve_command import ServeRequest, _reasons, listen, run_serve, worker_command
from service.supervisor import ChildState


def a_request(folder: Path, host: str = "127.0.0.1") -> ServeRequest:
    return ServeRequest(host=host, port=0, data=folder, kafka=None, config=None)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7"])
def test_without_a_token_others_are_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr("service.serve_command.log_to", lambda stream: None)
    with pytest.raises(
        ConfigError, match=rf"serve\.host: {host} can be reached by others, which needs a token"
    ):
        run_serve(a_request(tmp_path, host))
    FolderLock(tmp_path, "serve").release()  # nothing is held by a service that did not start


def test_a_store_or_a_spool_that_cannot_be_used_stops_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.serve_command.log_to", lambda stream: None)
    spool = tmp_path / "spool.sqlite3"
    spool.write_bytes(b"not a database at all, but long enough" * 100)
    with pytest.raises(SpoolUnusable, match=r"spool\.sqlite3"):
        run_serve(a_request(tmp_path))
    spool.rename(tmp_path / "firstfault.sqlite3")
    with pytest.raises(StoreError, match=r"firstfault\.sqlite3"):
        run_serve(a_request(tmp_path))


def test_an_address_that_is_not_ours_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigError, match=r"serve\.host and serve\.port: 192\.0\.2\.7:80: Cannot assign"):
        listen("192.0.2.7", 80)
    with pytest.raises(ConfigError, match=r"no-such-host\.invalid:80"):
        listen("no-such-host.invalid", 80)


def test_the_worker_reads_kafka_where_a_broker_is_named_and_else_the_spool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "f.toml"

    def source(kafka: str | None = None, settings: str = "", variable: str = "") -> list[str]:
        monkeypatch.setenv("FIRSTFAULT_KAFKA", variable)
        file.write_text(settings)
        request = ServeRequest(host=None, port=None, data=tmp_path, kafka=kafka, config=file)
        words = worker_command(request)
        assert request.uses_kafka == ("--spool" not in words)
        return words[words.index(str(file)) + 1 :]

    assert source() == ["--spool"]
    assert source(settings="[kafka]\ngroup = 'x'\n") == ["--spool"]
    assert source(kafka="b:1") == ["--kafka", "b:1"]
    assert source(settings="[kafka]\nbootstrap = ['b:1']\n") == []
    assert source(variable="b:1") == []


def test_a_service_that_cannot_keep_telemetry_says_so() -> None:
    healthy = ChildState(pid=1, restarts=0, early_deaths=0, last_end="", is_crash_looping=False)
    assert _reasons(healthy, "") == []
    (reason,) = _reasons(healthy, "spool.sqlite3: database or disk is full")
    assert (reason.code, reason.makes_stale) == ("intake-refuses", True)
    assert "database or disk is full" in reason.detail
