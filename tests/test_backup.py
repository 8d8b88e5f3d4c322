"""A backup taken under load, put back elsewhere, goes on where it was; a damaged one is refused."""

from __future__ import annotations

import gzip
import io
import sqlite3
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ingest.spool import Spool, SpoolConfig
from service.backup import BackupError, back_up
from service.cli import app
from service.config import Settings, WorkerConfig
from service.migrations import NEWEST
from service.restore import restore
from service.store import Store
from service.worker_process import work_on_spool

from .api_builders import wait_until
from .service_builders import batches_of, log_lines
from .test_worker import offline

NDJSON = "application/x-ndjson"
QUICK = Settings(
    worker=WorkerConfig(
        compiles_beforehand=False,
        poll_timeout_s=0.02,
        judge_every_s=0.02,
        settle_after_s=0.2,
        checkpoint_every_s=0.1,
        health_every_s=0.05,
    ),
    # nothing that was covered is kept: what a backup needs must be there by its own care
    spool=SpoolConfig(keep_bytes=0),
)
LINES = log_lines("job", ranks=4, iterations=300, odd_rank=3, odd_from=200)


@contextmanager
def working(data_dir: Path) -> Iterator[None]:
    """A worker on the spool of a folder."""
    stop = threading.Event()
    thread = threading.Thread(target=work_on_spool, args=(QUICK, data_dir, stop, lambda _: None))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def send(data_dir: Path, bodies: list[bytes]) -> None:
    spool = Spool(data_dir, QUICK.spool)
    for body in bodies:
        spool.append([(NDJSON, body)])
    spool.close()


def verdict(data_dir: Path) -> bytes | None:
    store = Store(data_dir, read_only=True)
    try:
        return store.canonical_of("job")
    finally:
        store.close()


def next_seq(data_dir: Path) -> int:
    spool = Spool(data_dir)
    try:
        return spool.next_seq()
    finally:
        spool.close()


def bodies(size: int = 20) -> list[bytes]:
    return [b"\n".join(LINES[at : at + size]) for at in range(0, len(LINES), size)]


def test_a_backup_under_load_goes_on_elsewhere_with_the_same_verdict(tmp_path: Path) -> None:
    expected = offline(batches_of(LINES))["job"]
    data_dir, sent = tmp_path / "live", bodies()
    Store(data_dir).close()
    made: list[Path] = []
    with working(data_dir):
        for at, body in enumerate(sent):
            send(data_dir, [body])
            if at % 15 == 7:
                made.append(tmp_path / f"{at}.tar.gz")
                back_up(data_dir, made[-1])
        wait_until(lambda: verdict(data_dir) == expected)
    assert len(made) == 4
    for path in made:
        elsewhere = tmp_path / path.name.partition(".")[0]
        restore(path, elsewhere)
        rest = sent[next_seq(elsewhere) - 1 :]
        assert 0 < len(rest) < len(sent)
        with working(elsewhere):
            send(elsewhere, rest)
            wait_until(lambda where=elsewhere: verdict(where) == expected)  # type: ignore[misc]
        assert incidents(elsewhere) == incidents(data_dir)


