"""A probe under the real torchrun, which starts a job that crashed once more."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import firstfault

from .probe_builders import ROOT, lines_of

pytest.importorskip("torch")

from .elastic_program import CRASH, ITERATIONS, SAVED

pytestmark = pytest.mark.torch
RUN = ("--standalone", "--nproc-per-node=2", "--max-restarts=1", "--monitor-interval=0.2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both attempts left."""
    folder = tmp_path_factory.mktemp("elastic")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        *RUN,
        "-m",
        "tests.elastic_program",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "the probe failed" not in done.stderr
    return folder


def told(folder: Path, rank: int, attempt: int, kind: str = "") -> list[dict[str, Any]]:
    """The events of a kind, or the records of iterations, of one rank in one attempt."""
    lines = [line for line in lines_of(folder / f"run-rank{rank}.jsonl") if line["attempt"] == attempt]
    return [line for line in lines if (line.get("event") == kind if kind else "loss" in line)]


@pytest.fixture(scope="module")
def verdict(folder: Path) -> Mapping[str, Any]:
    (verdict,) = firstfault.replay(folder)
    return verdict


@pytest.mark.parametrize("rank", [0, 1])
def test_attempts_are_told_apart_and_each_iteration_is_of_one_of_them(folder: Path, rank: int) -> None:
    trained = [[line["iteration"] for line in told(folder, rank, attempt)] for attempt in (0, 1)]
    assert trained == [list(range(CRASH)), list(range(SAVED + 1, ITERATIONS))]
    assert len(told(folder, rank, 2)) == 0


def test_the_resume_names_the_first_iteration_to_come_and_the_end_is_of_the_last_attempt(
    folder: Path,
) -> None:
    for rank in (0, 1):
        assert told(folder, rank, 0, "resume") == []
        assert [line["iteration"] for line in told(folder, rank, 1, "resume")] == [SAVED + 1]
    assert [len(told(folder, 0, attempt, "run_end")) for attempt in (0, 1)] == [0, 1]


def test_last_words_are_of_the_attempt_that_crashed_and_say_where(folder: Path) -> None:
    (words,) = told(folder, 1, 0, "hardware")
    assert (words["code"], words["iteration"], words["phase"]) == ("RuntimeError", CRASH, "forward")
    assert "device lost" in words["text"]
    assert [told(folder, rank, 1, "hardware") for rank in (0, 1)] == [[], []]


def test_the_verdict_names_who_crashed_first_and_calls_the_second_attempt_healthy(
    verdict: Mapping[str, Any],
) -> None:
    attempts = [(one["label"], one["from"], one["to"]) for one in verdict["attempts"]]
    assert attempts == [("stall", 0, CRASH - 1), ("healthy", SAVED + 1, ITERATIONS - 1)]
    (incident,) = verdict["incidents"]
    first = incident["first"]
    assert (first["attempt"], first["ranks"], first["interval"]) == (0, [1], [CRASH - 1, CRASH])
    assert incident["last_good"]["checkpoint_iteration"] == SAVED
    assert incident["cost"]["iterations_to_redo"] == CRASH - SAVED - 1


def test_what_was_trained_twice_came_out_the_same(folder: Path) -> None:
    again = range(SAVED + 1, CRASH)
    first, second = (
        {line["iteration"]: line["param_checksum"] for line in told(folder, 0, attempt)} for attempt in (0, 1)
    )
    assert [first[at] for at in again] == [second[at] for at in again]
