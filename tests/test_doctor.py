"""The doctor names what is wrong and its cure: endpoints that are no Kafka, settings, store, disk, clock."""

from __future__ import annotations

import json
import socket
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from service.config import load_settings
from service.database import Database
from service.doctor import machine
from service.doctor.endpoint import look_at
from service.doctor.finding import Finding, State, fail
from service.doctor.machine import look_at_clock, look_at_codecs, look_at_disk, look_at_store
from service.doctor.review import review
from service.doctor_command import DoctorRequest, run_check, run_doctor
from service.edge import Exit
from service.migrations import NEWEST, migrate
from service.store_config import DATABASE, StoreConfig


@contextmanager
def a_server(answer: bytes | None) -> Iterator[str]:
    """The address of a server that answers the first bytes so and ends; None: it never says a word."""
    done = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1000)
            if answer is None:
                done.wait(30)
            else:
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        done.set()
        thread.join()


def last(address: str, **client: object) -> Finding:
    """What the steps to an address end with."""
    return list(look_at(address, client, 0.5))[-1]


def content(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return list(db.iterdump())


def wrong(findings: Iterator[Finding]) -> list[tuple[State, str]]:
    return [(one.state, one.found) for one in findings if one.state is not State.OK]


def test_a_name_that_nobody_knows_is_told_before_anything_else() -> None:
    (found,) = look_at("nowhere.invalid:9092", {}, 0.5)
    assert (found.check, found.state) == ("dns", State.FAIL)
    assert "kafka.bootstrap" in found.cure


def test_a_port_at_which_nothing_listens_is_no_matter_of_the_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found = list(look_at(f"127.0.0.1:{port}", {}, 0.5))
    assert [(one.check, one.state) for one in found] == [("dns", State.OK), ("tcp", State.FAIL)]
    assert found[-1].found == f"127.0.0.1:{port}: nothing listens there"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "takes the connection and says nothing"),
        (b"", "ends the connection at the first request"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is a web server"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "wants TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "speaks another protocol"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x07", "speaks another protocol"),  # an answer to another request
        (b"\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x7f\xff", "speaks another protocol"),  # cut short
        (b"\x00\x00\x00\x40\x00\x00", "ends the connection at the first request"),
    ],
)
def test_what_answers_and_is_no_kafka_is_told_by_what_it_says(answer: bytes | None, told: str) -> None:
    with a_server(answer) as address:
        found = last(address)
    assert (found.check, found.state) == ("kafka", State.FAIL)
    assert found.found == f"{address} {told}"
    assert found.cure


def test_where_tls_is_set_and_none_is_spoken_the_setting_is_named() -> None:
    with a_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        found = last(address, security_protocol="SSL")
    assert (found.check, found.state) == ("tls", State.FAIL)
    assert "kafka.client.security_protocol" in found.cure


def test_files_of_tls_that_cannot_be_used_are_told_before_anything_is_sent(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    with a_server(None) as address:
        found = last(address, security_protocol="SSL", ssl_cafile=str(tmp_path / "ca.pem"))
        socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))).close()
    assert (found.check, found.state) == ("tls", State.FAIL)
    assert "ssl_cafile" in found.cure


@pytest.mark.parametrize(
    ("client", "told"),
    [
        ({}, []),
        ({"security_protocl": "SSL"}, ["kafka.client.security_protocl is no setting of kafka-python"]),
        ({"security_protocol": "TLS"}, ["SASL_SSL, got 'TLS'"]),
        ({"security_protocol": "SSL", "ssl_cafile": "/no/such"}, ["/no/such: No such file or directory"]),
        ({"security_protocol": "SASL_SSL"}, ["kafka.client.sasl_mechanism is missing for SASL_SSL"]),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, ["PLAIN needs username and password"]),
        ({"sasl_mechanism": "PLAIN"}, ["an account is given and not used"]),
        (
            {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": "me",
                "sasl_plain_password": "secret",
            },
            ["the password goes to the broker in the clear"],
        ),
    ],
)
def test_settings_that_can_be_and_will_not_do_are_told(client: dict[str, object], told: list[str]) -> None:
    settings = load_settings(
        environment={}, overrides={f"kafka.client.{name}": one for name, one in client.items()}
    )
    found = list(review(settings))
    assert len(found) == len(told)
    assert all(part in one.found for part, one in zip(told, found, strict=True))
    assert "secret" not in "".join(one.line() for one in found)


