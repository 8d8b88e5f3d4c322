"""Pipes are read while they have a writer, and what never ends or never comes is refused with its name."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ingest.errors import UnreadableInput
from ingest.special_files import readable_copy
from service.inputs import find_inputs
from service.offline import ReplayOptions, judge_jobs


def pipe_in(folder: Path) -> Path:
    path = folder / "run.csv"
    os.mkfifo(path)
    return path


def test_what_is_written_to_a_pipe_is_judged(tmp_path: Path) -> None:
    path = pipe_in(tmp_path)
    table = "step,loss\n" + "".join(f"{step},{3 - step / 100}\n" for step in range(100))
    writer = threading.Thread(target=path.write_text, args=(table,))
    writer.start()

    with find_inputs([path]) as inputs:
        (job,) = judge_jobs(inputs.jobs, ReplayOptions())
    writer.join()

    assert (job.runs[0].body["run"], job.runs[0].body["judged_to_iteration"]) == ("run", 99)


def test_a_pipe_that_nobody_writes_to_is_told_after_a_while(tmp_path: Path) -> None:
    path = pipe_in(tmp_path)

    told = pytest.raises(UnreadableInput, match=r"run\.csv: a pipe that nobody wrote to within 0\.01 s")
    with told, readable_copy(path, within_s=0.01):
        pass


@pytest.mark.parametrize("is_awaited", [False, True])
def test_a_device_is_refused_before_it_is_opened(is_awaited: bool) -> None:
    with find_inputs(["/dev/zero"], is_awaited=is_awaited) as inputs:
        assert inputs.jobs == ()

    assert "/dev/zero" in inputs.missing[0].unreadable
    assert "a device" in inputs.missing[0].unreadable


def test_a_pipe_is_not_followed_by_its_name(tmp_path: Path) -> None:
    with find_inputs([pipe_in(tmp_path)], is_awaited=True) as inputs:
        assert "follow - instead" in inputs.missing[0].unreadable
