"""Forms of text logs that few tools print: each read for what it says, and for nothing that it does not."""

from __future__ import annotations

import numpy as np
import pytest

from firstfault.wire import Defaults
from ingest.blocks import RecordBatch
from ingest.errors import UnreadableInput
from ingest.joining import concatenate
from ingest.scan.scanner import TextScanner


def scanned(text: str) -> RecordBatch:
    scanner = TextScanner(Defaults(), "a.log")
    batches = [scanner.decode(text.encode()), scanner.finish()]
    return concatenate([each for each in batches if each is not None and len(each)])


def values(batch: RecordBatch, name: str) -> dict[int, float]:
    """The values of a metric by iteration."""
    column = batch.numbers[name]
    at_N = column.present_N
    return dict(zip(batch.iteration_N[at_N].tolist(), column.values_N[at_N].tolist(), strict=True))


def test_wide_signs_separate_as_their_narrow_forms_do() -> None:
    batch = scanned("训练次数：100，Loss：1.5\n训练次数：200，Loss：1.25\n测试集上的Loss：262.5\n")

    assert values(batch, "loss") == {100: 1.5, 200: 1.25}
    assert list(values(batch, "eval_loss").values()) == [262.5]


def test_a_cross_validation_is_no_training() -> None:
    batch = scanned("DEBUG TRAIN step 5 loss 2.5 rank 0\nDEBUG CV step 5 loss 7.5 rank 0\n")

    assert values(batch, "loss") == {5: 2.5}
    assert values(batch, "eval_loss") == {5: 7.5}


def test_a_place_in_a_program_is_no_value() -> None:
    batch = scanned(
        "VLOG (f():ctc-loss.cc:182) step 3: loss = 2.5\nVLOG (f():ctc-loss.cc:182) step 4: loss = 2\n"
    )

    assert values(batch, "loss") == {3: 2.5, 4: 2.0}
    assert set(batch.numbers) == {"loss"}


def test_a_row_with_a_bar_behind_it_is_a_row_of_the_table() -> None:
    head = " Epoch   gpu_mem       box       obj    labels  img_size\n"
    bar = "100%|██████████| 7/7 [00:15<00:00,  2.27s/it]\n"
    names = "   Class    Images    Labels         P         R    mAP@.5"
    batch = scanned(
        f"{head}  0/99     2.64G    0.0500    0.0200         4       416: {bar}"
        f"{names}: {bar}     all     14      0     0    0   0\n"
        f"{head}  1/99     2.64G       nan       nan         4       416: {bar}"
    )

    assert values(batch, "box")[0] == 0.05
    assert np.isnan(values(batch, "box")[1])


def test_names_between_bars_are_columns() -> None:
    batch = scanned(
        " Epoch  |  Train loss  |  Valid acc  |  Dur\n--------|--------|-----|-----\n"
        "     1  |         nan  |     45.05%  |  0.7s\n     2  |      1.2500  |     46.05%  |  0.7s\n"
    )

    assert np.isnan(values(batch, "loss")[1])
    assert values(batch, "loss")[2] == 1.25


@pytest.mark.parametrize("separator", [": ", ":\t", " ", "\t", ", "])
def test_pairs_of_bare_numbers_are_step_and_loss(separator: str) -> None:
    batch = scanned("".join(f"{step}{separator}{loss}\n" for step, loss in ((4, 2.5), (5, "nan"), (6, 2.0))))

    found = values(batch, "loss")
    assert (found[4], found[6]) == (2.5, 2.0)
    assert np.isnan(found[5])


def test_bare_numbers_behind_a_loss_with_a_name_are_something_else() -> None:
    batch = scanned(
        "Epoch: 1 train_loss= 2.5 val_loss= 2.6\n1 8.5\n2 7.5\nEpoch: 2 train_loss= nan val_loss= 2.6\n"
    )

    assert values(batch, "loss")[1] == 2.5
    assert np.isnan(values(batch, "loss")[2])


@pytest.mark.parametrize("line", ["  (0, 84)\t7.75\n", "1m 7s (- 10m 3s) (625 1%) 2.5\n", "10:30 4\n"])
def test_numbers_with_other_signs_are_no_columns(line: str) -> None:
    with pytest.raises(UnreadableInput):
        scanned(line * 3)


def test_the_score_of_deeplearning4j_is_the_loss() -> None:
    batch = scanned(
        "INFO ScoreIterationListener - Score at iteration 20 is 2.5\nScore at iteration 40 is NaN\n"
    )

    assert values(batch, "loss")[20] == 2.5
    assert np.isnan(values(batch, "loss")[40])


def test_names_and_values_in_two_columns_belong_to_the_counter_of_their_block() -> None:
    rule = "--------------------  --------\n"
    batch = scanned(
        "".join(
            f"{rule}Diagnostics/Iteration  {at}\nlossAverage            {loss}\nother          0.5\n{rule}"
            for at, loss in ((3, "nan"), (4, "2.5"))
        )
    )

    assert np.isnan(values(batch, "loss")[3])
    assert values(batch, "loss")[4] == 2.5


def test_the_month_and_day_of_tensorpack_are_no_counter() -> None:
    batch = scanned(
        "[0514 09:42:38 @base.py:283] Epoch 30 (global_step 1500) finished, time:2 minutes 8 seconds.\n"
        "[0514 09:42:39 @monitor.py:476] total_cost: 1.25\n"
    )

    assert values(batch, "loss") == {1500: 1.25}


def test_names_of_columns_may_stand_one_blank_apart() -> None:
    batch = scanned(
        "# Epoch batch         loss       loss_f        f_mae\n"
        "      0    10         12.5         12.5        0.812\n"
        "      0    20         10.5         10.5        0.782\n"
    )

    assert list(values(batch, "loss").values()) == [12.5, 10.5]


def test_bare_numbers_between_skipped_steps_are_losses() -> None:
    skip = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to"
    batch = scanned(f"{skip} 4.0\n7: nan\n{skip} 2.0\n8: nan\n9: 2.5\n")

    assert np.isnan(values(batch, "loss")[7])
    assert values(batch, "loss")[9] == 2.5
