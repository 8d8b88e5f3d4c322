"""Trackers' files with any damage: never a crash, the good part is kept, and what is lost is never healthy.

A bit flipped, a zone of zeros or noise, an end anywhere; in event files of TensorBoard, offline files of W&B
and databases of MLflow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from ingest.jobs import find_jobs
from service.offline import JudgedJob, ReplayOptions, judge_jobs
from service.sufficiency import why_too_little

from .tracker_builders import event_file, wandb_file, wandb_history, wandb_run, write_mlflow_database

STEPS = 300
BAD_FROM = 200
Damage = Callable[[bytearray, np.random.Generator], bytes]


def losses(*, is_bad: bool) -> list[float]:
    return [math.nan if is_bad and step >= BAD_FROM else 2.5 - step / 250 for step in range(STEPS)]


@cache
def whole(kind: str, *, is_bad: bool = False) -> tuple[str, bytes]:
    """A good file of that kind under its usual name."""
    values = losses(is_bad=is_bad)
    if kind == "events":
        return "events.out.tfevents.1764470000.host.1.0", event_file(
            [("loss", step, value) for step, value in enumerate(values)]
        )
    if kind == "wandb":
        rows = [
            wandb_history(step, {"loss": "NaN" if math.isnan(value) else str(value), "_step": str(step)})
            for step, value in enumerate(values)
        ]
        return "run-abc.wandb", wandb_file([wandb_run("r"), *rows])
    with TemporaryDirectory() as folder:
        points = [("loss", step, value) for step, value in enumerate(values)]
        path = write_mlflow_database(Path(folder) / "mlflow.db", {"a": points})
        return path.name, path.read_bytes()


def flipped(data: bytearray, rng: np.random.Generator) -> bytes:
    data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    return bytes(data)


def cut(data: bytearray, rng: np.random.Generator) -> bytes:
    return bytes(data[: int(rng.integers(1, len(data)))])


def overwritten(data: bytearray, rng: np.random.Generator) -> bytes:
    at, size = int(rng.integers(len(data))), int(rng.integers(1, 4000))
    size = min(size, len(data) - at)
    data[at : at + size] = rng.bytes(size) if rng.integers(2) else bytes(size)
    return bytes(data)


def judged(folder: Path, name: str, data: bytes) -> JudgedJob:
    (folder / name).write_bytes(data)
    (job,) = judge_jobs(find_jobs([folder / name]), ReplayOptions())
    return job


@pytest.mark.parametrize("damage", [flipped, cut, overwritten], ids=["flipped", "cut", "overwritten"])
@pytest.mark.parametrize("kind", ["events", "wandb", "mlflow"])
def test_any_damage_is_told_or_costs_little(kind: str, damage: Damage, tmp_path: Path) -> None:
    name, data = whole(kind)
    rng = np.random.default_rng(7)
    for _ in range(12):
        job = judged(tmp_path, name, damage(bytearray(data), rng))
        read = sum(note.rows for note in job.notes)
        is_healthy = bool(job.runs) and not job.unreadable and not why_too_little(job.runs[0].body, job.notes)
        # a file of records that only ends early is a run that was killed; else one part in ten may be lost
        is_killed = damage is cut and kind != "mlflow"
        assert not is_healthy or is_killed or read * 10 >= STEPS * 9


@pytest.mark.parametrize("kind", ["events", "wandb"])
def test_a_nan_behind_damage_is_found(kind: str, tmp_path: Path) -> None:
    name, data = whole(kind, is_bad=True)
    broken = bytearray(data)
    broken[len(data) // 3 : len(data) // 3 + 100] = bytes(100)

    verdict = judged(tmp_path, name, bytes(broken)).runs[0].body

    assert verdict["label"] == "nan"
    assert verdict["incidents"][0]["first"]["iteration"] == BAD_FROM


def test_what_is_left_of_a_database_that_was_cut_is_judged_and_too_little(tmp_path: Path) -> None:
    name, data = whole("mlflow")

    job = judged(tmp_path, name, data[: 3 * len(data) // 4])

    assert job.runs[0].body["judged_to_iteration"] > STEPS // 2
    assert "damaged" in why_too_little(job.runs[0].body, job.notes)
