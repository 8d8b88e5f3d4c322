"""Forms of text logs that few tools print: each read for what it says, and for nothing that it does not."""

from __future__ import annotations

from firstfault.wire import Defaults
from ingest.blocks import RecordBatch
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
