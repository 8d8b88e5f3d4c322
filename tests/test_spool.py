"""The spool: what it acknowledged is there, what it cannot hold is refused, what is missing is told."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from ingest.decode import Decoder
from ingest.errors import SourceUnavailable, SpoolFull, SpoolUnusable
from ingest.source import Source
from ingest.spool import SPOOL, Spool, SpoolConfig
from ingest.spool_source import PART, SpoolSource

from .kafka_builders import claiming, line

APPENDER = """
import sys
from pathlib import Path
from ingest.spool import Spool
spool = Spool(Path(sys.argv[1]))
while True:
    seq = spool.next_seq()
    body = b"%d " % seq + b"x" * 5000
    print(spool.append([(None, body), ("text/plain", body)]), flush=True)
"""


def a_spool(folder: Path, *iterations: int, **config: float) -> Spool:
    """A spool that holds a record for each iteration."""
    spool = Spool(folder, SpoolConfig(**config))  # type: ignore[arg-type]  # checked by the dataclass
    for iteration in iterations:
        spool.append([(None, line(iteration))])
    return spool


def read_all(source: SpoolSource) -> list[int]:
    found: list[int] = []
    while batches := source.poll(0.0):
        found += [int(iteration) for batch in batches for iteration in batch.iteration_N]
    return found


def test_what_was_acknowledged_survives_kill_9_at_any_moment(tmp_path: Path) -> None:
    acknowledged: list[int] = []
    for run in range(4):
        command = [sys.executable, "-c", APPENDER, str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            acknowledged += [int(child.stdout.readline()) for _ in range(5 + 20 * run)]
            child.kill()
            acknowledged += [int(left) for left in child.stdout.read().splitlines()]

    spool = Spool(tmp_path)
    rows = spool.read(1, 10_000, 1 << 30)
    usage = spool.usage()
    spool.close()
    held = {one.seq: one.body for one in rows}
    assert all(held[seq].startswith(b"%d " % (seq - 1)) for seq in acknowledged)
    assert len(acknowledged) == len(set(acknowledged))
    # both bodies of a call or none of them, and the sums kept beside them are right
    assert sorted(held) == list(range(1, len(held) + 1))
    assert len(held) % 2 == 0
    assert (usage.rows, usage.bytes) == (len(rows), sum(len(one.body) for one in rows))


def test_a_source_goes_on_at_its_offset_and_each_body_comes_once(tmp_path: Path) -> None:
    spool = a_spool(tmp_path, 0, 1, 2)
    source: Source = SpoolSource(spool, Decoder(), claiming({}))
    assert [int(at) for batch in source.poll(0.0) for at in batch.iteration_N] == [0, 1, 2]
    position = source.position()
    spool.append([(None, line(3) + b"\n" + line(4))])

    again = SpoolSource(spool, Decoder(), claiming(position))
    assert read_all(again) == [3, 4]
    assert (again.position(), again.lag_bodies(), again.is_exhausted) == ({PART: 5}, 0, False)
    spool.close()


def test_a_waiting_poll_hands_out_what_another_connection_appends(tmp_path: Path) -> None:
    reader, writer = a_spool(tmp_path), a_spool(tmp_path)
    source = SpoolSource(reader, Decoder(), claiming({}))
    late = threading.Timer(0.2, writer.append, [[(None, line(7))]])
    late.start()
    cpu_s = time.thread_time()
    (batch,) = source.poll(30.0)
    assert batch.iteration_N.tolist() == [7]
    assert time.thread_time() - cpu_s < 0.15  # it slept
    late.join()
    reader.close()
    writer.close()


def test_a_full_spool_refuses_and_keeps_nothing_of_the_call(tmp_path: Path) -> None:
    spool = a_spool(tmp_path, max_bytes=1 << 20, max_rows=3, keep_bytes=0)
    spool.append([(None, b"x" * (1 << 19))])
    with pytest.raises(SpoolFull, match=r"spool.sqlite3: must hold at most 1048576 bytes, got 1572864"):
        spool.append([(None, b"y" * (1 << 19)), (None, b"z" * (1 << 19))])
    with pytest.raises(SpoolFull, match=r"must hold at most 3 bodies, got 4"):
        spool.append([(None, b"a"), (None, b"b"), (None, b"c")])
    assert (spool.usage().rows, spool.usage().next_seq) == (1, 2)

    assert spool.prune(before_seq=2) == 1
    assert spool.append([(None, b"a"), (None, b"b"), (None, b"c")]) == 4  # numbers are never given twice
    spool.close()


def test_pruning_keeps_what_is_not_covered_and_the_newest_of_what_is(tmp_path: Path) -> None:
    spool = a_spool(tmp_path, *range(3000), keep_bytes=0)
    assert spool.prune(before_seq=2500) == 2499
    assert spool.usage().first_seq == 2500
    spool.close()

    keeping = Spool(tmp_path, SpoolConfig(keep_bytes=10 * len(line(2999))))
    assert keeping.prune(before_seq=3001) == 491
    assert (keeping.usage().rows, keeping.usage().first_seq) == (10, 2991)
    keeping.close()


def test_large_bodies_are_pruned_to_the_last_one_that_is_covered(tmp_path: Path) -> None:
    spool = a_spool(tmp_path, keep_bytes=0)
    for _ in range(5):
        spool.append([(None, b"x" * (7 << 20))])
    assert spool.prune(before_seq=5) == 4
    assert (spool.usage().rows, spool.usage().bytes, spool.usage().first_seq) == (1, 7 << 20, 5)
    spool.close()


@pytest.mark.parametrize(("offset", "value"), [(1, "offsets 1 to 2"), (99, "offset 99 of 4")])
def test_bodies_that_are_gone_are_told_and_the_rest_is_read(tmp_path: Path, offset: int, value: str) -> None:
    spool = a_spool(tmp_path, 0, 1, 2, keep_bytes=0)
    spool.prune(before_seq=3)
    source = SpoolSource(spool, Decoder(), claiming({PART: offset}))
    (batch,) = source.poll(0.0)
    assert [(one.field, one.value, one.source) for one in batch.rejected] == [("message", value, PART)]
    assert read_all(source) == [2]
    spool.close()


def test_what_is_no_spool_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / SPOOL)
    other.execute("CREATE TABLE bodies (name TEXT)")
    other.commit()
    other.close()
    before = (tmp_path / SPOOL).read_bytes()
    with pytest.raises(SpoolUnusable, match=r"spool.sqlite3: must be a spool of firstfault"):
        Spool(tmp_path)
    assert (tmp_path / SPOOL).read_bytes() == before

    (tmp_path / SPOOL).write_bytes(b"no database at all " * 100)
    with pytest.raises(SpoolUnusable, match=r"spool.sqlite3: file is not a database"):
        Spool(tmp_path)


def test_a_spool_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    a_spool(tmp_path, 0).close()
    newer = sqlite3.connect(tmp_path / SPOOL)
    newer.execute("PRAGMA user_version = 2")
    newer.close()
    with pytest.raises(SpoolUnusable, match="must be of version 1 at most, got 2: update firstfault"):
        Spool(tmp_path)


def test_damage_in_the_middle_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    spool = a_spool(tmp_path, *range(2000))
    spool.close()
    data = bytearray((tmp_path / SPOOL).read_bytes())
    data[8192:-4096] = b"\xee" * (len(data) - 12288)
    (tmp_path / SPOOL).write_bytes(data)
    with pytest.raises(SpoolUnusable, match=r"spool.sqlite3: "):
        damaged = Spool(tmp_path)
        try:
            damaged.read(1, 10_000, 1 << 30)
        finally:
            damaged.close()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(SpoolUnusable, match=r"spool.sqlite3: .*(exists|directory)"):
        Spool(tmp_path / "file")


def test_a_full_disk_is_a_full_spool_and_what_was_there_stays(tmp_path: Path) -> None:
    spool = a_spool(tmp_path, 0)
    spool._db.execute("PRAGMA max_page_count = 16")
    with pytest.raises(SpoolFull, match="disk is full"):
        spool.append([(None, b"x" * (1 << 20))])
    assert len(spool.read(1, 10, 1 << 20)) == 1
    assert spool.append([(None, b"small")]) == 2
    spool.close()


def test_a_lock_held_too_long_is_no_loss_for_writer_and_reader(tmp_path: Path) -> None:
    spool = a_spool(tmp_path, 0, busy_timeout_s=0.05, keep_bytes=0)
    holder = sqlite3.connect(tmp_path / SPOOL, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(SpoolFull, match="locked"):
        spool.append([(None, line(1))])
    source = SpoolSource(spool, Decoder(), claiming({}))
    assert read_all(source) == [0]
    assert source.prune(2) == 0
    holder.execute("ROLLBACK")
    holder.close()
    assert source.prune(2) == 1
    spool.close()


def test_a_poll_of_a_locked_file_asks_to_be_tried_again(tmp_path: Path) -> None:
    spool = a_spool(tmp_path, 0, busy_timeout_s=0.05)
    source = SpoolSource(spool, Decoder(), claiming({}))
    holder = sqlite3.connect(tmp_path / SPOOL, isolation_level=None)
    spool._db.execute("PRAGMA journal_mode = DELETE")  # in WAL a writer never holds up a reader
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SourceUnavailable, match="locked"):
        source.poll(0.0)
    holder.execute("ROLLBACK")
    holder.close()
    assert read_all(source) == [0]
    spool.close()


def test_a_claim_after_a_locked_file_goes_on_where_it_says(tmp_path: Path) -> None:
    """A store says once where to go on: asked again by who still holds the part it says None."""
    spool = a_spool(tmp_path, 0, 1, busy_timeout_s=0.05)
    answers: list[Mapping[str, int] | None] = [None, {PART: 2}]
    source = SpoolSource(spool, Decoder(), lambda _: answers.pop())
    holder = sqlite3.connect(tmp_path / SPOOL, isolation_level=None)
    spool._db.execute("PRAGMA journal_mode = DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SourceUnavailable, match="locked"):
        source.poll(0.0)
    holder.execute("ROLLBACK")
    holder.close()
    assert read_all(source) == [1]
    spool.close()


@pytest.mark.parametrize(
    "values", [{"max_bytes": 1}, {"max_rows": 0}, {"keep_bytes": -1}, {"busy_timeout_s": 0.0}]
)
def test_settings_out_of_bounds_are_named(values: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(values))} must be >= "):
        SpoolConfig(**values)  # type: ignore[arg-type]  # that is the test
