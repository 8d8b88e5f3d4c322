"""The probe: what it sends, and that nothing of it reaches the trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import firstfault
from firstfault.wire import interpret

from .probe_builders import lines_of, quick


def test_a_step_is_sent_with_its_values_and_nonfinite_ones_stay_what_they_are(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with firstfault.Probe(run="r", rank=0, sink=str(path)) as probe:
        probe.step(
            float("nan"), grad_norm=float("-inf"), param_checksum=-2, host="node-1", tokens=7, device="d"
        )
    (record,) = [line for line in lines_of(path) if "event" not in line]
    assert record.pop("time") > 0
    assert record == {
        "run": "r",
        "attempt": 0,
        "rank": 0,
        "iteration": 0,
        "loss": "NaN",
        "grad_norm": "-Infinity",
        "param_checksum": "fffffffffffffffe",
        "tokens": 7.0,
        "host": "node-1",
        "device": "d",
    }


def test_everything_that_the_probe_sends_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with firstfault.Probe(run="r", rank=0, sink=str(path), world_size=1, sharding="none") as probe:
        odd: dict[str, Any] = {"x" * 300: 1, "note": "y" * 5000}
        probe.log(iteration=3, loss=2, label="\ud800", **odd)
        probe.event("checkpoint", iteration=3, path=Path("ckpt"), losses={1: float("nan")})
    rejections = [interpret(line).rejections for line in lines_of(path)]
    assert len(rejections) == 5
    assert all(found == () for found in rejections)


def test_what_the_user_gets_wrong_is_counted_and_not_raised(tmp_path: Path) -> None:
    class Hostile:
        def item(self) -> float:
            raise RuntimeError("device lost")

    probe: Any = firstfault.Probe(run="r", rank=0, sink=str(tmp_path / "run.jsonl"))
    probe.log(iteration=0, loss=Hostile(), grad_norm=1.0)
    probe.log(loss=1.0)
    probe.event("no such event")
    assert probe.errors == 3
    probe.watch(None, no_such_option=1)
    probe.close()
    assert probe.errors > 3
    first, *_, last = [line for line in lines_of(tmp_path / "run.jsonl") if "event" not in line]
    assert first["grad_norm"] == 1.0
    assert last["probe_errors"] == probe.errors


def test_a_probe_that_cannot_start_is_off(caplog: pytest.LogCaptureFixture) -> None:
    probe = firstfault.Probe(run="r", rank=0, sink="ftp://host")
    probe.log(iteration=0, loss=1.0)
    probe.close()
    assert not probe.is_on
    assert "ftp://host" in caplog.text
    assert all(line.startswith("firstfault: ") for line in caplog.messages)  # who speaks, in a job's log


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sink": "ftp://host"}, "sink must be"),
        ({"sink": "broker-1:9092"}, "sink must begin with"),
        ({"sink": ""}, "sink must be"),
        ({"rank": -1}, "rank must be an integer from 0"),
        ({"rank": 4, "world_size": 4}, "rank must be below world_size"),
        ({"world_size": 0}, "world_size must be an integer from 1"),
        ({"run": "a\nb"}, "run must be text"),
    ],
    ids=str,
)
def test_what_cannot_start_is_said_loudly_or_raises_where_that_is_asked_for(
    given: dict[str, Any],
    words: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arguments = {"run": "r", "rank": 0, "sink": str(tmp_path / "run.jsonl"), **given}
    assert not firstfault.Probe(**arguments).is_on
    assert any(record.levelname == "ERROR" and "NO TELEMETRY" in record.message for record in caplog.records)
    with pytest.raises(ValueError, match=words):
        firstfault.Probe(strict=True, **arguments)
    monkeypatch.setenv("FIRSTFAULT", "strict")
    with pytest.raises(ValueError, match=words):
        firstfault.Probe(**arguments)


def test_a_strict_probe_raises_nothing_once_it_is_there(tmp_path: Path) -> None:
    sink = tmp_path / "run.jsonl"
    with firstfault.Probe(run="r", rank=0, sink=sink, strict=True) as probe:
        bad: Any = "not a model"
        probe.watch(bad)
        probe.log(iteration=-1, loss=1.0)
        probe.log(iteration=2**60, loss=1.0)
        probe.step(1.0, iteration=-5)
        probe.event("checkpoint", iteration=-1)
        assert probe.errors == 5
        probe.step(1.0)
    assert [line["iteration"] for line in lines_of(sink) if "loss" in line] == [0]
    assert all(interpret(line).rejections == () for line in lines_of(sink))


def test_the_environment_turns_the_probe_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIRSTFAULT", "off")
    with firstfault.Probe(run="r", rank=0, sink=str(tmp_path / "run.jsonl")) as probe:
        probe.step(1.0)
    assert list(tmp_path.iterdir()) == []


def test_ranks_are_told_apart_by_the_names_of_their_files(tmp_path: Path) -> None:
    for rank in range(2):
        with firstfault.Probe(run="r", rank=rank, world_size=2, sink=str(tmp_path / "run.jsonl")) as probe:
            probe.step(1.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run-rank0.jsonl", "run-rank1.jsonl"]


def test_what_the_probe_dropped_is_named_in_the_coverage_of_the_verdict(tmp_path: Path) -> None:
    for rank in range(2):
        most = 100 if rank else 100_000
        config = quick(flush_s=60.0, max_queue_records=most)
        sink = str(tmp_path / "run.jsonl")
        with firstfault.Probe(run="r", rank=rank, world_size=2, sink=sink, config=config) as probe:
            for iteration in range(200):
                probe.step(2.0 + 0.01 * (iteration % 7))
        assert (probe.counts.dropped > 0) == (rank == 1)
    (verdict,) = firstfault.replay(tmp_path)
    notes = verdict["coverage"]["notes"]
    assert any(f"the probe dropped {probe.counts.dropped} records of rank 1" in note for note in notes)


def test_what_ends_a_block_is_told_and_goes_on(tmp_path: Path) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    path = tmp_path / "run.jsonl"
    with pytest.raises(Odd), firstfault.Probe(run="r", rank=0, sink=str(path)):
        raise Odd
    (words,) = [line for line in lines_of(path) if line.get("event") == "hardware"]
    assert words["code"] == "Odd"


def test_the_layout_is_told_by_one_rank_and_what_was_given_wins(tmp_path: Path) -> None:
    for rank in range(2):
        sink = str(tmp_path / "run.jsonl")
        with firstfault.Probe(run="r", rank=rank, world_size=2, sink=sink, sharding="zero1") as probe:
            probe.declare(mesh=[["dp", 2]], sharding="none")
    told = [
        [line for line in lines_of(tmp_path / f"run-rank{rank}.jsonl") if line["event"] == "run_start"]
        for rank in range(2)
    ]
    assert [line.get("mesh") for line in told[0]] == [None, [["dp", 2]]]
    assert [line.get("sharding") for line in told[0]] == ["zero1", None]
    assert len(told[1]) == 1
    assert told[1][0]["hosts"].keys() == {"1"}


@pytest.mark.parametrize("end", [SystemExit(0), SystemExit(), GeneratorExit()])
def test_who_leaves_on_purpose_ends_the_run_and_is_no_crash(tmp_path: Path, end: BaseException) -> None:
    path = tmp_path / "run.jsonl"
    with pytest.raises(type(end)), firstfault.Probe(run="r", rank=0, sink=path) as probe:
        probe.step(1.0)
        raise end
    assert [line["event"] for line in lines_of(path) if "event" in line][-1] == "run_end"
    assert "hardware" not in path.read_text()
