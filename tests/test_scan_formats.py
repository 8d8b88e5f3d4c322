"""Logs as trainers of many kinds print them, each read with its own counter and names."""

from __future__ import annotations

import math

import pytest

from firstfault.wire import Defaults
from ingest.blocks import RecordBatch
from ingest.roles import meaning_of
from ingest.scan.scanner import TextScanner


def read(text: str) -> RecordBatch:
    return TextScanner(Defaults(run="r", rank=None), "log").decode(text.encode())


def test_a_dictionary_with_a_share_that_was_clipped_is_a_record() -> None:
    lines = [
        f"{{'loss': {2.5 - at / 10}, 'grad_norm': 0.8, 'completions/clipped_ratio': 0.1, 'epoch': 0.0{at}}}\n"
        for at in range(1, 6)
    ]

    batch = read("".join(lines))

    assert batch.numbers["loss"].values_N.tolist() == [2.4, 2.3, 2.2, 2.1, 2.0]


def test_a_bar_that_goes_on_over_the_border_of_an_epoch_counts_through() -> None:
    bars = [
        (f"\nepoch {at // 10 + 1}/3\n" if at % 10 == 0 else "")
        + f"\rsteps: {at * 3}%|##  | {at + 1}/30 [00:01<05:11,  1.21it/s, avr_loss=0.{at + 10}]"
        for at in range(30)
    ]

    batch = read("".join(bars) + "\n")

    assert batch.iteration_N.tolist() == list(range(1, 31))


def test_a_bar_that_begins_anew_in_each_epoch_goes_on_counting() -> None:
    bars = [
        (f"\nepoch {at // 10 + 1}/3\n" if at % 10 == 0 else "")
        + f"\rsteps: {at * 3}%|##  | {at % 10 + 1}/10 [00:01<05:11,  1.21it/s, avr_loss=0.{at + 10}]"
        for at in range(30)
    ]

    batch = read("".join(bars) + "\n")

    assert batch.iteration_N.tolist() == list(range(1, 31))


def test_steps_from_1_on_in_each_epoch_leave_no_gap_between_two_epochs() -> None:
    lines = [f"epoch: {at // 20 + 1} step: {at % 20 + 1}, loss is {3 - at / 30:.4f}\n" for at in range(60)]

    assert read("".join(lines)).iteration_N.tolist() == list(range(1, 61))


def test_steps_told_each_tenth_leave_no_gap_between_two_epochs() -> None:
    lines = [
        f"epoch: {at // 5 + 1} step: {at % 5 * 10 + 10}, loss is {3 - at / 30:.4f}\n" for at in range(15)
    ]

    assert read("".join(lines)).iteration_N.tolist() == list(range(10, 160, 10))


def test_an_objective_of_kaldi_is_a_loss_turned_round() -> None:
    form = "LOG (nnet3-train:nnet.cc:382) Average objective function for '{}' for minibatches {}-{} is {}"
    lines = [
        form.format("output", 0, 99, "-2.5 over 51200 frames."),
        form.format("output-xent", 0, 99, "-7.5 over 51200 frames."),
        form.format("output", 100, 199, "nan over 51200 frames."),
    ]

    batch = read("\n".join(lines) + "\n")

    assert batch.iteration_N.tolist() == [0, 100]
    first, second = batch.numbers["loss"].values_N.tolist()
    assert first == 2.5
    assert math.isnan(second)


def test_the_gradient_norm_of_the_policy_is_that_of_the_run() -> None:
    named = {name: meaning_of(name).metric for name in ("actor/grad_norm", "grad_norm", "critic/grad_norm")}

    assert named["actor/grad_norm"] == named["grad_norm"] == "grad_norm"
    assert named["critic/grad_norm"] == "critic/grad_norm"
    assert meaning_of("actor/grad_norm").order > meaning_of("grad_norm").order


def test_epoch_and_batch_that_are_glued_are_counted() -> None:
    lines = [
        f"DEBUG TRAIN | steps/sec 3.2| Batch 0_{at * 100} loss {4 - at}.5 lr 0.1 rank 0\n" for at in range(3)
    ]

    batch = read("".join(lines))

    assert batch.iteration_N.tolist() == [0, 100, 200]
    assert batch.numbers["loss"].values_N.tolist() == [4.5, 3.5, 2.5]


@pytest.mark.parametrize(
    ("line", "counter"),
    [
        ("[n1:0/4] 2026-01-02 10:00:11,123 (trainer:7) INFO: 2epoch:train:{0}-{1}batch: loss=2.5", "batch"),
        ("[2026-01-02 10:00:11,123] [INFO] No gradient overflow for {1} iterations, loss 2.5", "iterations"),
        ("completed step {1}, loss 2.5", "completed step"),
    ],
)
def test_a_counter_has_the_name_that_says_that_it_counts(line: str, counter: str) -> None:
    scanner = TextScanner(Defaults(run="run", rank=None), "log")
    text = "".join(line.format(at * 50 + 1, at * 50 + 50) + "\n" for at in range(3))

    scanner.decode(text.encode())

    understood = scanner.understood()
    assert understood.counter == counter
    assert all(name for name, _ in understood.columns)


def test_pictures_in_front_of_names_are_no_part_of_them() -> None:
    batch = read("".join(f"🚀 step {at * 10:,} | 📉 loss={3 - at}.5 | ⚡ 12.1k tok/s\n" for at in (0, 1, 2)))

    assert batch.iteration_N.tolist() == [0, 10, 20]
    assert batch.numbers["loss"].values_N.tolist() == [3.5, 2.5, 1.5]


def test_the_totals_in_front_of_a_run_count_nothing() -> None:
    banner = "   \\\\   /|    Num examples = 51,760 | Num Epochs = 1 | Total steps = 80\n"
    records = "".join(f"{{'loss': {3 - at}.5, 'learning_rate': 0.1, 'epoch': 0.1}}\n" for at in (0, 1, 2))

    batch = read(banner + records)

    assert batch.numbers["loss"].values_N.tolist() == [3.5, 2.5, 1.5]
    assert batch.iteration_N.tolist() == [0, 1, 2]


@pytest.mark.parametrize("word", [".nan", "-.inf", ".NaN"])
def test_the_words_of_yaml_are_numbers(word: str) -> None:
    batch = read("".join(f"- step: {at}\n  loss: {value}\n" for at, value in ((1, "2.5"), (2, word))))

    assert batch.iteration_N.tolist() == [1, 2]
    assert not math.isfinite(batch.numbers["loss"].values_N[1])


def test_a_date_of_the_internet_is_a_time() -> None:
    batch = read(
        "".join(f"Sat 03 Jan 2026 10:00:0{at} INFO  epoch {at} loss: {3 - at}.5\n" for at in (0, 1, 2))
    )

    assert sorted(batch.numbers) == ["epoch", "loss"]
