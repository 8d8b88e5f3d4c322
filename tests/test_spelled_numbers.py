"""Numbers that JSON cannot write, as programs in other languages print them, are observations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ingest.jobs import find_jobs
from service.offline import ReplayOptions, judge_jobs

FINITE = 12
WORDS = ("nan", "-nan", "NAN", "inf", "+Inf", '"nan"', '"-inf"', '"+Inf"', "-nan(ind)")


def verdict_of(path: Path) -> dict[str, Any]:
    (job,) = judge_jobs(find_jobs([path]), ReplayOptions())
    assert not job.unreadable
    assert not job.rejects.by_reason
    (run,) = job.runs
    return dict(run.body)


def log(folder: Path, line: Callable[[int, str], str], word: str) -> Path:
    path = folder / "log.jsonl"
    values = [f"{3 - at / 20:.3f}" for at in range(FINITE)] + [word] * 3
    path.write_text("".join(line(at, value) + "\n" for at, value in enumerate(values)), "utf-8")
    return path


def ours(at: int, value: str) -> str:
    return f'{{"iteration": {at}, "rank": 0, "loss": {value}, "grad_norm": 1.5}}'


def others(at: int, value: str) -> str:
    return f'{{"event": "train", "data": {{"iter": {at}, "metrics": {{"loss": {value}}}}}}}'


@pytest.mark.parametrize("line", [ours, others])
@pytest.mark.parametrize("word", WORDS)
def test_a_word_for_a_number_is_that_number(word: str, line: Any, tmp_path: Path) -> None:
    verdict = verdict_of(log(tmp_path, line, word))
    assert verdict["label"] == "nan"
    assert verdict["incidents"][0]["first"]["iteration"] == FINITE


def test_numbers_in_quotes_are_numbers(tmp_path: Path) -> None:
    verdict = verdict_of(log(tmp_path, lambda at, value: f'{{"step": "{at}", "loss": "{value}"}}', "nan"))
    assert verdict["label"] == "nan"
    assert verdict["judged_to_iteration"] == FINITE + 2


def test_a_word_inside_a_text_stays_text(tmp_path: Path) -> None:
    path = log(tmp_path, lambda at, _: f'{{"step": {at}, "loss": 2.5, "note": "a: nan, b", "x": None}}', "0")
    assert verdict_of(path)["label"] == "healthy"
