"""Pictures of `stall`: how long the ranks stand still by their heartbeats, and who falls silent."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from detectors.stall import Stall
from detectors.standstill import standstill
from ingest.decode import Decoder, RawMessage
from service.pipeline import Pipeline
from tests.block_builders import block, masked

from .drawing import Drawn, drawn
from .svg import Figure, Line, Mark, Panel
from .trace import Trace, describe, log_lines, watch

STEP_S = 1.0
BEAT_S = 5.0


def fires() -> Drawn:
    """The sample log ``hang``: one rank does not come to the reduction the others wait in."""
    return _heartbeats("stall fires: rank 0 does not come", log_lines("hang"))


def quiet() -> Drawn:
    """Two slow checkpoints, the second longer than `StallConfig.suspect_s` and less than twice the first."""
    return _heartbeats("stall stays quiet: slow checkpoints", list(_checkpoints((55.0, 95.0))))


def falls_silent() -> Drawn:
    """A rank that stops reporting, beside one that reports each 20th iteration only."""
    T = 400
    loss_TR = np.random.default_rng(7).normal(2.0, 0.1, (T, 4))
    absent_TR = np.zeros((T, 4), np.bool_)
    absent_TR[150:, 2] = True
    absent_TR[np.arange(T) % 20 != 0, 3] = True
    detector = Stall()

    def read(_: Any) -> dict[str, float]:
        standing = detector._table.standing()
        least = detector.config.silent_iterations
        found: dict[str, float] = {}
        for rank, behind, allowed in zip(
            standing.ranks_N.tolist(), standing.behind_N.tolist(), standing.allowed_N.tolist(), strict=True
        ):
            found |= {f"behind{rank}": behind, f"allowed{rank}": max(allowed, least)}
        return found

    trace = watch(detector, [block(loss=masked(loss_TR, absent_TR))], read, is_asked_each_time=True)
    panels = [_turns(trace, 2, "rank 2, silent from 150 on"), _turns(trace, 3, "rank 3, each 20th iteration")]
    return drawn("stall fires: a rank falls silent while the others go on", trace, panels, 150)


def _turns(trace: Trace, rank: int, name: str) -> Panel:
    x_K, columns = trace.iterations, trace.columns
    allowed = f"allowed to rank {rank}"
    return Panel(
        label="turns since the last report",
        floor=0.0,
        lines=[
            Line(x_K=x_K, y_K=columns[f"allowed{rank}"], role="limit", name=allowed),
            Line(x_K=x_K, y_K=columns[f"behind{rank}"], name=name),
        ],
    )


def _heartbeats(title: str, lines: Sequence[bytes]) -> Drawn:
    """Replay lines, and at each heartbeat ask how long the ranks have stood by then."""
    pipeline, trace = Pipeline(), Trace()
    at_s: list[float] = []
    rows: list[tuple[float, float, float]] = []
    start_s = float(json.loads(lines[0])["time"])
    furthest = 0
    for offset, piece in enumerate(_up_to_each_beat(lines)):
        pipeline.feed(Decoder().decode([RawMessage("sample", offset, b"\n".join(piece))]))
        last = json.loads(piece[-1])
        furthest = max(furthest, int(last["iteration"]))
        at_s.append(float(last["time"]) - start_s)
        detector = _stall_of(pipeline)
        trace.keep(furthest, detector.finish())
        rows.append(_standing(detector))
    stood_K, suspect_K, confirm_K = zip(*rows, strict=True)
    alarms, sure = (_passed(at_s, stood_K, bound_K) for bound_K in (suspect_K, confirm_K))
    marks = [
        Mark(x=times[0], role=role, word=f"{word} {times[0]:.0f} s")
        for role, word, times in (
            ("onset", "last report", [detector._last_time_s - start_s] if alarms else []),
            ("alarm", "suspected", alarms),
            ("alarm", "confirmed", sure),
        )
        if times
    ]
    bounds = [Line(x_K=at_s, y_K=suspect_K, role="limit", name="suspected above")]
    if sure:
        bounds.insert(0, Line(x_K=at_s, y_K=confirm_K, role="limit", name="confirmed above"))
    panel = Panel(
        label="all have stood still for, s",
        floor=0.0,
        top=1.25 * max([*stood_K, *suspect_K]),
        lines=[*bounds, Line(x_K=at_s, y_K=stood_K, name="standstill")],
    )
    x_label = "record time since the start, s"
    return Drawn(Figure(title=title, caption=describe(trace), x_label=x_label, panels=[panel], marks=marks))


def _passed(at_s: Sequence[float], stood_K: Sequence[float], bound_K: Sequence[float]) -> list[float]:
    """When all had stood still for longer than the bound."""
    return [x for x, stood, bound in zip(at_s, stood_K, bound_K, strict=True) if stood > bound]


def _up_to_each_beat(lines: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The lines in order of time, in pieces of a heartbeat interval or more that each end with heartbeats."""
    piece: list[bytes] = []
    began_s = previous_s = 0.0
    was_beat = False
    for time_s, line in sorted((float(json.loads(line).get("time", 0.0)), line) for line in lines):
        is_beat = b'"heartbeat"' in line
        is_next = not is_beat or time_s - previous_s > 1.0  # ranks beat within a second of each other
        if piece and was_beat and is_next and time_s - began_s >= BEAT_S:
            yield piece
            piece, began_s = [], time_s
        piece.append(line)
        was_beat, previous_s = is_beat, time_s
    if piece:
        yield piece


def _stall_of(pipeline: Pipeline) -> Stall:
    """The detector as a verdict would ask it now."""
    (name,) = pipeline.runs
    (aligner,) = pipeline.aligners(name)
    judge = pipeline._runs[name].judges.get(aligner.attempt)
    detectors = [] if judge is None else judge.detectors
    held = next((one for one in detectors if isinstance(one, Stall)), Stall())
    detector = copy.deepcopy(held)
    for pending in aligner.pending():
        detector.update(pending)
    return detector


def _standing(detector: Stall) -> tuple[float, float, float]:
    """(how long all have stood still, the bound to suspect, the bound to confirm), in seconds."""
    beats = detector._known_beats()
    longest = detector._longest_s
    blank = (
        0.0,
        detector._bound(detector.config.suspect_s, longest),
        detector._bound(detector.config.confirm_s, longest),
    )
    if beats is None:
        return blank
    reported, _ = detector._reported(beats[0].ranks_R)
    stands = standstill(*beats, detector._layout, reported=reported, newest_record_s=detector._last_time_s)
    return blank if stands is None else (stands.stood_s, *detector._bounds(stands))


def _checkpoints(pauses_s: Sequence[float]) -> Iterator[bytes]:
    """A run of four ranks, a second a step, that saves for so long after each 60 steps."""
    now, iteration = 0.0, 0
    yield _line(0, 0, now, event="run_start", world_size=4)
    for pause_s in (*pauses_s, 0.0):
        for _ in range(60):
            now += STEP_S
            yield from (_line(rank, iteration, now, loss=2.0) for rank in range(4))
            iteration += 1
            if iteration % 5 == 0:
                yield from _beats(iteration, now)
        for beat in np.arange(BEAT_S, pause_s, BEAT_S).tolist():
            yield from _beats(iteration, now + beat)
        now += pause_s


def _beats(iteration: int, now: float) -> Iterator[bytes]:
    return (_line(rank, iteration, now, event="heartbeat", phase="gather") for rank in range(4))


def _line(rank: int, iteration: int, now: float, **fields: object) -> bytes:
    return json.dumps({"run": "seeded", "rank": rank, "iteration": iteration, "time": now, **fields}).encode()
