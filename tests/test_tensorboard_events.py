"""TensorBoard event files: what of them becomes records."""

from __future__ import annotations

import math
import struct
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
from ingest.tensorboard_events import read

from .file_builders import read_all, rows_of, source_of, values_of
from .tracker_builders import TIME_S, event, event_file, simple, tensor, version, write_events

STEPS = [("train/loss", step, 2.0 - step / 100) for step in range(10)]


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_scalars_of_one_step_are_one_record(tmp_path: Path) -> None:
    data = version() + event(7, [("train/loss", simple(2.5)), ("grad_norm", simple(0.5))])
    data += event(7, [("learning_rate", simple(0.25))], TIME_S + 1)

    (record,) = records_from_batch(read_all(source_of(write(tmp_path / "events.out.tfevents.1.h", data))))

    assert (record.iteration, record.metrics) == (7, {"loss": 2.5, "grad_norm": 0.5, "lr": 0.25})
    assert record.time == TIME_S + 1


def test_a_scalar_written_as_a_tensor_is_read(tmp_path: Path) -> None:
    data = version() + event(1, [("loss", tensor(0.75))]) + event(2, [("loss", tensor(math.nan))])

    batch = read_all(source_of(write(tmp_path / "e", data)))

    values = values_of(batch, "loss")
    assert values[0] == 0.75 and values[1] is not None and math.isnan(values[1])


def test_a_tensor_of_several_numbers_is_no_scalar(tmp_path: Path) -> None:
    from .tracker_builders import bytes_field, varint_field

    shape = bytes_field(2, bytes_field(2, varint_field(1, 2)))
    two = bytes_field(8, varint_field(1, 1) + shape + bytes_field(4, struct.pack("<ff", 1.0, 2.0)))
    data = version() + event(1, [("histogram", two), ("loss", simple(1.0))])

    assert set(read_all(source_of(write(tmp_path / "e", data))).numbers) == {"loss"}


def test_a_truncated_last_record_keeps_what_came_before(tmp_path: Path) -> None:
    source = source_of(write(tmp_path / "e", event_file(STEPS)[:-5]))

    assert len(read_all(source)) == 9
    assert any("ends inside its last record" in remark for remark in source.notes[0].remarks)


def test_a_tail_of_zeros_is_no_damage(tmp_path: Path) -> None:
    source = source_of(write(tmp_path / "e", event_file(STEPS) + bytes(4096)))

    assert len(read_all(source)) == 10
    assert not any("ends inside" in remark or "damaged" in remark for remark in source.notes[0].remarks)


def test_a_record_with_a_wrong_checksum_is_passed_over_and_said(tmp_path: Path) -> None:
    data = bytearray(event_file(STEPS))
    data[-8] ^= 1
    source = source_of(write(tmp_path / "e", bytes(data)))

    assert len(read_all(source)) == 9
    assert any("1 records with a wrong checksum" in remark for remark in source.notes[0].remarks)


def test_a_giant_length_ends_the_file(tmp_path: Path) -> None:
    from .tracker_builders import masked

    length = struct.pack("<Q", 1 << 60)
    source = source_of(write(tmp_path / "e", event_file(STEPS) + length + masked(length)))

    assert len(read_all(source)) == 10
    assert any("damaged at byte" in remark for remark in source.notes[0].remarks)


def test_series_with_their_own_cadence_keep_their_steps(tmp_path: Path) -> None:
    scalars = [("loss", step, 1.0) for step in range(0, 300, 10)]
    scalars += [("eval/loss", step, 1.0) for step in (100, 200)]

    batch = read_all(source_of(write(tmp_path / "e", event_file(sorted(scalars, key=lambda one: one[1])))))

    assert [row[2] for row in rows_of(batch)] == list(range(0, 300, 10))
    assert [at for at, value in enumerate(values_of(batch, "eval_loss")) if value is not None] == [10, 20]


