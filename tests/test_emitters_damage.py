"""What emitters are given that is damaged or wrong: nothing is held up by it, and no secret is told."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import pytest

import firstfault
from firstfault.emitters import Emitter
from firstfault.emitters.file_sink import FileSink
from firstfault.emitters.packing import Packer
from firstfault.emitters.sink import SinkAway
from firstfault.emitters.spill import Spill
from firstfault.probe_values import MAX_METRICS

from .probe_builders import Service, lines_of, quick
from .test_emitters import ListSink, a_record


def test_what_a_loss_of_power_left_among_waiting_lines_holds_up_none_of_them(tmp_path: Path) -> None:
    config = quick(tmp_path)
    with Service() as service:
        url = service.url
    with firstfault.Probe(run="r", rank=0, sink=url, config=config) as probe:
        probe.step(1.0)
    (segment, *_) = sorted(tmp_path.rglob("*.jsonl"))
    damage = b"\0" * 50 + b'\n[1]\n{"loss":1}\n\xff\n'
    segment.write_bytes(damage * 3 + segment.read_bytes())
    (segment.parent / "notes.jsonl").write_text("not ours")
    sink = ListSink()
    spill = Spill(tmp_path, url, "r\n0", 1 << 20, adopts=False)
    emitter = Emitter(lambda: sink, config.emitter, open_spill=lambda: spill)
    emitter.put(a_record(1))
    emitter.close(1.0)
    assert [json.loads(line).get("iteration") for line in sink.lines][-1] == 1
    assert emitter.counts.dropped == 9
    assert not emitter.counts.is_spilled
    assert (segment.parent / "notes.jsonl").exists()


def test_columns_that_cannot_hold_a_value_go_as_lines() -> None:
    lines = [b'{"run":"r","rank":0,"iteration":%d}' % 10**30] * 9
    packed = Packer(1).packed(lines, compress=False)
    assert packed.body.splitlines() == lines


def test_a_file_may_be_given_as_a_path(tmp_path: Path) -> None:
    with firstfault.Probe(run="r", rank=0, sink=tmp_path / "run.jsonl") as probe:
        probe.step(1.0)
    assert (tmp_path / "run.jsonl").exists()


@pytest.mark.parametrize(
    "sink",
    [
        "http://user:hush@host:8080/?token=hush",
        "http://user:hush/hush@host",
        "https://user:hush",
        "kafka://user:hush@host:9092/one/two",
        "kafka://host:9092/one#?sasl_plain_password=hush",
        "htps://user:hush@host",
    ],
)
def test_an_address_that_is_none_is_told_without_its_secrets(
    sink: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert not firstfault.Probe(run="r", rank=0, sink=sink).is_on
    assert "sink" in caplog.text
    assert "hush" not in caplog.text


def test_a_full_disk_takes_back_no_line_of_another_process_with_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "run.jsonl", os.write
    mine, other = FileSink(path), FileSink(path)
    mine.send([b'{"n":0}'], 1.0)
    thread = threading.Thread(target=other.send, args=([b'{"n":1}'], 1.0))

    def cut_off(file: int, data: bytes) -> int:
        if b"lost" not in bytes(data):
            return write(file, data)
        if len(data) < len(LOST):
            thread.join(0.2)  # it waits for us
            raise OSError(28, "No space left on device")
        thread.start()
        return write(file, data[:4])

    monkeypatch.setattr(os, "write", cut_off)
    with pytest.raises(SinkAway, match="No space left"):
        mine.send([LOST.strip()], 1.0)
    thread.join()
    monkeypatch.undo()
    mine.send([b'{"n":2}'], 1.0)
    assert [line["n"] for line in lines_of(path)] == [0, 1, 2]


LOST = b'{"is":"lost, lost"}\n'


def append(path: Path, who: int) -> None:
    sink = FileSink(path)
    for at in range(200):
        sink.send([json.dumps({"who": who, "at": at, "text": "x" * 500}).encode()] * 3, 1.0)


def test_two_ranks_that_nobody_told_apart_share_a_file_line_by_line(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    path = tmp_path / "run.jsonl"
    ranks = [context.Process(target=append, args=(path, who)) for who in (0, 1)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    found = lines_of(path)
    for who in (0, 1):
        assert [line["at"] for line in found if line["who"] == who] == [
            at for at in range(200) for _ in "abc"
        ]


def test_half_a_line_of_a_process_that_was_killed_swallows_no_line_of_one_that_lives(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    sink = FileSink(path)
    sink.send([b"[0]"], 1.0)
    with path.open("ab") as killed:
        killed.write(b'{"iterat')
    sink.send([b"[1]"], 1.0)
    assert path.read_bytes().splitlines() == [b"[0]", b'{"iterat', b"[1]"]


def test_a_record_of_more_metrics_than_anybody_reads_is_cut_off_and_told(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    many: dict[str, Any] = {f"m{at}": 0.5 for at in range(100_000)}
    with firstfault.Probe(run="r", rank=0, sink=path, config=quick(tmp_path)) as probe:
        probe.log(iteration=0, loss=1.0, **many)
        assert probe.errors == 1
    (whole, *_) = [line for line in lines_of(path) if "loss" in line]
    assert sum(name.startswith("m") for name in whole) == MAX_METRICS - 1
