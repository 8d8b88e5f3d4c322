"""Sending: what is lost is counted, what can wait waits, and nothing holds up whoever logs."""

from __future__ import annotations

import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import firstfault
from firstfault.emitters import Counts, Emitter, EmitterConfig, open_emitter
from firstfault.emitters.delivery import batches
from firstfault.emitters.packing import ARROW, Packer, arrow_of
from firstfault.emitters.pending import Pending
from firstfault.emitters.sink import Sink, SinkAway
from firstfault.emitters.spill import SEGMENT_BYTES, Spill
from firstfault.launch import Launch
from firstfault.telemetry import WHOLE_ITERATION, Checksum, Record, is_checksum
from firstfault.wire import encode_record
from ingest.decode import Decoder

from . import intake_builders
from .probe_builders import Service, quick, wait_until
from .wire_builders import messages, same


def a_record(iteration: int, loss: float = 1.0, rank: int = 0) -> Record:
    return Record(run="r", rank=rank, iteration=iteration, metrics={"loss": loss})


class ListSink:
    """Keeps what is sent; ``is_away`` makes it fail."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.is_away = False

    def send(self, lines: Any, timeout_s: float) -> int:
        if self.is_away:
            raise SinkAway("away")
        self.lines += lines
        return 0

    def interrupt(self) -> None: ...

    def close(self) -> None: ...


def an_emitter(sink: Sink, spill: Path | None = None, **settings: Any) -> Emitter:
    config = quick(**settings).emitter

    def open_spill() -> Spill | None:
        return Spill(spill, "a list", "r 0", config.max_spill_bytes, adopts=False) if spill else None

    return Emitter(lambda: sink, config, open_spill=open_spill)


def test_a_full_queue_drops_the_oldest_and_counts_them() -> None:
    pending = Pending(max_records=3, max_bytes=1 << 20)
    for iteration in range(5):
        pending.put(a_record(iteration))
    kept = pending.take(10)
    assert [one.iteration for one in kept if isinstance(one, Record)] == [2, 3, 4]
    assert pending.dropped == 2


def test_a_queue_is_bounded_in_bytes_too() -> None:
    pending = Pending(max_records=1000, max_bytes=10_000)
    for _ in range(100):
        pending.put(b"x" * 1000)
    assert len(pending) == 10
    assert pending.dropped == 90


def test_what_a_sink_does_not_take_waits_on_disk_and_is_sent_in_order_once_it_is_back(tmp_path: Path) -> None:
    sink = ListSink()
    sink.is_away = True
    emitter = an_emitter(sink, tmp_path)
    for iteration in range(50):
        emitter.put(a_record(iteration))
    wait_until(lambda: emitter.counts.is_spilled and not emitter.counts.waiting)
    sink.is_away = False
    for iteration in range(50, 60):
        emitter.put(a_record(iteration))
    wait_until(lambda: len(sink.lines) == 60)
    emitter.close(1.0)
    assert sink.lines == [encode_record(a_record(iteration)).encode() for iteration in range(60)]
    assert emitter.counts == Counts(sent=60)


def test_what_waits_on_disk_is_sent_by_the_next_process_of_the_rank(tmp_path: Path) -> None:
    away, back = ListSink(), ListSink()
    away.is_away = True
    emitter = an_emitter(away, tmp_path)
    emitter.put(a_record(7))
    emitter.close(1.0)
    assert emitter.counts.dropped == 0
    again = an_emitter(back, tmp_path)
    wait_until(lambda: back.lines)
    again.close(1.0)
    assert back.lines == [encode_record(a_record(7)).encode()]
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_the_disk_is_bounded_and_what_goes_is_counted(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "sink", "owner", 3 * SEGMENT_BYTES, adopts=False)
    line = b'{"x":"' + b"y" * 1000 + b'"}'
    for _ in range(5):
        spill.append([line] * (SEGMENT_BYTES // len(line)))
    kept = 0
    while spill:
        kept += len(spill.peek())
        spill.advance(len(spill.peek()))
    spill.close()
    assert kept + spill.dropped == 5 * (SEGMENT_BYTES // len(line))
    assert spill.dropped > 0


def test_a_line_that_a_crash_cut_off_on_disk_is_counted_and_not_sent(tmp_path: Path) -> None:
    spill = Spill(tmp_path, "sink", "owner", 1 << 20, adopts=False)
    spill.append([b"{}"])
    (segment,) = spill.folder.glob("*.jsonl")
    segment.write_bytes(segment.read_bytes() + b'{"half')
    assert spill.peek() == [b"{}"]
    assert spill.dropped == 1
    spill.close()


def test_a_disk_that_somebody_cleaned_up_costs_what_was_on_it_and_nothing_after(tmp_path: Path) -> None:
    sink = ListSink()
    sink.is_away = True
    emitter = an_emitter(sink, tmp_path)
    emitter.put(a_record(1))
    wait_until(lambda: emitter.counts.is_spilled and not emitter.counts.waiting)
    shutil.rmtree(tmp_path)
    sink.is_away = False
    emitter.put(a_record(2))
    wait_until(lambda: sink.lines)
    emitter.close(1.0)
    assert sink.lines == [encode_record(a_record(2)).encode()]
    assert emitter.counts.dropped == 1


def test_two_processes_of_one_rank_keep_apart_on_disk_and_orphans_are_adopted(tmp_path: Path) -> None:
    one = Spill(tmp_path, "sink", "owner", 1 << 20, adopts=False)
    other = Spill(tmp_path, "sink", "owner", 1 << 20, adopts=True)
    assert one.folder != other.folder
    one.append([b'{"at":1}'])
    other.append([b'{"at":2}'])
    one.close()
    other.close()
    heir = Spill(tmp_path, "sink", "somebody", 1 << 20, adopts=True)
    found = []
    while heir:
        found += heir.peek()
        heir.advance(len(heir.peek()))
    heir.close()
    assert sorted(found) == [b'{"at":1}', b'{"at":2}']


def test_a_folder_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(PermissionError, match="must be a folder of this user"):
        Spill(tmp_path / "link", "sink", "owner", 1 << 20, adopts=False)


def test_batches_keep_order_and_size() -> None:
    config = EmitterConfig(max_batch_records=3, max_batch_bytes=1024)
    cut = list(batches([b"a" * 500] * 3 + [b"b"] * 5, config))
    assert [len(batch) for batch in cut] == [2, 3, 3]
    assert [line for batch in cut for line in batch] == [b"a" * 500] * 3 + [b"b"] * 5


VALUES = st.floats(width=64) | st.integers(-(2**60), 2**60)


@st.composite
def some_records(draw: st.DrawFn) -> list[Record]:
    found = []
    for _ in range(draw(st.integers(1, 12))):
        names = draw(st.lists(st.sampled_from(["loss", "lr", "x_checksum", "grad_norm/a"]), unique=True))
        metrics = {
            name: Checksum(draw(st.integers(0, 2**128 - 1))) if is_checksum(name) else draw(VALUES)
            for name in names
        }
        found.append(
            Record(
                run=draw(st.sampled_from(["r", "s/1"])),
                rank=draw(st.integers(0, 3)),
                iteration=draw(st.integers(0, 2**53 - 1)),
                microbatch=draw(st.sampled_from([0, 7, WHOLE_ITERATION])),
                time=draw(st.none() | st.floats(0, 2e9)),
                metrics=metrics,
                labels=draw(st.dictionaries(st.sampled_from(["host", "device"]), st.sampled_from("abc"))),
            )
        )
    return found


@settings(max_examples=25)  # each is decoded twice
@given(some_records())
def test_columns_say_what_lines_say(records: list[Record]) -> None:
    lines = [encode_record(one).encode() for one in records]
    columns = arrow_of(lines, pa)
    assert columns is not None
    by_line, by_column = (Decoder().decode(messages([value])) for value in (b"\n".join(lines), columns))
    assert by_column.rejected == ()
    assert same(by_line, by_column, with_places=False)


def test_a_long_batch_travels_as_columns_and_one_with_an_event_as_lines() -> None:
    packer = Packer(arrow_from_records=8)
    lines = [encode_record(a_record(iteration)).encode() for iteration in range(100)]
    event = b'{"run":"r","rank":0,"iteration":1,"event":"run_end"}'
    assert packer.packed(lines, compress=False).content_type == ARROW
    assert packer.packed(lines[:7], compress=False).content_type == "application/x-ndjson"
    assert packer.packed([*lines, event], compress=False).content_type == "application/x-ndjson"
    beat = b'{"run":"r","rank":0,"iteration":1,"event":"heartbeat"}'
    assert packer.parts([event, *lines, beat, event]) == [[beat], [event], lines, [event]]


def test_a_service_that_asks_for_time_gets_it(tmp_path: Path) -> None:
    with (
        Service([(429, {"Retry-After": "1"}), (503, {})]) as service,
        firstfault.Probe(run="r", rank=0, sink=service.url, config=quick(tmp_path)) as probe,
    ):
        probe.step(1.0)
        wait_until(service.iterations)
    assert service.iterations() == [0]
    assert service.times[1] - service.times[0] >= 1.0
    assert probe.errors == 0


def test_a_body_that_is_too_large_is_sent_in_halves_and_a_line_that_is_refused_is_counted(
    tmp_path: Path,
) -> None:
    with Service() as service:
        launch = Launch(run="r")
        emitter = open_emitter(service.url, quick(tmp_path, flush_s=0.5).emitter, launch)
        wait_until(lambda: emitter.counts.sent == 0)
        service.answers = [(413, {}), (422, {}), (202, {})]
        for iteration in range(8):
            emitter.put(a_record(iteration))
        emitter.close(5.0)
    assert service.iterations() == [4, 5, 6, 7]
    assert emitter.counts == Counts(sent=4, dropped=4)


def test_a_token_goes_with_every_request_and_into_no_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FIRSTFAULT_TOKEN", "ff_secret")
    with Service([(401, {})]) as service:
        with firstfault.Probe(run="r", rank=0, sink=service.url, config=quick(tmp_path)) as probe:
            probe.step(1.0)
            wait_until(service.bodies.copy)
        assert service.bodies[0][0]["Authorization"] == "Bearer ff_secret"
    assert "401" in caplog.text
    assert "ff_secret" not in caplog.text


def test_a_sink_that_never_answers_costs_a_second_at_the_end_and_nothing_before(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        probe = firstfault.Probe(run="r", rank=0, sink=url, config=quick(tmp_path))
        slowest_s = 0.0
        for _ in range(200):
            begun_s = time.thread_time()
            probe.step(1.0)
            slowest_s = max(slowest_s, time.thread_time() - begun_s)
        begun_s = time.monotonic()
        probe.close()
        assert time.monotonic() - begun_s < 5.0  # one second, on a machine that does much else
        assert slowest_s < 0.05
    left = [line for path in tmp_path.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert len([line for line in left if '"loss"' in line]) == 200


@pytest.mark.parametrize("arrow_from_records", [8, 1 << 20])
def test_the_service_takes_what_the_probe_posts(tmp_path: Path, arrow_from_records: int) -> None:
    config = quick(tmp_path, arrow_from_records=arrow_from_records, flush_s=1.0)
    with (
        Service() as service,
        firstfault.Probe(run="r", rank=2, sink=service.url, config=config) as probe,
    ):
        for _ in range(300):
            probe.step(float("-inf"), param_checksum=-1)
    taken = intake_builders.ListSink()
    client = intake_builders.client_of(taken)
    for headers, body in service.bodies:
        kept = {name: headers[name] for name in ("Content-Type", "Content-Encoding") if name in headers}
        answer = client.post("/v1/telemetry", content=body, headers=kept)
        assert (answer.status_code, answer.json()["rejected"]) == (202, 0)
    batch = taken.batch()
    assert batch.rejected == ()
    assert batch.iteration_N.tolist() == list(range(300))
    assert set(batch.numbers["loss"].values_N.tolist()) == {float("-inf")}
    is_arrow = any(headers["Content-Type"] == ARROW for headers, _ in service.bodies)
    assert is_arrow == (arrow_from_records == 8)