def test_checking_settings_connects_to_nothing_and_fails_on_what_cannot_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "firstfault.toml"
    path.write_text('[kafka]\nbootstrap = ["nowhere.invalid:9092"]\n')
    assert run_check(path) == Exit.HEALTHY
    path.write_text('[kafka.client]\nsecurity_protocol = "SASL_SSL"\n')
    assert run_check(path, as_json=True) == Exit.UNUSABLE
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith("ok      settings")
    assert json.loads(told[1])["state"] == "fail"


def test_without_a_broker_the_machine_alone_is_looked_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_doctor(DoctorRequest(data=tmp_path / "new", as_json=True)) == Exit.HEALTHY
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["check"] for one in found] == ["settings", "kafka", "store", "disk", "clock", "alerts"]
    assert not (tmp_path / "new").exists()


def test_the_store_is_opened_and_left_as_it_is(tmp_path: Path) -> None:
    database = Database(tmp_path)
    migrate(database)
    before = content(tmp_path / DATABASE)
    (found,) = look_at_store(tmp_path, StoreConfig())
    database.close()
    assert found.state is State.OK
    assert f"schema {NEWEST} can be written" in found.found
    assert content(tmp_path / DATABASE) == before


def test_a_store_that_somebody_holds_is_told(tmp_path: Path) -> None:
    database = Database(tmp_path)
    migrate(database)
    with database.write():
        (found,) = look_at_store(tmp_path, StoreConfig(busy_timeout_s=0.05))
    database.close()
    assert found.state is State.FAIL
    assert "locked" in found.found
    assert found.cure.startswith("end what holds it")


def test_a_store_of_a_newer_release_is_told(tmp_path: Path) -> None:
    database = Database(tmp_path)
    migrate(database)
    with database.write() as db:
        db.exec_driver_sql(f"PRAGMA user_version = {NEWEST + 1}")
    database.close()
    assert wrong(look_at_store(tmp_path, StoreConfig()))[0][0] is State.FAIL


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (found,) = look_at_store(tmp_path / "file" / "data", StoreConfig())
    assert found.state is State.FAIL
    assert "--data" in found.cure


@pytest.mark.postgres
def test_the_server_of_the_store_is_asked_for_its_time(new_database: str) -> None:
    config = StoreConfig(url=new_database)
    (store,) = look_at_store(Path(), config)
    assert (store.state, store.cure) == (State.WARN, f"the service will bring it to {NEWEST}")
    *_, clock = look_at_clock(config)
    assert clock.state is State.OK
    assert clock.found.endswith("at the server of the store")
    away = StoreConfig(url="postgresql://me:secret@127.0.0.1:9/none")
    (gone,) = look_at_store(Path(), away)
    assert gone.state is State.FAIL
    assert "secret" not in gone.line()


@pytest.mark.parametrize(("name", "state"), [("LEAST_FREE_BYTES", State.FAIL), ("ROOM_BYTES", State.WARN)])
def test_a_disk_that_is_nearly_full_is_told(
    name: str, state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, name, 1 << 62)
    (found,) = look_at_disk(tmp_path / "not" / "there")
    assert found.state is state
    assert found.found.startswith(str(tmp_path))


@pytest.mark.parametrize(("kernel", "state"), [(0, State.OK), (5, State.WARN), (None, State.SKIPPED)])
def test_a_clock_that_nobody_corrects_is_told(
    kernel: int | None, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_clock_state", lambda: kernel)
    assert [one.state for one in look_at_clock(StoreConfig())] == [state]


def test_the_kernel_is_asked_for_the_state_of_its_clock() -> None:
    assert machine._clock_state() in (None, *range(6))


def test_a_codec_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(look_at_codecs(1 << 20)) == []
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    assert wrong(look_at_codecs(1 << 20)) == [(State.FAIL, "lz4, zstd cannot be unpacked")]


def test_what_a_server_says_cannot_write_on_the_terminal() -> None:
    found = fail("sasl", "refused: \x1b[2J\nok all is well \u202e", "look")
    assert "\x1b" not in found.line()
    assert "\n" not in found.line()
    assert "\u202e" not in found.line()
