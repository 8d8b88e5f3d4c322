"""W&B's offline files: what of them becomes records."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.wire import Defaults
from ingest.errors import UnreadableInput
from ingest.log_reader import FileConfig
from ingest.wandb_log import read

from .file_builders import read_all, rows_of, source_of, values_of
from .tracker_builders import wandb_file, wandb_history, wandb_run

ROWS = [wandb_history(step, {"train/loss": str(2 - step / 100), "lr": "0.1"}) for step in range(20)]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_history_rows_are_records(tmp_path: Path) -> None:
    source = source_of(write(tmp_path / "run-1.wandb", wandb_file([wandb_run("brave-fox-1"), *ROWS])))

    batch = read_all(source)

    assert [row[2] for row in rows_of(batch)] == list(range(20))
    assert values_of(batch, "loss")[:2] == [2.0, 1.99]
    assert "the run is called 'brave-fox-1'" in source.notes[0].remarks


@pytest.mark.parametrize("spelled", ["NaN", '"NaN"'])
def test_a_nan_is_one_however_it_is_spelled(tmp_path: Path, spelled: str) -> None:
    data = wandb_file([*ROWS, wandb_history(20, {"train/loss": spelled, "lr": "null"})])

    batch = read_all(source_of(write(tmp_path / "r.wandb", data)))

    last = values_of(batch, "loss")[-1]
    assert last is not None and math.isnan(last)
    assert values_of(batch, "lr")[-1] is None


def test_the_trainers_own_counter_goes_before_that_of_calls(tmp_path: Path) -> None:
    rows = [
        wandb_history(step, {"loss": "1.5", "train/global_step": str(step * 10), "train.nested": "1"})
        for step in range(30)
    ]
    source = source_of(write(tmp_path / "r.wandb", wandb_file(rows)))

    batch = read_all(source)

    assert [row[2] for row in rows_of(batch)] == list(range(0, 300, 10))
    assert source.notes[0].understood.counter == "train/global_step"
    assert "train.nested" in batch.numbers


def test_a_record_over_several_blocks_is_read(tmp_path: Path) -> None:
    row = wandb_history(1, {"loss": "1.0", "note": '"' + "x" * 100_000 + '"'})

    batch = read_all(source_of(write(tmp_path / "r.wandb", wandb_file([*ROWS[:1], row, *ROWS[2:]]))))

    assert len(batch) == 20


def test_the_file_of_a_killed_run_keeps_what_came_before(tmp_path: Path) -> None:
    source = source_of(write(tmp_path / "r.wandb", wandb_file(ROWS)[:-9]))

    assert len(read_all(source)) == 19
    assert any("ends inside a record" in remark for remark in source.notes[0].remarks)


def test_another_version_is_refused_by_its_number(tmp_path: Path) -> None:
    data = bytearray(wandb_file(ROWS))
    data[6] = 9

    with pytest.raises(UnreadableInput, match="version 0, got 9"):
        read_all(source_of(write(tmp_path / "r.wandb", bytes(data))))


def test_a_run_without_history_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="no history"):
        read_all(source_of(write(tmp_path / "r.wandb", wandb_file([wandb_run("x")]))))


@given(st.binary(max_size=200), st.integers(0, 3000), st.integers(0, 255), st.booleans())
def test_damaged_files_give_records_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int, flip: int, is_cut: bool
) -> None:
    data = bytearray(wandb_file(ROWS))
    at %= len(data)
    data[at] ^= flip
    data[at:at] = junk
    path = write(
        tmp_path_factory.getbasetemp() / "fuzz.wandb", bytes(data[: -at or None] if is_cut else data)
    )

    try:
        rows = sum(len(batch) for batch, _ in read(path, Defaults(run="r", rank=0), FileConfig()))
    except UnreadableInput:
        rows = 0

    assert rows <= len(ROWS)
