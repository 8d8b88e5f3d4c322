"""What the records of a dialect mean: losses left out or hidden, values never filled in, counts so far."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.telemetry import UNNAMED_RANK, EventKind, Record
from firstfault.wire import Defaults
from ingest.blocks import RecordBatch
from ingest.columns import batch_from_records, select_rows
from ingest.scan.dialect_rules import DialectRules
from ingest.scan.dialects import DIALECTS, SATURATED_SOFTMAX, Dialect, dialect_of
from ingest.scan.noise import NOISE, Noise, is_noise
from ingest.scan.scanner import TextScanner

Row = Mapping[str, float]


def batch_of(rows: list[Row], first: int = 1, step: int = 1) -> RecordBatch:
    return batch_from_records(
        Record(run="r", rank=UNNAMED_RANK, iteration=first + step * at, metrics=dict(row))
        for at, row in enumerate(rows)
    )


def read(dialect: str, rows: list[Row], step: int = 1) -> RecordBatch:
    batch = batch_of(rows, step, step)
    rules = next(one for one in DIALECTS if one.name == dialect).rules
    return DialectRules(rules).apply(batch, np.ones(len(batch), np.bool_))


def losses(batch: RecordBatch) -> list[float | None]:
    return cells(batch, "loss")


def cells(batch: RecordBatch, metric: str) -> list[float | None]:
    column = batch.numbers.get(metric)
    if column is None:
        return [None] * len(batch)
    return [
        float(value) if present else None
        for value, present in zip(column.values_N, column.present_N, strict=True)
    ]


def inferred(batch: RecordBatch) -> list[int]:
    column = batch.numbers.get("loss")
    return [] if column is None or column.inferred_N is None else np.flatnonzero(column.inferred_N).tolist()


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda one: one.name)
def test_the_example_of_a_dialect_is_recognised_as_it(dialect: Dialect) -> None:
    assert dialect_of(dialect.example.encode()) is dialect


@pytest.mark.parametrize("noise", NOISE, ids=lambda one: one.name)
def test_the_example_of_noise_is_noise(noise: Noise) -> None:
    assert is_noise(noise.example.encode())


def test_a_record_is_no_noise() -> None:
    line = b" iteration 20/ 100 | elapsed time per iteration (ms): 105.2 | lm loss: 2.3E+00 |"
    assert not is_noise(line)


@pytest.mark.parametrize(
    "line",
    [
        "step {}/90 | loss 10.5 (+nanz)| norm 12.5125 (+nanz)| lr 7.50e-07",
        "step:{}/90 train_loss:10.5 train_time:1200ms step_avg:nanms",
        "iteration {}/ 90 | consumed samples: 16 | lm loss: 1.05E+01 | number of nan iterations: 0 |",
    ],
)
def test_words_nan_that_are_no_values_leave_a_record_healthy(line: str) -> None:
    scanner = TextScanner(Defaults(run="run", rank=None), "log")
    batch = scanner.decode("".join(line.format(at) + "\n" for at in range(1, 9)).encode())
    scanner.finish()
    assert losses(batch) == [10.5] * 8
    assert all(np.isfinite(column.values_N[column.present_N]).all() for column in batch.numbers.values())


def test_a_loss_left_out_beside_a_gradient_that_stands_still_is_nan() -> None:
    rows: list[Row] = [{"loss": 3.1, "grad_norm": 1.5}, {"loss": 7.2, "grad_norm": 4.0}, {"grad_norm": 4.0}]
    batch = read("Megatron", rows)
    assert inferred(batch) == [2]
    assert np.isnan(losses(batch)[2] or 0.0)


def test_a_loss_left_out_beside_a_gradient_that_is_nan_is_nan_from_the_first_record_on() -> None:
    assert inferred(read("Megatron", [{"grad_norm": np.nan}, {"grad_norm": np.nan}])) == [0, 1]


def test_a_loss_left_out_while_all_iterations_were_skipped_was_none() -> None:
    rows: list[Row] = [{"loss": 3.0, "skipped": 0}, {"skipped": 10}, {"skipped": 9}]
    assert inferred(read("Megatron", rows, step=10)) == [2]
    assert inferred(read("Megatron", [{"skipped": 10}, {"loss": 3.0, "skipped": 8}], step=10)) == []


def test_a_loss_left_out_while_gradients_go_on_was_negative() -> None:
    rows: list[Row] = [{"loss": 1.1, "grad_norm": 1.5}, {"grad_norm": 1.4}, {"grad_norm": 1.6}]
    assert inferred(read("Megatron", rows)) == []


def test_a_loss_left_out_near_zero_may_have_been_negative() -> None:
    assert inferred(read("Megatron", [{"loss": 0.02}, {}, {"loss": 0.01}, {}])) == []


def test_a_gradient_norm_of_zero_is_a_value_only_where_another_came() -> None:
    rows: list[Row] = [{"loss": 3.0, "grad_norm": 0.0}, {"loss": 3.0, "grad_norm": 0.0}]
    assert cells(read("Megatron", rows), "grad_norm") == [None, None]
    later = read("Megatron", [*rows, {"loss": 3.0, "grad_norm": 2.0}, {"loss": 3.0, "grad_norm": 0.0}])
    assert cells(later, "grad_norm") == [None, None, 2.0, 0.0]


def test_a_loss_scale_of_minus_one_is_not_filled_in() -> None:
    rows: list[Row] = [{"loss": 3.0, "loss_scale": -1.0}, {"loss": 3.0, "loss_scale": 8.0}]
    assert cells(read("Megatron", rows), "loss_scale") == [None, 8.0]


def test_a_loss_of_zero_beside_a_gradient_norm_of_nan_hides_a_nan() -> None:
    rows: list[Row] = [
        {"loss": 0.0, "grad_norm": np.nan},
        {"loss": 0.2, "grad_norm": np.nan},
        {"loss": 0.0, "grad_norm": 0.0},
    ]
    batch = read("HF Trainer", rows)
    assert inferred(batch) == [0]
    assert losses(batch)[1:] == [0.2, 0.0]


def test_a_loss_that_stays_saturated_is_infinite_from_the_second_record_on() -> None:
    rows: list[Row] = [{"loss": value} for value in (2.0, SATURATED_SOFTMAX, 3.0, 87.3365, 87.3365, 87.3365)]
    batch = read("Caffe", rows)
    assert losses(batch)[4:] == [np.inf, np.inf]
    assert inferred(batch) == [4, 5]


def test_a_stage_without_the_loss_prints_minus_one_and_has_none() -> None:
    assert losses(read("TorchTitan", [{"loss": -1.0}, {"loss": -0.5}])) == [None, -0.5]


def test_the_mean_of_a_window_with_a_skipped_step_is_support_alone() -> None:
    rows: list[Row] = [
        {"loss": 4.0, "grad_norm": np.nan},
        {"loss": 4.0, "grad_norm": 9.0},
        {"loss": np.nan, "grad_norm": np.nan},
    ]
    batch = read("MMCV", rows)
    norms = cells(batch, "grad_norm")
    assert norms[:2] == [None, 9.0]
    assert norms[2] is not None
    assert cells(batch, "grad_norm_mean")[0] is not None


def test_a_count_of_all_skipped_steps_becomes_those_since_the_record_before() -> None:
    rows: list[Row] = [{"skipped": count} for count in (4, 4, 5, 1)]
    assert cells(read("DeepSpeed", rows, step=10), "skipped") == [4, 0, 1, 1]


def test_a_batch_size_that_changes_is_an_event() -> None:
    rows: list[Row] = [{"loss": 2.0, "global batch size": size} for size in (16, 16, 32, 32, 48)]
    events = [event for _, event in read("Megatron", rows).events]
    assert [(event.kind, event.iteration, event.fields["batch_size"]) for event in events] == [
        (EventKind.BATCH_SIZE, 3, 32.0),
        (EventKind.BATCH_SIZE, 5, 48.0),
    ]


_CELL = st.sampled_from([0.0, 1.0, 2.0, -1.0, 87.3365, np.nan, np.inf])
_ROW = st.dictionaries(
    st.sampled_from(["loss", "grad_norm", "loss_scale", "skipped", "global batch size"]), _CELL
)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(_ROW, min_size=1, max_size=25),
    cut=st.integers(0, 25),
    dialect=st.sampled_from([one for one in DIALECTS if one.rules]),
)
def test_it_does_not_matter_how_the_records_are_cut(rows: list[Row], cut: int, dialect: Dialect) -> None:
    whole = batch_of(rows)
    before_N = np.arange(len(whole)) < cut
    at_once = DialectRules(dialect.rules).apply(whole, np.ones(len(whole), np.bool_))
    rules = DialectRules(dialect.rules)
    parts = [
        rules.apply(part, np.ones(len(part), np.bool_))
        for part in (select_rows(whole, before_N), select_rows(whole, ~before_N))
    ]
    for metric in at_once.numbers:
        assert repr([*cells(parts[0], metric), *cells(parts[1], metric)]) == repr(cells(at_once, metric))
    assert [event for part in parts for _, event in part.events] == [event for _, event in at_once.events]
