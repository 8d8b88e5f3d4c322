"""The demo without a broker: the same path through files, ended on success, on failure and on signals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from service import demo
from service.demo_stage import FileStage
from service.demo_view import Moment, table_lines
from service.edge import Exit
from service.errors import StageError
from service.ink import WIDTH, Ink, columns_of
from service.kafka_jars import BrokerUnavailable
from service.local_kafka import LocalKafka
from service.recordings import Recording, demo_recordings, read_recording

from .service_builders import a_verdict, an_incident, log_lines


class ScriptedStage:
    """Gives a fixed verdict to each run, once all is sent."""

    title = "a script"

    def __init__(self, verdicts: Mapping[str, Mapping[str, Any]]) -> None:
        self._verdicts = verdicts
        self.sent: dict[str, list[bytes]] = {}
        self.is_finished = False
        self.is_closed = False

    def send(self, run: str, lines: Sequence[bytes]) -> None:
        assert not (lines and self.is_finished)
        self.sent.setdefault(run, []).extend(lines)

    def finish(self) -> None:
        self.is_finished = True

    def verdicts(self) -> Mapping[str, Mapping[str, Any]]:
        return self._verdicts if self.is_finished else {}

    def news(self) -> list[str]:
        return []

    def close(self) -> None:
        self.is_closed = True


def two_recordings() -> list[Recording]:
    return [read_recording(log_lines("bad", odd_rank=3)), read_recording(log_lines("healthy"))]


def play(monkeypatch: pytest.MonkeyPatch, stage: ScriptedStage) -> int:
    monkeypatch.setattr(demo, "demo_recordings", two_recordings)
    monkeypatch.setattr(demo, "KafkaStage", lambda folder, address: stage)
    return demo.run_demo(is_ending=True, kafka="b:1", speed=1000.0)


def verdict_on(run: str, *incidents: dict[str, Any]) -> dict[str, Any]:
    return a_verdict(run, *incidents, judged_to_iteration=119)


def test_the_demo_sends_every_line_in_order_and_succeeds_when_the_runs_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = ScriptedStage({"bad": verdict_on("bad", an_incident()), "healthy": verdict_on("healthy")})
    assert play(monkeypatch, stage) == Exit.HEALTHY
    assert {run: tuple(lines) for run, lines in stage.sent.items()} == {
        one.run: one.lines for one in two_recordings()
    }
    assert stage.is_closed
    assert "bad: silent drift. Rank 3 (host node-07)" in capsys.readouterr().out


@pytest.mark.parametrize(
    "verdicts",
    [
        {"bad": verdict_on("bad"), "healthy": verdict_on("healthy")},
        {"bad": verdict_on("bad", an_incident()), "healthy": verdict_on("healthy", an_incident())},
    ],
)
def test_a_missed_fault_or_a_false_alarm_fails_the_demo(
    monkeypatch: pytest.MonkeyPatch, verdicts: Mapping[str, Mapping[str, Any]]
) -> None:
    stage = ScriptedStage(verdicts)
    assert play(monkeypatch, stage) == Exit.FAILED
    assert stage.is_closed


def test_a_verdict_that_never_comes_ends_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_VERDICT_TIMEOUT_S", 0.3)
    stage = ScriptedStage({})
    with pytest.raises(StageError, match="no verdict"):
        play(monkeypatch, stage)
    assert stage.is_closed


def test_without_a_broker_it_says_so_and_shows_the_same_through_files(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unavailable(self: LocalKafka, *, detach: bool = False) -> None:
        raise BrokerUnavailable("Java 17 is needed")

    monkeypatch.setattr(LocalKafka, "start", unavailable)
    monkeypatch.setattr(demo, "demo_recordings", two_recordings)
    assert demo.run_demo(is_ending=True, kafka=None, speed=10.0) == Exit.HEALTHY
    captured = capsys.readouterr()
    assert "no broker can be had here: Java 17 is needed" in captured.err
    assert "bad: silent drift. Rank 3 holds other parameters" in captured.out
    assert "healthy: healthy. No fault visible up to iteration 119." in captured.out


def test_a_judging_process_that_dies_is_told_with_its_last_lines(tmp_path: Path) -> None:
    stage = FileStage(tmp_path, ["a"])
    try:
        (tmp_path / "a.jsonl").write_bytes(b"")
        stage._child._process.kill()
        stage._child._process.wait(30)
        with pytest.raises(StageError, match="the judging process ended"):
            stage.verdicts()
    finally:
        stage.close()


def test_the_shipped_recordings_are_one_healthy_and_one_faulty_run() -> None:
    runs = [recording.run for recording in demo_recordings()]
    assert len(runs) == 2
    assert len([run for run in runs if run.startswith("healthy")]) == 1


def test_the_live_table_fits_80_columns() -> None:
    recordings = two_recordings()
    moment = Moment(
        recordings=recordings,
        sent={one.run: 500 for one in recordings},
        verdicts={"bad": verdict_on("bad", an_incident()), "healthy": verdict_on("healthy")},
        sentences=("word " * 100,),
        title="x" * 100,
        is_streaming=True,
    )
    lines = table_lines(moment, Ink())
    assert [line for line in lines if columns_of(line) > WIDTH] == []
    assert any("silent drift, rank 3 at 1200" in line for line in lines)
