"""The loss of a critic or of one side of a game is judged as what it is, also where it is the only loss."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingest.jobs import find_jobs
from service.offline import ReplayOptions, judge_jobs

STEPS = 80


def growing(name: str, path: Path, *, is_text: bool = False) -> Path:
    """A log of one loss that grows thirty-fold."""
    records = [{"step": step * 100, name: round(0.5 * 1.06**step, 4)} for step in range(STEPS)]
    if is_text:
        path.write_text("".join(f"step {each['step']} | {name}: {each[name]}\n" for each in records))
    else:
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize("is_text", [False, True], ids=["json", "text"])
@pytest.mark.parametrize("name", ["vf_loss", "critic_loss", "qf1_loss", "d_loss"])
def test_a_critic_whose_loss_grows_is_suspected_at_most(name: str, is_text: bool, tmp_path: Path) -> None:
    path = growing(name, tmp_path / "log.jsonl", is_text=is_text)

    (job,) = judge_jobs(find_jobs([path]), ReplayOptions())

    verdict = job.runs[0].body
    assert {one["certainty"] for one in verdict["incidents"]} == {"suspected"}
    assert {"loss", name} <= set(verdict["coverage"]["metrics"])


@pytest.mark.parametrize("name", ["loss", "train_loss"])
def test_any_other_loss_that_grows_is_an_explosion(name: str, tmp_path: Path) -> None:
    (job,) = judge_jobs(find_jobs([growing(name, tmp_path / "log.jsonl")]), ReplayOptions())

    assert job.runs[0].body["label"] == "gradient_explosion"


def test_an_accuracy_behind_a_loss_of_validation_is_of_validation(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    lines = [
        f"Epoch {epoch} {part} Loss: {2.3 - epoch / 20:.3f} Acc: {epoch / 40:.3f}"
        for epoch in range(20)
        for part in ("Train", "Val")
    ]
    path.write_text("\n".join(lines) + "\n")

    (job,) = judge_jobs(find_jobs([path]), ReplayOptions())

    assert {"loss", "eval_loss", "eval_acc"} <= set(job.runs[0].body["coverage"]["metrics"])
