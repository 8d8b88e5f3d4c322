"""A loss of validation that turns NaN is told, whatever the loss of training says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ingest.jobs import find_jobs
from service.offline import ReplayOptions, judge_jobs

FORMS = {
    "log.jsonl": '{{"epoch": {at}, "train_loss": {loss:.3f}, "val_loss": {value}}}',
    "both.log": "Epoch {at}: train loss {loss:.3f}, val loss {value}",
    "alone.log": "Epoch {at}, validation loss {value}",
}


def labels(folder: Path, name: str, values: Sequence[object]) -> list[tuple[str, int]]:
    """Label and iteration of the confirmed incidents."""
    lines = (FORMS[name].format(at=at, loss=3 - at / 50, value=each) for at, each in enumerate(values))
    (folder / name).write_text("\n".join(lines) + "\n", "utf-8")
    (job,) = judge_jobs(find_jobs([folder / name]), ReplayOptions())
    incidents = [one for run in job.runs for one in run.body["incidents"]]
    return [(one["label"], one["first"]["iteration"]) for one in incidents if one["certainty"] == "confirmed"]


@pytest.mark.parametrize("name", FORMS)
def test_a_validation_that_turns_nan_is_an_incident(name: str, tmp_path: Path) -> None:
    values = [f"{3.2 - at / 50:.3f}" for at in range(25)]
    assert labels(tmp_path, name, [*values, *["nan"] * 6]) == [("nan", 25)]


@pytest.mark.parametrize("name", ["log.jsonl", "both.log"])
def test_a_validation_without_samples_is_none(name: str, tmp_path: Path) -> None:
    assert labels(tmp_path, name, ["NaN"] * 30) == []


def test_a_validation_that_is_nan_now_and_then_is_none(tmp_path: Path) -> None:
    values = ["3.1" if at % 5 == 0 else "NaN" for at in range(33)]
    assert labels(tmp_path, "log.jsonl", values) == []
