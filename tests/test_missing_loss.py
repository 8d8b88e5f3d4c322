"""A NaN that a logger wrote as a missing field, null, an empty cell or 0.0."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from ingest.file_source import FileSource
from ingest.jobs import find_jobs
from ingest.joining import concatenate

from .file_builders import read_all, source_of

NAN_FROM = 20


def losses_of(path: Path) -> dict[int, float]:
    """The losses by iteration, of those that are reported or inferred."""
    batch = read_all(source_of(path))
    loss = batch.numbers.get("loss")
    if loss is None:
        return {}
    rows = zip(batch.iteration_N.tolist(), loss.values_N.tolist(), loss.present_N.tolist(), strict=True)
    return {iteration: value for iteration, value, is_present in rows if is_present}


def nans_of(path: Path) -> list[int]:
    return [iteration for iteration, value in losses_of(path).items() if math.isnan(value)]


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def json_lines(path: Path, records: list[dict[str, object]]) -> Path:
    return write(path, [json.dumps(record) for record in records])


def healthy(step: int) -> dict[str, object]:
    return {"step": step, "loss": 3 - step / 50, "grad_norm": 1.0, "lr": 1e-4}


def test_null_where_the_loss_stood_is_a_nan(tmp_path: Path) -> None:
    records = [healthy(step) | ({"loss": None} if step >= NAN_FROM else {}) for step in range(30)]

    assert nans_of(json_lines(tmp_path / "x.jsonl", records)) == list(range(NAN_FROM, 30))


def test_a_missing_field_where_the_loss_stood_is_a_nan(tmp_path: Path) -> None:
    records = [healthy(step) for step in range(30)]
    for record in records[NAN_FROM:]:
        del record["loss"]

    assert nans_of(json_lines(tmp_path / "x.jsonl", records)) == list(range(NAN_FROM, 30))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_an_empty_cell_where_the_loss_stood_is_a_nan(tmp_path: Path, separator: str) -> None:
    rows = [[str(step), "" if step == NAN_FROM else f"{3 - step / 50}", "1.0"] for step in range(30)]
    lines = [separator.join(row) for row in [["step", "loss", "lr"], *rows]]

    assert nans_of(write(tmp_path / "x.csv", lines)) == [NAN_FROM]


def test_an_empty_cell_in_a_table_of_the_loss_alone_is_a_nan(tmp_path: Path) -> None:
    lines = ["step,loss", *(f"{step},{'' if step >= NAN_FROM else 3}" for step in range(30))]

    assert nans_of(write(tmp_path / "x.csv", lines)) == list(range(NAN_FROM, 30))


def test_zero_beside_a_gradient_norm_of_nan_is_a_nan(tmp_path: Path) -> None:
    history = [
        healthy(step) | ({"loss": 0.0, "grad_norm": math.nan} if step >= 5 else {}) for step in range(9)
    ]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"global_step": 9, "log_history": history}, indent=1))

    source = source_of(path)
    batch = read_all(source)

    loss = batch.numbers["loss"]
    assert loss.inferred_N is not None
    assert batch.iteration_N[loss.inferred_N].tolist() == [5, 6, 7, 8]
    assert "from iteration 5" in source.notes[0].remarks[-1]


def test_a_gradient_norm_of_nan_beside_a_loss_infers_nothing(tmp_path: Path) -> None:
    records = [healthy(step) | {"grad_norm": "NaN" if step == 7 else 1.0} for step in range(30)]

    assert nans_of(json_lines(tmp_path / "x.jsonl", records)) == []


def test_a_loss_that_is_reported_now_and_then_is_not_missing(tmp_path: Path) -> None:
    records = [healthy(step) | ({} if step % 10 == 0 else {"loss": None}) for step in range(200)]

    assert nans_of(json_lines(tmp_path / "x.jsonl", records)) == []


def test_a_loss_that_comes_to_be_reported_less_often_is_not_missing(tmp_path: Path) -> None:
    records = [healthy(step) | ({} if step < 50 or step % 10 == 0 else {"loss": None}) for step in range(200)]

    assert nans_of(json_lines(tmp_path / "x.jsonl", records)) == []


def test_a_summary_and_a_validation_are_not_complete_records(tmp_path: Path) -> None:
    records = [healthy(step) for step in range(30)]
    records.insert(10, {"step": 10, "eval_loss": 2.5, "eval_runtime": 3.0})
    records.append({"step": 30, "loss": None, "lr": None, "grad_norm": None, "epoch": 3.0})
    records.append({"step": 30, "train_runtime": 100.0, "train_samples_per_second": 3.0})

    assert nans_of(json_lines(tmp_path / "x.jsonl", records)) == []


def test_lines_of_our_own_leave_a_loss_out_when_it_was_not_reported(tmp_path: Path) -> None:
    ours = {"run": "r", "rank": 0}
    records = [ours | healthy(step) | ({"loss": None} if step >= NAN_FROM else {}) for step in range(30)]

    assert nans_of(json_lines(tmp_path / "x.jsonl", records)) == []


def test_a_loss_that_never_was_there_is_not_missing(tmp_path: Path) -> None:
    lines = ["step,loss,lr", *(f"{step},,0.1" for step in range(30))]

    assert losses_of(write(tmp_path / "x.csv", lines)) == {}


def test_of_a_growing_log_only_what_was_filtered_out_is_inferred(tmp_path: Path) -> None:
    records = [healthy(step) for step in range(12)]
    records += [healthy(12) | {"loss": None}, healthy(13) | {"loss": 0.0, "grad_norm": "NaN"}]
    path = json_lines(tmp_path / "x.jsonl", records)
    (job,) = find_jobs([path])
    source = FileSource(job, follow=True)

    batch = concatenate(source.poll(0.0))
    source.close()

    inferred_N = batch.numbers["loss"].inferred_N
    assert inferred_N is not None
    assert batch.iteration_N[inferred_N].tolist() == [13]


def test_what_is_lost_with_the_loss_does_not_hide_that(tmp_path: Path) -> None:
    lost = {"loss": None, "grad_norm": None}
    records = [healthy(step) | (lost if step >= NAN_FROM else {}) for step in range(30)]
    bare = [{name: each[name] for name in ("step", "loss", "grad_norm")} for each in records]

    assert nans_of(json_lines(tmp_path / "x.jsonl", records)) == list(range(NAN_FROM, 30))
    assert nans_of(json_lines(tmp_path / "y.jsonl", bare)) == list(range(NAN_FROM, 30))


@pytest.mark.parametrize("rows", [30, 1500])
@pytest.mark.parametrize("names", [("step", "loss"), ("step", "loss", "grad_norm"), ("step", "loss", "lr")])
def test_a_message_without_a_loss_is_no_record(names: tuple[str, ...], rows: int, tmp_path: Path) -> None:
    records = [{name: healthy(step)[name] for name in names} for step in range(rows)]
    records += [{"step": rows, "msg": "saving"}, {"step": rows, "msg": "done"}, {"step": rows, "msg": "done"}]

    assert nans_of(json_lines(tmp_path / "x.jsonl", records)) == []


@pytest.mark.parametrize("beside", [{}, {"epoch": 1.2}])
def test_a_last_record_that_only_counts_is_no_nan_and_leaves_a_doubt(
    beside: dict[str, object], tmp_path: Path
) -> None:
    records: list[dict[str, object]] = [{"step": step, "loss": 3 - step / 50} | beside for step in range(12)]
    path = json_lines(tmp_path / "x.jsonl", [*records, {"step": 12} | beside])

    source = source_of(path)
    batch = read_all(source)

    assert not any(map(math.isnan, batch.numbers["loss"].values_N[batch.numbers["loss"].present_N]))
    assert "only count" in source.notes[0].doubt


def test_a_log_whose_loss_goes_on_after_a_record_that_only_counts_is_not_doubted(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [{"step": step, "loss": 3 - step / 50} for step in range(24)]
    del records[20]["loss"]

    source = source_of(json_lines(tmp_path / "x.jsonl", records))
    read_all(source)

    assert not source.notes[0].doubt


def test_three_records_that_only_count_are_nan(tmp_path: Path) -> None:
    records: list[dict[str, object]] = [{"step": step, "loss": 3 - step / 50} for step in range(12)]
    records += [{"step": step} for step in (12, 13, 14)]

    assert nans_of(json_lines(tmp_path / "x.jsonl", records)) == [12, 13, 14]


def test_a_validation_that_is_null_beside_a_loss_is_no_nan(tmp_path: Path) -> None:
    records = [healthy(step) | {"val_loss": 3.1 if step < NAN_FROM else None} for step in range(30)]

    assert nans_of(json_lines(tmp_path / "x.jsonl", records)) == []