def test_a_series_that_counts_epochs_is_placed_by_its_times(tmp_path: Path) -> None:
    scalars = []
    for step in range(200):
        scalars.append(("loss", step * 5, 1.0))
        if step % 20 == 19:
            scalars.append(("epoch_loss", step // 20, 1.0))

    source = source_of(write(tmp_path / "e", event_file(scalars)))
    batch = read_all(source)

    placed = [
        row[2] for row, value in zip(rows_of(batch), values_of(batch, "epoch_loss"), strict=True) if value
    ]
    assert placed == [(step * 20 + 19) * 5 for step in range(10)]
    assert any("'epoch_loss' counts something else" in remark for remark in source.notes[0].remarks)


def test_a_series_that_goes_back_begins_an_attempt(tmp_path: Path) -> None:
    steps = [*range(100), *range(80, 120)]
    scalars = [(tag, step, 1.0) for step in steps for tag in ("loss", "lr")]

    batch = read_all(source_of(write(tmp_path / "e", event_file(scalars))))

    expected = [(0, -1, step) for step in range(100)] + [(1, -1, step) for step in range(80, 120)]
    assert rows_of(batch) == expected


def test_steps_that_are_all_zero_are_counted(tmp_path: Path) -> None:
    source = source_of(write(tmp_path / "e", event_file([("loss", 0, float(count)) for count in range(5)])))

    assert [row[2] for row in rows_of(read_all(source))] == [0, 1, 2, 3, 4]
    assert source.notes[0].understood.counter == "row number"


def test_event_files_of_one_folder_are_one_run_with_its_restarts(tmp_path: Path) -> None:
    write_events(tmp_path, [("loss", step, 1.0) for step in range(50)], at=1_700_000_000)
    write_events(tmp_path, [("loss", step, 1.0) for step in range(40, 60)], at=1_700_001_000)
    source = FileSource(Job("r", (JobFile(str(tmp_path)),)))

    batch = read_all(source)

    assert [row[0] for row in rows_of(batch)] == [0] * 50 + [1] * 20


def test_a_file_without_scalars_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "e", version())

    with pytest.raises(UnreadableInput, match="holds no scalar"):
        read_all(source_of(path))


def test_a_name_can_be_given_as_the_loss(tmp_path: Path) -> None:
    path = write(tmp_path / "e", event_file([("objective", 1, 3.0), ("train/loss", 1, 4.0)]))

    batch = read_all(source_of(path, config=FileConfig(columns={"loss": "objective"})))

    assert values_of(batch, "loss") == [3.0]


@given(st.binary(max_size=300), st.integers(0, 2000), st.integers(0, 255), st.booleans())
def test_damaged_files_give_records_or_a_reason(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, at: int, flip: int, is_cut: bool
) -> None:
    data = bytearray(event_file(STEPS))
    at %= len(data)
    data[at] ^= flip
    data[at:at] = junk
    path = write(tmp_path_factory.getbasetemp() / "fuzz", bytes(data[: -at or None] if is_cut else data))

    try:
        rows = sum(len(batch) for batch, _ in read(path, Defaults(run="r", rank=0), FileConfig()))
    except UnreadableInput:
        rows = 0

    assert rows <= len(STEPS)


def test_event_files_written_at_the_same_time_are_runs_of_their_own(tmp_path: Path) -> None:
    for host in ("a", "b"):
        write_events(tmp_path, [("loss", step, 1.0) for step in range(50)], host=host)
    write_events(tmp_path, [("loss", step, 1.0) for step in range(40, 60)], at=1_764_470_100, host="a")
    source = FileSource(Job("r", (JobFile(str(tmp_path)),)))

    runs = {(record.run, record.attempt) for record in records_from_batch(read_all(source))}

    assert runs == {("r-1", 0), ("r-1", 1), ("r-2", 0)}
    assert any("judged as 2 runs of their own" in remark for remark in source.notes[0].remarks)


def test_files_of_other_series_at_the_same_time_are_one_run(tmp_path: Path) -> None:
    write_events(tmp_path, [("loss", step, 1.0) for step in range(50)], host="a")
    write_events(tmp_path, [("eval/loss", step, 1.0) for step in range(50)], host="b")

    batch = read_all(FileSource(Job("r", (JobFile(str(tmp_path)),))))

    assert (len(batch), set(batch.numbers), batch.runs) == (50, {"loss", "eval_loss"}, ("r",))
