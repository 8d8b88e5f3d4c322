"""Verdicts, logs and stand-ins for the tests of store, report, worker and command line."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ingest.blocks import RecordBatch, Rejected
from ingest.decode import Decoder, RawMessage
from ingest.source import ClaimParts
from service.curves import CurvePoint

Json = dict[str, Any]


def an_incident(**changes: Any) -> Json:
    """A confirmed silent drift of rank 3 since iteration 1200, as a verdict shows it."""
    incident = {
        "id": "a1",
        "label": "silent_drift",
        "pattern": "replica_divergence",
        "certainty": "confirmed",
        "severity": "critical",
        "first": {**_first_place(), **changes.pop("first", {})},
        "detected_at_iteration": 1200,
        "chain": [{"label": "silent_drift", "iteration": 1200}],
        "causes": [{"kind": "hardware", "stage": "after_reduce", "confidence": 0.6, "because": ["one rank"]}],
        "last_good": {
            "iteration": 1190,
            "checkpoint": "/ckpt/iter_1000",
            "checkpoint_iteration": 1000,
            "basis": "proved",
        },
        "cost": {"iterations_since_onset": [640, 650], "iterations_to_redo": 840, "device_hours": 42.5},
        "evidence": [
            {
                "detector": "checksum_vote",
                "metric": "param_checksum",
                "ranks": [3],
                "iteration": 1200,
                "statistic": 1,
                "threshold": 0,
                "detail": {},
            }
        ],
        "advice": [{"action": "drain_host", "target": "node-07", "command": "cordon node-07"}],
    }
    return {**incident, **changes}


def _first_place() -> Json:
    return {
        "attempt": 0,
        "ranks": [3],
        "rank_count": 1,
        "scope": "ranks",
        "tie": False,
        "iteration": 1200,
        "interval": [1190, 1200],
        "phase": "state",
        "metric": "param_checksum",
        "suspects": [{"rank": 3, "host": "node-07", "device": None, "why": "its checksum is the odd one"}],
        "victims": [],
        "victim_count": 0,
        "note": "",
    }


def a_verdict(run: str = "llama-7b", *incidents: Json, **changes: Any) -> Json:
    """A verdict up to iteration 1840; healthy without incidents."""
    confirmed = [incident for incident in incidents if incident["certainty"] == "confirmed"]
    verdict = {
        "schema": 1,
        "run": run,
        "label": confirmed[0]["label"] if confirmed else "healthy",
        "judged_to_iteration": 1840,
        "attempts": [{"attempt": 0, "label": "healthy", "from": 0, "to": 1840}],
        "incidents": list(incidents),
        "annotations": [],
        "coverage": {
            "ranks": 8,
            "metrics": ["loss"],
            "checks": [
                {"name": "nonfinite", "state": "ran", "why": ""},
                {"name": "explosion", "state": "ran", "why": ""},
                {"name": "repeat", "state": "not_run", "why": "no rank repeats a computation"},
            ],
            "records": 14720,
            "rejected": 0,
            "notes": [],
            "blind_to": ["compute faults before the reduction: no canary"],
        },
    }
    return {**verdict, **changes}


def bytes_of(verdict: Json) -> bytes:
    """Some canonical bytes of a verdict."""
    return json.dumps(verdict, sort_keys=True).encode()


def a_curve(
    iterations: int = 400, nan_from: int | None = None, grows_from: int | None = None
) -> list[CurvePoint]:
    """A loss that falls, and explodes or turns NaN where asked to."""
    points = []
    for t in range(iterations):
        loss = 2.0 + 8.0 * math.exp(-t / 80)
        if grows_from is not None and t > grows_from:
            loss *= math.exp((t - grows_from) / 10)
        if nan_from is not None and t >= nan_from:
            points.append(CurvePoint(t, None, None, None, 8))
        else:
            points.append(CurvePoint(t, loss, loss, loss, 0))
    return points


def log_lines(
    run: str = "job",
    *,
    ranks: int = 8,
    iterations: int = 120,
    odd_rank: int | None = None,
    odd_from: int = 80,
    nan_rank: int | None = None,
) -> list[bytes]:
    """A log of a small run: loss and parameter checksum of every rank.

    ``odd_rank`` holds other parameters from ``odd_from`` on; the loss of ``nan_rank`` is NaN from there.
    """
    lines = []
    for t in range(iterations):
        for rank in range(ranks):
            wobble = ((t * 7919 + rank * 104729) % 1000) / 10_000
            record: Json = {"run": run, "rank": rank, "iteration": t}
            record["loss"] = 2.0 + 3.0 / (1 + t / 20) + wobble
            if nan_rank == rank and t >= odd_from:
                record["loss"] = "NaN"
            odd = odd_rank == rank and t >= odd_from
            record["param_checksum"] = f"{(t + 1) * 1_000_003 + odd:016x}"
            lines.append(json.dumps(record).encode())
    return lines


def write_log(path: Path, lines: Iterable[bytes]) -> Path:
    """A JSON-lines file."""
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def batches_of(lines: Sequence[bytes], size: int = 200) -> list[RecordBatch]:
    """The lines decoded, ``size`` of them a batch, with their place as the offset."""
    decoder = Decoder()
    messages = [RawMessage("topic:0", at, line) for at, line in enumerate(lines)]
    return [decoder.decode(messages[at : at + size]) for at in range(0, len(messages), size)]


class ListSource:
    """Hands out given batches, then calls ``at_end`` at each further poll."""

    def __init__(self, batches: Sequence[RecordBatch], at_end: Callable[[], None], claim: ClaimParts) -> None:
        self._batches = list(batches)
        self._at_end = at_end
        self._claim = claim
        self._next: int | None = None
        self.is_disowned = False

    def poll(self, timeout_s: float) -> list[RecordBatch]:
        if self._next is None:
            offsets = self._claim(frozenset(["topic:0"]))
            self._next = 0 if offsets is None else offsets.get("topic:0", 0)
        if self.is_disowned:
            self._at_end()
            return []
        if self._next >= len(self._batches):
            self._at_end()
            return []
        self._next += 1
        return [self._batches[self._next - 1]]

    def position(self) -> Mapping[str, int]:
        return {} if self._next is None else {"topic:0": self._next}

    def disown(self) -> None:
        self.is_disowned = True

    @property
    def is_exhausted(self) -> bool:
        return False

    def close(self) -> None:
        pass


class ListOutlet:
    """Keeps what a worker hands on."""

    def __init__(self) -> None:
        self.verdicts: list[tuple[str, bytes]] = []
        self.letters: list[Rejected] = []
        self.arrived: list[int] = []

    def publish_verdict(self, seq: int, incident_id: str, verdict: bytes) -> None:
        self.verdicts.append((incident_id, verdict))
        self.arrived.append(seq)

    def acknowledged(self) -> list[int]:
        done, self.arrived = self.arrived, []
        return done

    def flush(self, timeout_s: float) -> bool:
        return True

    @property
    def waiting_letters(self) -> int:
        return 0

    def dead_letters(self, rejected: Sequence[Rejected]) -> None:
        self.letters.extend(rejected)


def stop_after(polls: int) -> tuple[threading.Event, Callable[[], None]]:
    """An event, and a function that sets it at its ``polls``-th call."""
    stop, calls = threading.Event(), [0]

    def count() -> None:
        calls[0] += 1
        if calls[0] >= polls:
            stop.set()

    return stop, count
