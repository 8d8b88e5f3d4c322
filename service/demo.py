"""`firstfault demo`: two recorded runs through the whole path, one of them with a corrupted rank."""

from __future__ import annotations

import math
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from .curves import CurvePoint
from .demo_stage import FileStage, KafkaStage, Stage
from .demo_view import Moment, View, view_for_terminal
from .edge import Exit, say
from .errors import StageError
from .ink import ink_for
from .kafka_jars import BrokerUnavailable
from .recordings import Recording, demo_recordings
from .report import Judged, run_report
from .sentence import headline
from .sufficiency import has_confirmed_incident

STREAM_S = 20.0
"""How long the streaming takes at speed 1: slow enough to watch, fast enough to wait for."""
_TICK_S = 0.1
_VERDICT_TIMEOUT_S = 60.0
"""How long after the last record the verdicts may take; a caught-up worker needs two seconds."""


def run_demo(*, is_ending: bool, kafka: str | None, speed: float) -> int:
    """Play the demo; 0 when the faulty run was found and the healthy one was left alone.

    Raises:
        FileNotFoundError: the recorded runs are not in the installation.
        StageError: the broker cannot be used, or the judging process ended.
    """
    recordings = demo_recordings()
    with _terminated_as_interrupted(), tempfile.TemporaryDirectory(prefix="firstfault-demo-") as folder:
        stage = _open_stage(Path(folder), recordings, kafka)
        try:
            return _play(stage, recordings, STREAM_S / speed, is_ending=is_ending)
        finally:
            stage.close()


def _open_stage(folder: Path, recordings: Sequence[Recording], kafka: str | None) -> Stage:
    if kafka is None:
        say("starting Apache Kafka on this machine (the first time Maven fetches it) ...")
    try:
        return KafkaStage(folder, kafka)
    except BrokerUnavailable as error:
        say(f"no broker can be had here: {error}")
        say("showing the same through files; with a broker: firstfault demo --kafka HOST:PORT")
        return FileStage(folder, [recording.run for recording in recordings])


def _play(stage: Stage, recordings: Sequence[Recording], stream_s: float, *, is_ending: bool) -> int:
    with view_for_terminal() as view:
        verdicts = _stream_and_wait(stage, recordings, stream_s, view)
    is_right = _is_told_apart(recordings, verdicts)
    _sum_up(recordings, verdicts)
    if not is_right:
        say("the verdicts are not what these recordings deserve")
        return Exit.FAILED
    if not is_ending:
        say("both verdicts are there; press Ctrl-C to stop the worker and the broker")
        while True:
            time.sleep(1.0)
            stage.verdicts()
    return Exit.HEALTHY


def _stream_and_wait(
    stage: Stage, recordings: Sequence[Recording], stream_s: float, view: View
) -> Mapping[str, Mapping[str, Any]]:
    """Send all lines at an even pace, then wait for the verdicts on all of them."""
    sent = {recording.run: 0 for recording in recordings}
    sentences: list[str] = []
    verdicts: Mapping[str, Mapping[str, Any]] = {}
    started_s = time.monotonic()
    is_streaming = True
    while True:
        elapsed_s = time.monotonic() - started_s
        share = min(1.0, elapsed_s / stream_s) if stream_s > 0 else 1.0
        for recording in recordings:
            upto = round(share * len(recording.lines))
            stage.send(recording.run, recording.lines[sent[recording.run] : upto])
            sent[recording.run] = upto
        if is_streaming and share >= 1.0:
            is_streaming = False
            stage.finish()
        verdicts = stage.verdicts()
        sentences += stage.news()
        view.show(Moment(recordings, dict(sent), verdicts, tuple(sentences), stage.title, is_streaming))
        if not is_streaming and all(_is_judged_to_its_end(one, verdicts.get(one.run)) for one in recordings):
            return verdicts
        if elapsed_s > stream_s + _VERDICT_TIMEOUT_S:
            raise StageError(f"no verdict on all records within {_VERDICT_TIMEOUT_S:.0f} s of the last one")
        time.sleep(_TICK_S)


def _is_judged_to_its_end(recording: Recording, verdict: Mapping[str, Any] | None) -> bool:
    return verdict is not None and verdict["judged_to_iteration"] == recording.last_iteration


def _is_told_apart(recordings: Sequence[Recording], verdicts: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether the healthy recording, and only it, was judged healthy."""
    return all(
        has_confirmed_incident(verdicts[one.run]) != one.run.startswith("healthy")
        and (verdicts[one.run]["label"] == "healthy") == one.run.startswith("healthy")
        for one in recordings
    )


def _sum_up(recordings: Sequence[Recording], verdicts: Mapping[str, Mapping[str, Any]]) -> None:
    """The healthy run in a sentence, the faulty one in full."""
    ink = ink_for(sys.stdout)
    faulty = [one for one in recordings if has_confirmed_incident(verdicts[one.run])]
    for recording in recordings:
        if recording not in faulty:
            sys.stdout.write(ink.paint(headline(verdicts[recording.run]), "green") + "\n\n")
    for recording in faulty:
        judged = Judged("demo", verdicts[recording.run], "loss", _curve(recording))
        sys.stdout.write(run_report(judged, ink) + "\n")
    sys.stdout.flush()


def _curve(recording: Recording) -> list[CurvePoint]:
    points = []
    for iteration, loss in recording.medians.items():
        value = loss if math.isfinite(loss) else None
        points.append(CurvePoint(iteration, value, value, value, int(value is None)))
    return points


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM unwinds the stack as Ctrl-C does, so that children and the broker are ended."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(Exit.TERMINATED)

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
