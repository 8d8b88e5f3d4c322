"""NaN behind a blank: read by the plan of the lines that have a number there."""

from __future__ import annotations

import numpy as np
import pytest

from firstfault.wire import Defaults
from ingest.joining import concatenate
from ingest.scan.scanner import TextScanner


def loss_by_iteration(text: str) -> dict[int, float]:
    scanner = TextScanner(Defaults(), "a.log")
    rest = scanner.decode(text.encode())
    last = scanner.finish()
    batch = concatenate([each for each in (rest, last) if each is not None and len(each)])
    column = batch.numbers["loss"]
    return dict(zip(batch.iteration_N.tolist(), column.values_N.tolist(), strict=True))


@pytest.mark.parametrize(
    "form",
    [
        "step {i} loss {v} lr 0.0001",
        "2023-05-05T10:00:0{i}Z stdout F step {i} loss {v} lr 0.0001",
        "iter {i}: Err {v}  top1 99.1  top5 95.1",
        "[rank0] step {i} loss {v} grad_norm 1.2",
        "DEBUG TRAIN step {i} loss {v} loss_att 3.2 loss_ctc {v} lr 0.1 rank 0",
    ],
)
def test_a_nan_between_blanks_is_the_value_that_stood_there_before(form: str) -> None:
    lines = [form.format(i=i, v=v) for i, v in ((1, "2.5"), (2, "2.4"), (3, "nan"), (4, "inf"))]

    found = loss_by_iteration("\n".join(lines) + "\n")

    assert list(found) == [1, 2, 3, 4]
    assert np.isnan(found[3])
    assert found[4] == np.inf


def test_a_nan_before_the_first_number_is_still_one() -> None:
    found = loss_by_iteration("step 1 loss nan lr 0.1\nstep 2 loss 2.5 lr 0.1\n")

    assert np.isnan(found[1])
    assert found[2] == 2.5


def test_a_word_that_stands_in_healthy_lines_too_is_no_value() -> None:
    line = "iteration {i}/ 9 | lm loss: {v} | number of nan iterations: 0 | inf checks: off |\n"

    found = loss_by_iteration(line.format(i=1, v="2.5") + line.format(i=2, v="nan") + line.format(i=3, v="2"))

    assert found[1] == 2.5
    assert np.isnan(found[2])
    assert found[3] == 2.0
