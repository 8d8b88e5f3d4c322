"""Files with numbers in their names: attempts of one job, or runs of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from ingest.continuations import join_continuations
from ingest.file_source import FileSource
from ingest.jobs import find_jobs

from .file_builders import read_all, rows_of


def write(folder: Path, name: str, first: int, last: int, *, every: int = 1, metric: str = "loss") -> None:
    rows = "".join(
        f"{step},{2.0 - step / 1e4 + len(name) / 1e6 + first / 1e9}\n" for step in range(first, last, every)
    )
    (folder / name).write_text(f"step,{metric}\n{rows}")


def test_a_file_that_goes_on_from_another_is_its_next_attempt(tmp_path: Path) -> None:
    write(tmp_path, "slurm-1001.csv", 0, 500)
    write(tmp_path, "slurm-1002.csv", 400, 900)
    write(tmp_path, "slurm-1010.csv", 850, 1000)

    (job,) = join_continuations(find_jobs([tmp_path]))

    rows = rows_of(read_all(FileSource(job)))
    assert [row[0] for row in rows] == [0] * 500 + [1] * 500 + [2] * 150
    assert job.run == "slurm-1001"


@pytest.mark.parametrize(
    ("first", "every", "metric"),
    [(0, 1, "loss"), (10, 10, "loss"), (100, 100, "loss"), (950, 1, "accuracy"), (5000, 1, "loss")],
)
def test_runs_of_their_own_stay_apart(tmp_path: Path, first: int, every: int, metric: str) -> None:
    write(tmp_path, "run1.csv", 0, 1000)
    write(tmp_path, "run2.csv", first, first + 1000, every=every, metric=metric)

    assert len(join_continuations(find_jobs([tmp_path]))) == 2


def test_a_new_run_begins_a_new_chain(tmp_path: Path) -> None:
    for name, first in (("a1.csv", 0), ("a2.csv", 90), ("a3.csv", 0), ("a4.csv", 80)):
        write(tmp_path, name, first, first + 100)

    jobs = join_continuations(find_jobs([tmp_path]))

    assert [(job.run, len(job.files[0].parts)) for job in jobs] == [("a1", 1), ("a3", 1)]


def test_what_cannot_be_read_is_left_as_it_is(tmp_path: Path) -> None:
    write(tmp_path, "a1.csv", 0, 100)
    (tmp_path / "a2.csv").write_bytes(b"")

    assert len(join_continuations(find_jobs([tmp_path]))) == 2


def test_the_streams_of_attempts_are_joined_with_them(tmp_path: Path) -> None:
    for name, first in (("a-1001", 0), ("a-1002", 450)):
        text = "".join(
            f"step: {step} loss: {2 - step / 1e4 + first / 1e9:.9f}\n" for step in range(first, first + 500)
        )
        (tmp_path / f"{name}.out").write_text(text)
        (tmp_path / f"{name}.err").write_text("a warning\n")

    (job,) = join_continuations(find_jobs([tmp_path]))

    (file,) = job.files
    names = [Path(path).name for stream in (file, *file.beside) for path in (stream.path, *stream.parts)]
    assert names == ["a-1001.out", "a-1002.out", "a-1001.err", "a-1002.err"]
