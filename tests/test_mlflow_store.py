"""MLflow's files of metrics: what of them becomes records."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.wire import Defaults
from ingest.errors import UnreadableInput
from ingest.file_source import FileSource
from ingest.jobs import Job, JobFile
from ingest.log_reader import FileConfig
from ingest.mlflow_store import read

from .file_builders import read_all, rows_of, source_of, values_of
from .tracker_builders import write_mlflow_run


def of_folder(folder: Path) -> FileSource:
    return FileSource(Job("r", (JobFile(str(folder)),)))


def test_one_metric_file_is_read_under_its_name(tmp_path: Path) -> None:
    path = tmp_path / "loss"
    path.write_text("1659627789123 2.5 0\n1659627790123 nan 1\n")

    batch = read_all(source_of(path))

    values = values_of(batch, "loss")
    assert [row[2] for row in rows_of(batch)] == [0, 1]
    assert values[0] == 2.5 and values[1] is not None and math.isnan(values[1])


def test_the_metrics_of_a_run_folder_are_joined_by_step(tmp_path: Path) -> None:
    folder = write_mlflow_run(
        tmp_path / "abc",
        {"train/loss": [(0, "2.0"), (10, "inf")], "lr": [(0, "0.1")], "val_loss": [(10, "3.0")]},
    )

    batch = read_all(of_folder(folder))

    assert [row[2] for row in rows_of(batch)] == [0, 10]
    assert values_of(batch, "loss") == [2.0, math.inf]
    assert values_of(batch, "val_loss") == [None, 3.0]


def test_a_broken_line_is_rejected_and_the_others_are_read(tmp_path: Path) -> None:
    path = tmp_path / "loss"
    path.write_text("1659627789123 2.5 0\n1659627789123 what 1\n1659627790123 1.5 2\n1659627")
    source = source_of(path)

    assert [row[2] for row in rows_of(read_all(source))] == [0, 2]
    assert source.notes[0].rejected == 2


def test_a_run_folder_without_a_value_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="abc"):
        read_all(of_folder(write_mlflow_run(tmp_path / "abc", {"loss": []})))


@given(st.binary(max_size=300))
def test_any_bytes_give_records_or_a_reason(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed"
    path.write_bytes(b"1659627789123 2.5 0\n" + data)

    rows = sum(len(batch) for batch, _ in read(path, Defaults(run="r", rank=0), FileConfig()))

    assert rows >= 1
