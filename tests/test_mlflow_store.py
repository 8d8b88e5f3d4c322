"""MLflow's files of metrics: what of them becomes records."""

from __future__ import annotations

import math
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.wire import Defaults
from ingest.columns import records_from_batch
from ingest.errors import UnreadableInput
from ingest.file_source import FileSource
from ingest.jobs import Job, JobFile
from ingest.log_reader import FileConfig
from ingest.mlflow_database import read as read_database
from ingest.mlflow_store import read

from .file_builders import read_all, rows_of, source_of, values_of
from .tracker_builders import write_mlflow_database, write_mlflow_run


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
    assert values_of(batch, "eval_loss") == [None, 3.0]


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


def test_the_runs_of_a_database_are_runs(tmp_path: Path) -> None:
    path = write_mlflow_database(
        tmp_path / "mlflow.db",
        {
            "a": [("loss", step, 2.0) for step in range(3)],
            "b": [("train_loss", 5, math.nan), ("lr", 5, math.inf)],
        },
    )

    records = records_from_batch(read_all(source_of(path)))

    assert [(record.run, record.iteration) for record in records] == [("a", 0), ("a", 1), ("a", 2), ("b", 5)]
    assert math.isnan(records[3].metrics["loss"])
    assert records[3].metrics["lr"] == math.inf


def test_runs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    path = write_mlflow_database(tmp_path / "mlflow.db", {"a": [("loss", 1, 2.0)], "b": [("loss", 1, 2.0)]})
    with sqlite3.connect(path) as database:
        database.execute("update runs set name = 'same'")
    database.close()

    runs = {record.run for record in records_from_batch(read_all(source_of(path)))}

    assert len(runs) == 2 and all(run.startswith("same-") for run in runs)


def test_another_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("create table metrics (a)")
    database.close()

    with pytest.raises(UnreadableInput, match="must be a database of MLflow"):
        read_all(source_of(path))


@given(st.integers(0, 1 << 16), st.binary(min_size=1, max_size=40))
def test_a_damaged_database_gives_records_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, at: int, junk: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz.db"
    good = tmp_path_factory.getbasetemp() / "good.db"
    if not good.exists():
        write_mlflow_database(good, {"a": [("loss", 1, 2.0)]})
    data = bytearray(good.read_bytes())
    at %= len(data)
    data[at : at + len(junk)] = junk
    path.write_bytes(bytes(data))

    with suppress(UnreadableInput):
        list(read_database(path, Defaults(run="r", rank=0), FileConfig()))
