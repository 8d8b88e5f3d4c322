"""Tables and JSON as other tools write them: each trick of a format by a small input."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest

from firstfault.telemetry import UNNAMED_RANK
from firstfault.wire import Defaults
from ingest.columns import records_from_batch
from ingest.errors import UnreadableInput
from ingest.file_reader import FileConfig
from ingest.joining import concatenate
from ingest.json_lines import ForeignLinesDecoder
from ingest.log_reader import Understood
from ingest.sniff import Format, sniff

from .file_builders import read_all, source_of

Curve = list[tuple[int, float]]


class Read:
    """One file, read."""

    def __init__(self, path: Path, text: str, columns: dict[str, str] | None = None) -> None:
        path.write_bytes(text.encode())
        source = source_of(path, config=FileConfig(columns=columns or {}))
        self.batch = read_all(source)
        self.understood: Understood = source.notes[0].understood
        self.remarks = source.notes[0].remarks

    def curve(self, metric: str, run: str | None = None) -> Curve:
        """Iterations and values of a metric where it is reported."""
        column = self.batch.numbers[metric]
        rows = zip(
            self.batch.iteration_N.tolist(),
            column.values_N.tolist(),
            column.present_N.tolist(),
            self.batch.run_N.tolist(),
            strict=True,
        )
        return [(t, v) for t, v, is_there, at in rows if is_there and run in (None, self.batch.runs[at])]


def lines(*records: Mapping[str, object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def table(header: str, rows: Sequence[str], end: str = "\n") -> str:
    return end.join([header, *rows, ""])


def test_the_history_of_a_trainer_state_is_read_with_its_validation_and_without_its_summary(
    tmp_path: Path,
) -> None:
    history = [
        {"epoch": 0.5, "grad_norm": 1.0, "learning_rate": 1e-4, "loss": 2.5, "step": 10},
        {"epoch": 0.5, "eval_loss": 2.4, "eval_runtime": 3.0, "step": 10},
        {"epoch": 1.0, "grad_norm": math.nan, "learning_rate": 1e-4, "loss": 2.0, "step": 20},
        {"epoch": 1.0, "train_loss": 9.0, "train_runtime": 9.0, "step": 20},
    ]
    text = json.dumps({"global_step": 20, "log_history": history}, indent=2).replace("\n", "\r\n")

    read = Read(tmp_path / "trainer_state.json", text)

    assert read.understood.format == "HF trainer_state.json"
    assert read.curve("loss") == [(10, 2.5), (20, 2.0)]
    assert read.curve("eval_loss") == [(10, 2.4)]
    assert math.isnan(read.curve("grad_norm")[1][1])


def test_golden_values_read_text_before_the_first_number_as_steps_that_were_not_run(tmp_path: Path) -> None:
    values = {str(step): "nan" if step < 3 else 10.0 - step for step in range(1, 6)}
    times = {str(step): "nan" if step < 3 else 0.5 for step in range(1, 6)}
    text = json.dumps(
        {
            "lm loss": {"start_step": 1, "end_step": 5, "step_interval": 1, "values": values},
            "iteration-time": {"start_step": 1, "end_step": 5, "step_interval": 1, "values": times},
        }
    )

    read = Read(tmp_path / "golden.json", text)

    assert read.curve("loss") == [(3, 7.0), (4, 6.0), (5, 5.0)]


def test_golden_values_in_an_array_are_counted_by_their_interval(tmp_path: Path) -> None:
    text = json.dumps(
        {"lm loss": {"start_step": 0, "end_step": 9, "step_interval": 3, "values": [9.0, 8.0, 7.5]}}
    )

    assert Read(tmp_path / "golden.json", text).curve("loss") == [(0, 9.0), (3, 8.0), (6, 7.5)]


def test_a_history_of_arrays_is_read_row_by_row(tmp_path: Path) -> None:
    text = json.dumps({"loss": [3.0, 2.0, math.nan], "val_loss": [3.5, 2.5, 2.4], "params": {"epochs": 3}})

    read = Read(tmp_path / "history.json", text)

    assert [value for _, value in read.curve("eval_loss")] == [3.5, 2.5, 2.4]
    assert math.isnan(read.curve("loss")[2][1])


def test_results_of_boosting_are_read_by_their_sets(tmp_path: Path) -> None:
    text = json.dumps({"train": {"rmse": [3.0, 2.0]}, "eval": {"rmse": [3.5, 2.5]}})

    read = Read(tmp_path / "evals_result.json", text)

    assert read.curve("loss") == [(0, 3.0), (1, 2.0)]
    assert "eval_rmse" in read.batch.numbers


def test_points_of_a_chart_are_a_series_by_step(tmp_path: Path) -> None:
    text = json.dumps([[1700000000.1, 10, 2.5], [1700000001.1, 20, 2.25]])

    assert Read(tmp_path / "losses.json", text).curve("loss") == [(10, 2.5), (20, 2.25)]
    assert Read(tmp_path / "accuracy.json", text).curve("accuracy") == [(10, 2.5), (20, 2.25)]


@pytest.mark.parametrize(
    "document",
    [
        {"loss": {"train": {"name": "train", "x": [10, 20], "y": [2.5, "NaN"]}}},
        {"data": [{"name": "loss", "x": [10, 20], "y": [2.5, "NaN"], "type": "scatter"}], "layout": {}},
    ],
)
def test_curves_of_a_plot_are_series_by_their_places(document: object, tmp_path: Path) -> None:
    read = Read(tmp_path / "plot.json", json.dumps(document))

    assert read.curve("loss")[0] == (10, 2.5)
    assert math.isnan(read.curve("loss")[1][1])
    assert list(read.batch.numbers) == ["loss"], "places are no metric"


def test_places_that_are_no_steps_are_numbered(tmp_path: Path) -> None:
    plot = {"name": "loss", "x": ["2026-01-03 10:00", "2026-01-03 10:01"], "y": [2.5, 2.25]}

    assert Read(tmp_path / "plot.json", json.dumps([plot])).curve("loss") == [(0, 2.5), (1, 2.25)]


def test_the_last_part_of_a_long_path_says_what_it_is(tmp_path: Path) -> None:
    learner = {"learner": {"default_policy": {"learner_stats": {"total_loss": 2.5, "kl": 0.1}}}}
    text = lines(*({"training_iteration": t, "info": learner} for t in (1, 2)))

    assert Read(tmp_path / "result.json", text).curve("loss") == [(1, 2.5), (2, 2.5)]


def test_records_of_one_metric_each_become_records_of_all(tmp_path: Path) -> None:
    text = json.dumps(
        [
            {"key": "loss", "value": 2.5, "step": 1, "timestamp": 1700000000000},
            {"key": "lr", "value": 0.1, "step": 1, "timestamp": 1700000000000},
            {"key": "loss", "value": 2.25, "step": 2, "timestamp": 1700000000001},
        ]
    )

    read = Read(tmp_path / "metrics.json", text)

    assert (read.curve("loss"), read.curve("lr")) == ([(1, 2.5), (2, 2.25)], [(1, 0.1)])


def test_a_document_that_ends_in_the_middle_is_read_up_to_there(tmp_path: Path) -> None:
    whole = json.dumps({"log_history": [{"loss": 3.0 - t / 10, "step": t} for t in range(9)]})

    read = Read(tmp_path / "trainer_state.json", whole[: whole.index('"step": 7')])

    assert len(read.curve("loss")) >= 7
    assert "ends in the middle" in read.remarks[0]


def test_a_document_without_numbers_is_refused_by_what_is_in_it(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="'model', 'layers'"):
        Read(tmp_path / "config.json", '{"model": "x",\n "layers": ["a", "b"]}')


@pytest.mark.parametrize(
    "text",
    [
        "[rank0]: step 1 loss 2.5\n",
        "[2024-01-01 00:00:00] step 1 loss 2.5\n",
        '{\n "seed": 1,\n "layers": [1, 2]\n}\nstep 1 loss 2.5\n',
        "{'loss': 2.5}\n",
    ],
)
def test_a_log_that_begins_like_json_is_no_document(text: str) -> None:
    assert sniff(text.encode(), "x") is Format.TEXT


def test_validation_is_told_by_the_mode_of_a_line_and_belongs_to_the_training_before_it(
    tmp_path: Path,
) -> None:
    train = [
        {"mode": "train", "epoch": epoch, "iter": at, "loss": 3.0 - epoch, "time": 0.3}
        for epoch in (1, 2)
        for at in (10, 20)
    ]
    text = lines(
        {"env_info": "sys.platform: linux", "seed": 7},
        *train[:2],
        {"mode": "val", "epoch": 1, "iter": 256, "loss": 9.0, "mAP": 0.5},
        *train[2:],
        {"mode": "val", "epoch": 2, "iter": 256, "loss": 9.0, "mAP": 0.6},
    )

    read = Read(tmp_path / "None.log.json", text)

    assert read.curve("loss") == [(10, 2.0), (20, 2.0), (30, 1.0), (40, 1.0)]
    assert read.curve("eval_loss") == [(20, 9.0), (40, 9.0)]
    assert set(read.batch.attempt_N.tolist()) == {0}


def test_a_validation_that_counts_epochs_is_no_restart(tmp_path: Path) -> None:
    train = [{"loss": 3.0, "lr": 0.1, "epoch": t // 10 + 1, "step": t} for t in range(1, 101)]
    text = lines(
        *train, {"coco/AP": 0.5, "step": 10}, *({**one, "step": t + 100} for t, one in enumerate(train, 1))
    )

    read = Read(tmp_path / "scalars.json", text)

    assert set(read.batch.attempt_N.tolist()) == {0}
    assert read.curve("coco/AP") == [(100, 0.5)]


def test_epochs_of_runs_appended_to_one_file_go_on_within_each(tmp_path: Path) -> None:
    rows = [f"{epoch},{at},2.5" for length in (3, 2) for epoch in (1, 2, 3) for at in range(1, length + 1)]

    read = Read(tmp_path / "x.csv", table("epoch,iter,loss", rows))

    assert read.batch.iteration_N.tolist() == [*range(1, 10), *range(1, 7)]
    assert sorted(set(read.batch.attempt_N.tolist())) == [0, 1]


def test_short_runs_that_begin_again_and_again_are_attempts(tmp_path: Path) -> None:
    rows = [f"{epoch},{2.0 + run / 10}" for run in range(20) for epoch in range(6)]

    read = Read(tmp_path / "x.csv", table("epoch,loss", rows))

    assert max(read.batch.attempt_N.tolist()) == 19


def test_objects_within_objects_are_opened(tmp_path: Path) -> None:
    text = lines(*({"iteration": t, "train": {"loss": 2.5, "lr": 0.1}, "tags": ["a"]} for t in range(3)))

    assert Read(tmp_path / "x.jsonl", text).curve("loss") == [(0, 2.5), (1, 2.5), (2, 2.5)]


def test_a_counter_that_is_text_with_its_total_counts(tmp_path: Path) -> None:
    text = lines(*({"loss": 2.5, "global_step/max_steps": f"{t}/547", "percentage": "1%"} for t in (1, 2, 3)))

    read = Read(tmp_path / "logging.jsonl", text)

    assert (read.understood.counter, read.curve("loss")) == (
        "global_step/max_steps",
        [(1, 2.5), (2, 2.5), (3, 2.5)],
    )


def test_lines_without_a_number_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match="a number besides their counter, got 'prompt', 'answer'"):
        Read(tmp_path / "x.jsonl", lines({"prompt": "a", "answer": "b"}, {"prompt": "c", "answer": "d"}))


def test_rows_of_lightning_fill_only_what_was_logged(tmp_path: Path) -> None:
    rows = ["0,,49,2.5,", "0,,99,2.25,", "0,2.0,99,,2.4", "1,,149,2.0,", "1,1.5,149,,2.1"]

    read = Read(
        tmp_path / "metrics.csv", table("epoch,val_loss,step,train_loss_step,train_loss_epoch", rows, "\r\n")
    )

    assert read.curve("loss") == [(49, 2.5), (99, 2.25), (149, 2.0)]
    assert read.curve("eval_loss") == [(99, 2.0), (149, 1.5)]
    assert set(read.batch.attempt_N.tolist()) == {0}


def test_parts_of_a_loss_in_padded_columns_are_summed_and_nan_in_any_is_nan(tmp_path: Path) -> None:
    header = "      epoch,   train/box_loss,   train/cls_loss,     val/box_loss,    x/lr0"
    rows = [
        f"{epoch:>11},{0.5:>17},{'nan' if epoch == 2 else 0.25:>17},{0.1:>17},{0.01:>9}" for epoch in range(4)
    ]

    loss = Read(tmp_path / "results.csv", table(header, rows)).curve("loss")

    assert [value for _, value in loss[:2]] == [0.75, 0.75]
    assert math.isnan(loss[2][1])


def test_runs_side_by_side_in_a_chart_are_runs(tmp_path: Path) -> None:
    header = '"Step","a - train/loss","a - train/loss__MIN","a - train/loss__MAX","b 2 - train/loss"'

    read = Read(
        tmp_path / "export.csv", table(header, ['"0","2.5","2.4","2.6",""', '"1","2.0","2.0","2.0","3.5"'])
    )

    assert read.curve("loss", "a") == [(0, 2.5), (1, 2.0)]
    assert read.curve("loss", "b 2") == [(1, 3.5)]
    assert set(read.batch.numbers) == {"loss"}


def test_cells_of_arrays_over_several_lines_do_not_break_a_row(tmp_path: Path) -> None:
    text = 'loss,weights,step\n2.5,"[0.1 0.2\n 0.3 0.4]",0\n2.25,"[0.1 0.2\n 0.3 0.4]",10\n'

    assert Read(tmp_path / "progress.csv", text).curve("loss") == [(0, 2.5), (10, 2.25)]


def test_a_comment_of_json_before_the_header_is_passed_over(tmp_path: Path) -> None:
    text = table('#{"t_start": 1.5, "env_id": "x"}\nr,l,t', ["-50.0,50,15.6", "-47.0,50,19.8"])

    assert Read(tmp_path / "monitor.csv", text).curve("reward") == [(0, -50.0), (1, -47.0)]


@pytest.mark.parametrize(
    "text",
    [
        "1 2.5\n2 2.25\n3 2.0\n",
        "2.5,1\n2.25,2\n2.0,3\n",
        "# step loss\n1 2.5\n2 2.25\n3 2.0\n",
        "   step     loss\n      1     2.5\n      2    2.25\n      3     2.0\n",
        "| step | loss |\n|------|-----:|\n| 1 | 2.5 |\n| 2 | 2.25 |\n| 3 | 2.0 |\n",
        "step;loss;lr\n1;2,5;0,1\n2;2,25;0,1\n3;2,0;0,1\n",
        "step|loss\n1|2.5\n2|2.25\n3|2.0\n",
    ],
    ids=["bare", "value first", "comment", "blanks", "markdown", "decimal commas", "bars"],
)
def test_tables_are_cut_by_what_cuts_them(tmp_path: Path, text: str) -> None:
    assert Read(tmp_path / "x.txt", text).curve("loss") == [(1, 2.5), (2, 2.25), (3, 2.0)]


def test_numbers_alone_are_a_loss_by_row(tmp_path: Path) -> None:
    read = Read(tmp_path / "x.txt", "2.5\n2.25\nnan\n2.0\n")

    assert [t for t, _ in read.curve("loss")] == [0, 1, 2, 3]
    assert math.isnan(read.curve("loss")[2][1])


def test_a_row_that_was_cut_before_its_last_cell_has_no_empty_cell(tmp_path: Path) -> None:
    rows = "".join(f"{t},2.5\n" for t in range(20))

    assert len(Read(tmp_path / "x.csv", "step,loss\n" + rows + "20,").curve("loss")) == 20


def test_text_with_commas_stays_text() -> None:
    log = b"2024-01-01 10:00:00,123 - INFO - start, ok\n" + b"".join(
        b"2024-01-01 10:00:0%d,123 - INFO - Iter: %d, loss 2.5, ok\n" % (t, t) for t in range(9)
    )

    assert sniff(log, "x.log") is Format.TEXT


@pytest.mark.parametrize(
    "odd", [None, {"current_steps": 7, "loss": "NaN"}, {"current_steps": 7, "new": 1.5}, {"x": [1]}]
)
def test_many_lines_are_read_by_columns_as_they_are_one_by_one(odd: dict[str, object] | None) -> None:
    records: list[dict[str, object]] = [
        {"current_steps": t, "loss": 3.0 if t % 7 else None, "reward": None, "lr": 0.1, "elapsed": f"0:{t}"}
        for t in range(4000)
    ]
    if odd is not None:
        records[3000] = odd
    data = lines(*records).encode()
    config, defaults = FileConfig(), Defaults(run="r", rank=UNNAMED_RANK)

    fast = ForeignLinesDecoder(records[:10], defaults, "x", config)
    slow = ForeignLinesDecoder(records[:10], defaults, "x", config)
    half = data.index(b"\n", len(data) // 2) + 1
    whole = concatenate([fast.decode(data[:half]), fast.decode(data[half:])])
    rows = data.splitlines(keepends=True)
    single = concatenate([slow.decode(b"".join(rows[at : at + 200])) for at in range(0, len(rows), 200)])

    assert str(records_from_batch(whole)) == str(records_from_batch(single))
    assert [each.offset for each in whole.rejected] == [each.offset for each in single.rejected]


def test_the_value_of_a_chart_is_the_loss_if_its_file_is_called_so_or_it_falls(
    tmp_path: Path,
) -> None:
    text = "Wall time,Step,Value\n1700000000.5,10,2.5\n1700000001.5,20,2.25\n"

    assert Read(tmp_path / "run-tag-loss_train.csv", text).curve("loss") == [(10, 2.5), (20, 2.25)]
    falling = table("Wall time,Step,Value", [f"{1700000000 + t},{t},{3 - t / 10}" for t in range(20)])
    rising = table("Wall time,Step,Value", [f"{1700000000 + t},{t},{t / 20}" for t in range(20)])
    assert "loss" in Read(tmp_path / "chart.csv", falling).batch.numbers
    assert "loss" not in Read(tmp_path / "chart2.csv", rising).batch.numbers
    assert "loss" not in Read(tmp_path / "val_accuracy.csv", falling).batch.numbers


def test_curves_in_a_list_are_read_by_their_labels(tmp_path: Path) -> None:
    text = json.dumps({"results": [{"Label": "train:loss", "Values": [2.5, 2.25], "Timestamps": ["a", "b"]}]})

    assert Read(tmp_path / "x.json", text).curve("loss") == [(0, 2.5), (1, 2.25)]


def test_validation_alone_is_judged_and_the_remarks_say_so(tmp_path: Path) -> None:
    read = Read(tmp_path / "x.csv", "step,val_loss\n1,2.5\n2,2.25\n")

    assert read.curve("loss") == [(1, 2.5), (2, 2.25)]
    assert "'val_loss' is read as loss" in read.remarks[0]


def test_counters_and_ranks_inside_objects_are_known(tmp_path: Path) -> None:
    text = lines(*({"level": "INFO", "data": {"step": t, "loss": 2.5, "rank": 3}} for t in (1, 2)))

    read = Read(tmp_path / "x.jsonl", text)

    assert (read.curve("loss"), read.batch.rank_N.tolist()) == ([(1, 2.5), (2, 2.5)], [3, 3])


def test_a_type_tells_training_from_validation_though_other_lines_have_one_too(tmp_path: Path) -> None:
    train = [{"type": "train", "step": t, "loss": 2.5} for t in range(20)]
    text = lines(*train, {"type": "eval", "step": 19, "loss": 9.0}, {"type": "done", "best": 2.0})

    read = Read(tmp_path / "x.jsonl", text)

    assert (len(read.curve("loss")), read.curve("eval_loss")) == (20, [(19, 9.0)])


def test_columns_and_rows_apart_are_a_table(tmp_path: Path) -> None:
    text = json.dumps({"columns": ["step", "loss"], "index": [0, 1], "data": [[10, 2.5], [20, 2.25]]})

    assert Read(tmp_path / "x.json", text).curve("loss") == [(10, 2.5), (20, 2.25)]


def test_separators_of_thousands_are_read_in_counters_and_values(tmp_path: Path) -> None:
    read = Read(
        tmp_path / "x.csv", table("step,loss", ['"1,000","1,234.5"', '"2,000","1,200.5"', '"3,000",3.5'])
    )

    assert read.curve("loss") == [(1000, 1234.5), (2000, 1200.5), (3000, 3.5)]


def test_columns_of_parquet_from_another_tool_get_their_canonical_names(tmp_path: Path) -> None:
    columns = {"step": [1, 2], "train_loss": [2.5, 2.25], "Learning Rate": [0.1, 0.1]}
    pl.DataFrame(columns).write_parquet(tmp_path / "x.parquet")

    batch = read_all(source_of(tmp_path / "x.parquet"))

    assert sorted(batch.numbers) == ["loss", "lr"]


def test_a_person_may_say_what_a_key_of_a_text_log_is(tmp_path: Path) -> None:
    text = "".join(f"step: {t} loss: 2.5 target: {3 - t / 10}\n" for t in range(5))

    assert Read(tmp_path / "x.log", text, {"loss": "target"}).curve("loss")[1] == (1, 2.9)
    with pytest.raises(UnreadableInput, match="no such column; there is"):
        Read(tmp_path / "y.log", text, {"loss": "objective"})
