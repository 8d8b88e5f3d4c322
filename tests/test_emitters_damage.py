"""What emitters are given that is damaged or wrong: nothing is held up by it, and no secret is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import firstfault
from firstfault.emitters import Emitter
from firstfault.emitters.packing import Packer
from firstfault.emitters.spill import Spill

from .probe_builders import Service, quick
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
