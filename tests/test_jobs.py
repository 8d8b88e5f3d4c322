"""Which files are one job, and how jobs are named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import UnreadableInput
from ingest.job_folders import PassedOver
from ingest.jobs import STANDARD_INPUT, find_jobs

from .file_builders import job_names
from .tracker_builders import write_events, write_mlflow_run


def folder(tmp_path: Path, *names: str) -> Path:
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("step,loss\n1,2\n")
    return tmp_path


@pytest.mark.parametrize(
    ("names", "run"),
    [
        (("job-rank_0000.csv", "job-rank_0003.csv"), "job"),
        (("x.rank0.jsonl", "x.rank3.jsonl"), "x"),
        (("worker-0.csv", "worker-3.csv"), "logs"),
        (("llama_local_rank0_v2.jsonl.gz", "llama_local_rank3_v2.jsonl.gz"), "llama-v2"),
        (("rank0.jsonl", "rank3.jsonl"), "logs"),
        (("proc0.tsv", "proc3.tsv"), "logs"),
    ],
)
def test_files_that_differ_only_by_a_rank_are_one_job(
    tmp_path: Path, names: tuple[str, ...], run: str
) -> None:
    root = folder(tmp_path / "logs", *names)

    assert job_names(find_jobs([root])) == {run: [0, 3]}


def test_a_number_alone_is_no_rank(tmp_path: Path) -> None:
    root = folder(tmp_path, "run1.csv", "run2.csv", "exp-3.csv")

    assert job_names(find_jobs([root])) == {"run1": [None], "run2": [None], "exp-3": [None]}


def test_a_word_that_only_ends_in_rank_is_no_rank(tmp_path: Path) -> None:
    assert job_names(find_jobs([folder(tmp_path, "frank1.csv", "frank2.csv")])) == {
        "frank1": [None],
        "frank2": [None],
    }


def test_bare_numbers_from_zero_alone_are_ranks(tmp_path: Path) -> None:
    complete = folder(tmp_path / "complete", "0.jsonl", "1.jsonl", "2.jsonl", "10.csv")
    gap = folder(tmp_path / "gap", "0.jsonl", "2.jsonl")

    assert job_names(find_jobs([complete])) == {"complete": [0, 1, 2], "10": [None]}
    assert job_names(find_jobs([gap])) == {"0": [None], "2": [None]}


def test_ranks_come_in_the_order_of_numbers(tmp_path: Path) -> None:
    (job,) = find_jobs([folder(tmp_path, *(f"rank{rank}.csv" for rank in (10, 2, 1)))])

    assert [file.rank for file in job.files] == [1, 2, 10]


def test_jobs_of_one_name_in_several_folders_do_not_collide(tmp_path: Path) -> None:
    root = folder(tmp_path, "a/train.csv", "b/train.csv", "c/other.csv")

    names = [job.run for job in find_jobs([root])]

    assert len(set(names)) == 3
    assert names[2] == "other"
    assert names[0].endswith("a/train") and names[1].endswith("b/train")


def test_one_stem_with_two_endings_does_not_collide(tmp_path: Path) -> None:
    names = [job.run for job in find_jobs([folder(tmp_path, "train.csv", "train.jsonl")])]

    assert len(set(names)) == 2


def test_ranks_in_different_folders_are_different_jobs(tmp_path: Path) -> None:
    root = folder(tmp_path, "a/rank0.csv", "a/rank1.csv", "b/rank0.csv", "b/rank1.csv")

    assert job_names(find_jobs([root])) == {"a": [0, 1], "b": [0, 1]}


def test_one_rank_in_two_formats_makes_two_jobs(tmp_path: Path) -> None:
    jobs = find_jobs([folder(tmp_path, "rank0.csv", "rank1.csv", "rank0.jsonl", "rank1.jsonl")])

    assert [[Path(file.path).name for file in job.files] for job in jobs] == [
        ["rank0.csv", "rank1.csv"],
        ["rank0.jsonl", "rank1.jsonl"],
    ]


def test_a_folder_gives_only_readable_visible_files(tmp_path: Path) -> None:
    root = folder(tmp_path, "a.csv", ".hidden.csv", ".git/b.csv", "notes.md", "model.pt", "deep/c.jsonl.zst")

    assert list(job_names(find_jobs([root]))) == ["a", "c"]


def test_a_file_that_is_named_is_taken_whatever_its_name(tmp_path: Path) -> None:
    root = folder(tmp_path, "train.log", "data")

    assert list(job_names(find_jobs([root / "train.log", root / "data"]))) == ["train", "data"]


def test_a_link_back_to_its_own_folder_ends(tmp_path: Path) -> None:
    root = folder(tmp_path, "a/x.csv")
    (root / "a" / "loop").symlink_to(root)

    assert len(find_jobs([root])) == 1


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    root = folder(tmp_path, "x.csv")

    assert len(find_jobs([root, root / "x.csv", "-", "-"])) == 2


def test_standard_input_is_a_job_of_its_own() -> None:
    (job,) = find_jobs(["-"])

    assert (job.run, job.files[0].path) == ("stdin", STANDARD_INPUT)


@pytest.mark.parametrize("name", ["missing.csv", "empty_folder"])
def test_what_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty_folder").mkdir()

    with pytest.raises(UnreadableInput, match=name):
        find_jobs([tmp_path / name])


def test_a_run_name_keeps_the_rules_of_the_wire(tmp_path: Path) -> None:
    from firstfault.wire_values import is_run_name

    root = folder(tmp_path, "bad\x01name.csv", "é" * 120 + ".csv")

    assert all(is_run_name(job.run) for job in find_jobs([root]))


def test_a_folder_of_event_files_is_one_run_and_its_subfolders_are_others(tmp_path: Path) -> None:
    for run in ("a", "a/eval", "b"):
        write_events(tmp_path / run, [("loss", 1, 1.0)])
    write_events(tmp_path / "a", [("loss", 2, 1.0)], at=1_764_480_000)

    jobs = find_jobs([tmp_path])

    assert [Path(job.files[0].path).relative_to(tmp_path).as_posix() for job in jobs] == ["a", "a/eval", "b"]
    assert [job.run for job in jobs] == ["a", "eval", "b"]


def test_a_folder_of_an_mlflow_run_is_one_run(tmp_path: Path) -> None:
    for run in ("0/abc", "0/def"):
        write_mlflow_run(tmp_path / run, {"loss": [(1, "1.0")], "train/lr": [(1, "1.0")]})

    assert [len(job.files) for job in find_jobs([tmp_path])] == [1, 1]


@pytest.mark.parametrize(
    ("names", "run", "ranks"),
    [
        (("workerlog.0", "workerlog.1", "workerlog.10"), "logs", [0, 1, 10]),
        (("rank_0/train.log", "rank_3/train.log"), "train", [0, 3]),
        (("rank0/logs/a.out", "rank1/logs/a.out"), "a", [0, 1]),
        (("gpu0.log", "gpu1.log"), "logs", [0, 1]),
        (("stdout.0", "stdout.1", "stdout.2"), "logs", [0, 1, 2]),
        (("train-123456-0.out", "train-123456-1.out"), "train-123456", [0, 1]),
        (("none_ab/attempt_0/0/stdout.log", "none_ab/attempt_0/1/stdout.log"), "none_ab", [0, 1]),
    ],
)
def test_launchers_name_ranks_in_many_ways(
    tmp_path: Path, names: tuple[str, ...], run: str, ranks: list[int]
) -> None:
    assert job_names(find_jobs([folder(tmp_path / "logs", *names)])) == {run: ranks}


@pytest.mark.parametrize(
    "names",
    [
        ("gpu1.log", "gpu2.log"),
        ("rank_3/train.log",),
        ("0/metrics.csv", "1/metrics.csv"),
        ("slurm-123456_0.out", "slurm-123456_1.out"),
        ("version_0/metrics.csv", "version_1/metrics.csv"),
    ],
)
def test_numbers_that_may_count_runs_are_no_ranks(tmp_path: Path, names: tuple[str, ...]) -> None:
    jobs = find_jobs([folder(tmp_path, *names)])

    assert len(jobs) == len(names)
    assert {file.rank for job in jobs for file in job.files} == {None}


def test_rotated_pieces_are_one_stream_oldest_first(tmp_path: Path) -> None:
    root = folder(
        tmp_path, "train.log", "train.log.1", "train.log.10", "train.log.2.gz", "train.log.2026-11-01"
    )

    (job,) = find_jobs([root])

    (file,) = job.files
    order = [Path(path).name for path in (file.path, *file.parts)]
    assert order == ["train.log.2026-11-01", "train.log.10", "train.log.2.gz", "train.log.1", "train.log"]
    assert job.run == "train"


def test_attempts_of_each_rank_are_one_stream(tmp_path: Path) -> None:
    names = [f"none_ab/attempt_{attempt}/{rank}/stdout.log" for attempt in (0, 1, 2) for rank in (0, 1)]

    (job,) = find_jobs([folder(tmp_path, *names)])

    for file in job.files:
        order = [Path(path).parts[-3:-1] for path in (file.path, *file.parts)]
        assert order == [(f"attempt_{attempt}", str(file.rank)) for attempt in (0, 1, 2)]


@pytest.mark.parametrize(
    "names",
    [
        ("train.out", "train.err"),
        ("stdout.log", "stderr.log"),
        ("job.o12345", "job.e12345"),
        ("log_stdout.txt", "log_stderr.txt"),
    ],
)
def test_the_streams_of_a_process_are_one_job(tmp_path: Path, names: tuple[str, str]) -> None:
    (job,) = find_jobs([folder(tmp_path, *names)])

    (file,) = job.files
    assert (Path(file.path).name, [Path(each.path).name for each in file.beside]) == (names[0], [names[1]])


def test_any_text_in_a_folder_counts_and_what_does_not_is_said(tmp_path: Path) -> None:
    folder(tmp_path, "a.log", "b", "c.out", "train.py", "model.pt", "notes.md", ".hidden")
    (tmp_path / "core").write_bytes(bytes(range(256)) * 20)
    passed = PassedOver()

    jobs = find_jobs([tmp_path], passed)

    assert [job.run for job in jobs] == ["a", "b", "c"]
    assert list(passed.lines()) == [
        "1 file was passed over: binary, in no format that is read (core)",
        "3 files were passed over: no log by its name (model.pt, notes.md, train.py)",
    ]


def test_the_states_of_earlier_checkpoints_are_no_runs(tmp_path: Path) -> None:
    folder(
        tmp_path,
        "a/checkpoint-500/trainer_state.json",
        "a/checkpoint-1000/trainer_state.json",
        "b/checkpoint-9/trainer_state.json",
        "b/trainer_state.json",
    )
    passed = PassedOver()

    jobs = find_jobs([tmp_path], passed)

    states = [Path(job.files[0].path).relative_to(tmp_path).as_posix() for job in jobs]
    assert states == ["a/checkpoint-1000/trainer_state.json", "b/trainer_state.json"]
    assert "2 files were passed over: state of an earlier checkpoint" in next(passed.lines())


PIECES = [*"019.-_~ é\x01\n", "rank", "stdout", "attempt_", ".log", ".gz", ".out", ".err", "gpu"]
NAMES = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@given(st.lists(st.tuples(NAMES, NAMES), max_size=8))
def test_any_names_are_grouped_with_every_file_once(names: list[tuple[str, str]]) -> None:
    paths = {str(Path("x") / folder.replace("/", "") / f"f{name}") for folder, name in names}

    jobs = find_jobs(sorted(paths), is_awaited=True)

    found = [
        path
        for job in jobs
        for file in job.files
        for stream in (file, *file.beside)
        for path in (stream.path, *stream.parts)
    ]
    assert sorted(found) == sorted(str(Path(path)) for path in paths)
    assert len({job.run for job in jobs}) == len(jobs)