def incidents(data_dir: Path) -> list[object]:
    store = Store(data_dir, read_only=True)
    try:
        return [one["id"] for one in store.incidents()]
    finally:
        store.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small backup, with spool and history."""
    folder = tmp_path_factory.mktemp("made")
    data_dir = folder / "data"
    Store(data_dir).close()
    send(data_dir, bodies()[:3])
    (data_dir / "history" / "windows").mkdir(parents=True)
    (data_dir / "history" / "windows" / "a.parquet").write_bytes(b"rows")
    (data_dir / "history" / "windows" / ".b.tmp").write_bytes(b"unfinished")
    back_up(data_dir, folder / "made.tar.gz")
    return folder / "made.tar.gz"


def repacked(made: Path, path: Path, change: dict[str, bytes | None]) -> Path:
    """The backup with some members replaced, added, or (None) left out."""
    with tarfile.open(made) as old, tarfile.open(path, "w:gz") as new:
        held = {one.name: old.extractfile(one).read() for one in old}  # type: ignore[union-attr]
        for name, body in {**held, **change}.items():
            if body is not None:
                info = tarfile.TarInfo(name)
                info.size = len(body)
                new.addfile(info, io.BytesIO(body))
    return path


def test_a_backup_holds_store_spool_and_history_and_nothing_unfinished(made: Path, tmp_path: Path) -> None:
    manifest = restore(made, tmp_path / "new")
    assert set(manifest["files"]) == {"firstfault.sqlite3", "spool.sqlite3", "history/windows/a.parquet"}
    assert (tmp_path / "new" / "history" / "windows" / "a.parquet").read_bytes() == b"rows"
    assert next_seq(tmp_path / "new") == 4
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"history/windows/a.parquet": b"rowz"}, "is not what was backed up"),
        ({"history/windows/a.parquet": None}, "is not what was backed up"),
        ({"manifest.json": None}, "its manifest is missing"),
        ({"manifest.json": b"{}"}, "its manifest cannot be read"),
        ({"manifest.json": b'{"format": 2, "files": {}, "made_by": "x"}'}, "has format 2"),
    ],
)
def test_a_changed_backup_is_refused_and_leaves_nothing(
    made: Path, tmp_path: Path, change: dict[str, bytes | None], words: str
) -> None:
    path = repacked(made, tmp_path / "changed.tar.gz", change)
    with pytest.raises(BackupError, match=words):
        restore(path, tmp_path / "new")
    assert [one.name for one in tmp_path.iterdir()] == ["changed.tar.gz"]


@pytest.mark.parametrize(
    "name", ["../evil", "/etc/passwd", "history/../../x", "other.txt", "history/.hidden"]
)
def test_names_that_no_backup_has_are_not_unpacked(tmp_path: Path, name: str) -> None:
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo(name))
    with pytest.raises(BackupError, match="which no backup does"):
        restore(path, tmp_path / "deep" / "new")
    assert [one.name for one in tmp_path.rglob("*")] == ["evil.tar.gz", "deep"]


def test_links_are_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        info = tarfile.TarInfo("spool.sqlite3")
        info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(info)
    with pytest.raises(BackupError, match="which no backup does"):
        restore(path, tmp_path / "new")


def test_a_file_that_was_cut_off_or_is_no_backup_is_refused(made: Path, tmp_path: Path) -> None:
    for body in (made.read_bytes()[:-2000], b"no backup", gzip.compress(b"no tar"), b""):
        path = tmp_path / "cut.tar.gz"
        path.write_bytes(body)
        with pytest.raises(BackupError):
            restore(path, tmp_path / "new")
        assert not (tmp_path / "new").exists()


def test_the_store_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    Store(data_dir).close()
    with sqlite3.connect(data_dir / "firstfault.sqlite3") as db:
        db.execute(f"PRAGMA user_version = {NEWEST + 1}")
    db.close()
    back_up(data_dir, tmp_path / "newer.tar.gz")
    with pytest.raises(BackupError, match="update firstfault"):
        restore(tmp_path / "newer.tar.gz", tmp_path / "new")


def test_nothing_is_written_over(made: Path, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    Store(data_dir).close()
    with pytest.raises(BackupError, match="must be an empty folder"):
        restore(made, data_dir)
    with pytest.raises(BackupError, match="exists"):
        back_up(data_dir, made)
    with pytest.raises(BackupError, match="no store here"):
        back_up(tmp_path / "nothing", tmp_path / "b.tar.gz")


def test_the_commands_say_what_they_did_and_name_the_tools_of_postgresql(tmp_path: Path) -> None:
    data_dir, out = tmp_path / "data", tmp_path / "b.tar.gz"
    Store(data_dir).close()
    runner = CliRunner()
    done = runner.invoke(app, ["backup", str(out), "--data", str(data_dir)])
    assert (done.exit_code, "1 files" in done.stderr) == (0, True)
    done = runner.invoke(app, ["restore", str(out), "--data", str(tmp_path / "new")])
    assert (done.exit_code, "firstfault serve --data" in done.stderr) == (0, True)
    config = tmp_path / "f.toml"
    config.write_text('[store]\nurl = "postgresql://me:secret@db/faults"\n')
    for command, tool in (("backup", "pg_dump --format=custom --file"), ("restore", "pg_restore --clean")):
        refused = runner.invoke(app, [command, str(out), "--config", str(config)])
        assert refused.exit_code == 2
        assert tool in refused.stderr
        assert "postgresql://me@db/faults" in refused.stderr
        assert "secret" not in refused.stderr
    assert out.stat().st_mode & 0o077 == 0, "names of runs and hosts are private"
