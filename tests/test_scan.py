"""Text logs in formats that nobody declared become records."""

from __future__ import annotations

import math

import numpy as np
import pytest

from firstfault.wire import Defaults
from ingest.blocks import RecordBatch
from ingest.errors import UnreadableInput
from ingest.joining import concatenate
from ingest.scan.scanner import TextScanner

Row = tuple[int, dict[str, float]]


def scan(text: str | bytes, *names: str) -> list[Row]:
    """The records of a text: the iteration, and those of ``names`` that were reported."""
    batch = scan_batch(text)
    return [
        (
            int(batch.iteration_N[at]),
            {name: float(batch.numbers[name].values_N[at]) for name in names if _has(batch, name, at)},
        )
        for at in range(len(batch))
    ]


def scan_batch(text: str | bytes) -> RecordBatch:
    scanner = TextScanner(Defaults(run="run", rank=None), "log")
    data = text.encode() if isinstance(text, str) else text
    batches = [scanner.decode(data), scanner.finish()]
    return concatenate([batch for batch in batches if batch is not None])


def _has(batch: RecordBatch, name: str, at: int) -> bool:
    return name in batch.numbers and bool(batch.numbers[name].present_N[at])


@pytest.mark.parametrize(
    "line",
    [
        "step 12 loss 2.5",
        "step: 12, loss: 2.5",
        "step=12 loss=2.5",
        "step:12/300 train_loss:2.5 train_time:400ms",
        "Iteration 12, loss = 2.5",
        " iteration       12/    300 | elapsed time per iteration (ms): 5.0 | lm loss: 2.500000E+00 |",
        "iter 12: loss 2.5000, time 33.10ms, mfu 12.00%",
        "[Iteration 12] Trained 2048 records in 1.4 seconds. Loss is 2.5. Current rate is 0.1.",
        "{'global_step': 12, 'loss': 2.5}",
        "  4%|▍         | 12/300 [00:01<00:30,  8.90it/s, loss=2.5, v_num=0]",
        " 12/300 [=>............] - ETA: 3:52 - loss: 2.5000 - mse: 0.1",
        "12 | loss 2.5 | lr 0.1",
        "step: 12  loss:  2.50000  memory:  11.25GiB(70.31%)  tps: 6,125",
        "Epoch: [0][ 12/5004]  Time 0.3 ( 0.4)  Loss 2.5e+00 (6.95e+00)",
        "Train Epoch: 0 [12/60000 (1%)]\tLoss: 2.500000",
        "Epoch 0, batch 12, train_loss[loss=2.5, over 9.00 frames. ], tot_loss[loss=3.5, over 8.0 frames. ]",
    ],
)
def test_a_record_is_found_in_the_ways_that_loops_print_it(line: str) -> None:
    assert scan(line + "\n", "loss") == [(12, {"loss": 2.5})]


@pytest.mark.parametrize(
    "word", ["nan", "NaN", "-nan", "1.#QNAN", "nanxxx", "tensor(nan, device='cuda:0')", "nan(298, 446, 3)"]
)
def test_a_word_for_nan_in_the_place_of_the_loss_is_a_nan(word: str) -> None:
    ((iteration, values),) = scan(f"step: 3, loss: {word}\n", "loss")

    assert iteration == 3
    assert math.isnan(values["loss"])


@pytest.mark.parametrize(
    "line",
    [
        "step 1/9 | loss 2.5 (+nanz)| norm 1.5 (+nanz)| lr 8e-07",
        "step:1/9 loss:2.5 norm:1.5 step_avg:nanms",
        " iteration 1/ 9 | lm loss: 2.5 | grad norm: 1.5 | number of nan iterations:   0 |",
        "step: 1, loss: 2.5, norm: 1.5, model: nanogpt, optimizer-check-inf: 3.1",
    ],
)
def test_the_letters_nan_elsewhere_are_no_loss(line: str) -> None:
    assert scan(line + "\n", "loss", "grad_norm") == [(1, {"loss": 2.5, "grad_norm": 1.5})]


def test_steps_that_begin_anew_in_every_epoch_count_on() -> None:
    lines = [f"Epoch: {epoch}/3, step: {step}/4, loss: 1.5" for epoch in range(3) for step in range(4)]

    assert [iteration for iteration, _ in scan("\n".join(lines) + "\n")] == list(range(12))


def test_values_of_a_validation_are_not_those_of_training() -> None:
    rows = scan("step 5: train loss 2.5, val loss 3.5\nEpoch(val) [1][3/9] loss: 4.5\n", "loss", "eval_loss")

    assert rows == [(5, {"loss": 2.5, "eval_loss": 3.5}), (5, {"eval_loss": 4.5})]


def test_the_loss_of_the_steps_is_not_mixed_with_the_mean_in_a_summary() -> None:
    text = "step 1 loss 9.5\nstep 2 loss 2.5\nepoch 1 train loss 6.0\n"

    assert scan(text, "loss")[-1] == (2, {})


def test_indented_values_below_a_counter_are_part_of_its_record() -> None:
    text = "INFO [step=7/99,epoch=0]\n    train/CrossEntropyLoss=11.75\n    train/Perplexity=126,754\n"

    assert scan(text, "loss", "train/Perplexity") == [
        (7, {"loss": 11.75}),
        (7, {"train/Perplexity": 126754.0}),
    ]


def test_a_configuration_is_no_record() -> None:
    with pytest.raises(UnreadableInput, match="records of a training loop"):
        scan("train:\n  learning_rate: 0.1\n  warmup_steps: 100\n  batch_size: 8\n")


def test_a_log_of_nothing_that_counts_numbers_its_records() -> None:
    rows = scan("{'loss': 2.5, 'epoch': 0.1}\n{'loss': 2.25, 'epoch': 0.2}\n", "loss")

    assert rows == [(0, {"loss": 2.5}), (1, {"loss": 2.25})]


def test_each_reporting_rank_has_its_own_records() -> None:
    batch = scan_batch("rank: 0, step: 1, loss: 2.5\nrank: 1, step: 1, loss: 3.5\n")

    assert batch.rank_N.tolist() == [0, 1]
    assert np.array_equal(batch.numbers["loss"].values_N, [2.5, 3.5])
