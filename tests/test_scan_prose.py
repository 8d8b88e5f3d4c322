"""What sentences tell stands at its iteration, between the records of the log, once."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import firstfault
from firstfault.telemetry import Event, EventKind, Record
from firstfault.wire import Defaults
from ingest.blocks import RecordBatch
from ingest.columns import records_from_batch
from ingest.joining import concatenate
from ingest.scan.scanner import TextScanner


def scanned(*pieces: str) -> tuple[TextScanner, RecordBatch]:
    scanner = TextScanner(Defaults(run="run", rank=None), "log")
    batches = [*(scanner.decode(piece.encode()) for piece in pieces), scanner.finish()]
    return scanner, concatenate([batch for batch in batches if batch is not None])


def events(*pieces: str) -> list[Event]:
    return [event for _, event in scanned(*pieces)[1].events]


def records(*pieces: str) -> list[Record]:
    return records_from_batch(scanned(*pieces)[1])


def steps(first: int, stop: int, front: str = "") -> str:
    return "".join(f"{front}step {at} loss {2 + 1 / at:.4f}\n" for at in range(first, stop))


def test_an_event_stands_at_the_iteration_printed_last_and_between_the_records() -> None:
    _, batch = scanned(steps(1, 6) + "Saving model checkpoint to out/checkpoint-5\n" + steps(6, 9))
    ((before, event),) = batch.events
    assert (before, event.kind, event.iteration) == (5, EventKind.CHECKPOINT, 5)


def test_what_every_rank_prints_of_the_run_happened_once() -> None:
    overflow = "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0\n"
    told = events(steps(1, 3) + overflow * 8 + steps(3, 4) + overflow)
    assert [(event.kind, event.iteration) for event in told] == [
        (EventKind.LOSS_SCALE, 2),
        (EventKind.LOSS_SCALE, 3),
    ]


def test_a_counter_of_the_optimizer_counts_where_nothing_else_does() -> None:
    overflow = "Grad overflow on iteration 7\n"
    assert [event.iteration for event in events(overflow + steps(1, 3) + overflow)] == [7, 2]


def test_an_iteration_that_was_not_printed_is_that_behind_the_last() -> None:
    last = records(steps(1, 5) + "Loss is nan, stopping training\n")[-1]
    assert last.iteration == 5
    assert math.isnan(float(last.metrics["loss"]))


def test_a_sentence_that_names_its_iteration_stands_there() -> None:
    text = steps(1, 5) + "FloatingPointError: Loss became infinite or NaN at iteration=1471!\n"
    assert records(text)[-1].iteration == 1471


def test_a_sentence_that_names_a_past_iteration_is_no_restart() -> None:
    text = steps(1, 50) + "FloatingPointError: Loss became infinite or NaN at iteration=3!\n"
    assert records(text)[-1].iteration == 49


def test_skips_in_a_log_that_counts_nothing_are_numbered() -> None:
    scanner, batch = scanned("WARNING: The grad norm is nan. Skipping updating the model.\n" * 3)
    assert batch.iteration_N.tolist() == [0, 1, 2]
    assert any("nothing counts" in remark for remark in scanner.understood().remarks)


def test_a_tensor_is_of_the_rank_in_the_heading_above_it() -> None:
    text = "TP rank 0 has value:\ntensor([1.0, 2.0, 3.0])\nTP rank 1:\ntensor([1.0, 2.0, 4.0])\n"
    first, other = records(text)
    assert (first.rank, other.rank) == (0, 1)
    assert first.metrics["param_checksum/printed"] != other.metrics["param_checksum/printed"]


def test_a_prefix_names_the_printer_of_a_line_about_hardware() -> None:
    text = (
        steps(1, 3, "[rank2]: ") + "[rank2]: RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
    )
    (event,) = events(text)
    assert (event.rank, event.iteration, event.fields["kind"]) == (2, 2, "ecc_uncorrectable")


def test_the_format_is_named_by_its_dialect_and_sentences_are_counted_in_a_remark() -> None:
    line = " iteration {}/ 9 | consumed samples: 16 | lm loss: 2.0E+00 | grad norm: 1.0 |\n"
    saved = "  successfully saved checkpoint from iteration       2 to /ckpt\n"
    scanner, _ = scanned("".join(line.format(at) for at in (1, 2)) + saved)
    assert scanner.understood().format == "text log (Megatron)"
    assert scanner.understood().remarks == ("1 line was read as a sentence: megatron saved 1",)


def test_a_loss_that_megatron_leaves_out_is_inferred() -> None:
    line = " iteration {}/ 9 | consumed samples: 16 |{} grad norm: {} |\n"
    text = line.format(1, " lm loss: 2.0E+00 |", 1.5) + line.format(2, "", "nan")
    _, batch = scanned(text)
    column = batch.numbers["loss"]
    assert column.inferred_N is not None
    assert column.inferred_N.tolist() == [False, True]


@pytest.mark.parametrize(
    ("line", "iteration", "metrics"),
    [
        (
            "0|yolo     | 1012: 2.5, 2.75 avg, 0.001 rate, 1.94 seconds, 6072 images",
            1012,
            {"loss": 2.5, "avg_loss": 2.75, "lr": 0.001},
        ),
        (
            "INFO - 08/12/24 10:05:30 - 0:25:40 - 1250 - 56.1 sent/s - 2.2 words/s - MLM-en: 7.5 - lr: 0.5",
            1250,
            {"loss": 7.5, "lr": 0.5},
        ),
        ("2026-11-30 17:25:05,809 DEBUG TRAIN Batch 0/3900 loss 2.5 lr 0.5 rank 0", 3900, {"loss": 2.5}),
        ("s:100 trl:3.25 lr:0.5 norm:0.75", 100, {"loss": 3.25, "lr": 0.5, "grad_norm": 0.75}),
    ],
)
def test_a_dialect_knows_the_names_that_a_line_leaves_out(
    line: str, iteration: int, metrics: dict[str, float]
) -> None:
    (record,) = records(line + "\n")
    assert record.iteration == iteration
    assert {name: record.metrics[name] for name in metrics} == metrics


def test_a_record_that_says_its_loss_in_words_counts_itself() -> None:
    line = "[Epoch 2 8/9][Iteration 641] Trained 8 records. Loss is NaN. Current learning rate is 0.5.\n"
    before = line.replace("641", "640").replace("NaN", "2.5")
    told = records(before + line)
    assert {record.iteration for record in told} == {640, 641}
    assert math.isnan(float(told[-1].metrics["loss"]))


_WRAPPED = (
    " iteration {}/ 9 | consumed samples: 16 | elapsed time per iteration (s): 1.5 | learning\n"
    " rate: 4.5E-05 | lm loss: {}.5E+00 | number of skipped iterations: 0 | number of nan\n"
    "iterations:  0 | TFLOPs: 149.1 |\n"
)


@pytest.mark.parametrize("cut", [0, 60, 100, 150, 200, 230, 260, 290, 330])
def test_a_record_wrapped_over_lines_is_one_however_it_is_cut(cut: int) -> None:
    text = _WRAPPED.format(1, 2) + "time (ms) | forward: 3.5\n" + _WRAPPED.format(2, 3)
    told = [
        (one.iteration, one.metrics["loss"], one.metrics["lr"]) for one in records(text[:cut], text[cut:])
    ]
    assert told == [(1, 2.5, 4.5e-05), (2, 3.5, 4.5e-05)]


def test_a_record_that_nothing_ends_is_read_as_far_as_it_goes() -> None:
    cut_off = " iteration 2/ 9 | consumed samples: 32 | lm loss: 3.5E+00 | num"
    first, cut = records(_WRAPPED.format(1, 2) + cut_off)
    assert (first.iteration, cut.iteration, cut.metrics["loss"]) == (1, 2, 3.5)


@pytest.mark.parametrize(
    "line",
    [
        "rank 1e999 step 5 loss 2.5",
        "epoch 1e999 step 5/-inf loss 2.5",
        "Epoch [1e300/inf] step 5 loss 2.5",
        "step 99999999999999999999999999 loss 2.5",
    ],
)
def test_counters_beyond_all_bounds_are_no_counters(line: str) -> None:
    text = (line + "\n") * 2 + steps(1, 4) + line + "\n"
    told = records(text)
    assert {1, 2, 3} <= {one.iteration for one in told}


_LINES = st.lists(
    st.sampled_from(
        [
            "step 1 loss 2.5",
            "step 2 loss 2.4",
            "[rank1]: step 3 loss 2.3",
            "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
            "Loss is nan, stopping training",
            "successfully saved checkpoint from iteration 2 to /ckpt",
            "Rank 1: found NaN in local grad norm in backward pass",
            "TP rank 1:",
            "tensor([1.0, 2.0, 3.0])",
            "WARNING: The grad norm is nan. Skipping updating the model.",
        ]
    ),
    max_size=14,
)


@settings(max_examples=60, deadline=None)
@given(lines=_LINES, cut=st.integers(0, 14))
def test_it_does_not_matter_how_a_log_is_cut(lines: list[str], cut: int) -> None:
    whole = "".join(line + "\n" for line in [*lines, "step 9 loss 2.0"])
    first = "".join(line + "\n" for line in lines[:cut])
    at_once, parts = scanned(whole)[1], scanned(first, whole[len(first) :])[1]
    assert [str(one) for one in records_from_batch(parts)] == [
        str(one) for one in records_from_batch(at_once)
    ]
    assert parts.events == at_once.events


def verdict_of(text: str, folder: Path) -> dict[str, object]:
    path = folder / "train.log"
    path.write_text(text, "utf-8")
    (verdict,) = firstfault.replay(path)
    told: dict[str, object] = verdict
    return told


def test_the_rank_that_a_check_stopped_at_is_named_with_its_checkpoint(tmp_path: Path) -> None:
    saved = "  successfully saved checkpoint from iteration      40 to /ckpt\n"
    stop = "AssertionError: Rank 5: found NaN in local grad norm in backward pass. Device: 1, node: node-3\n"
    verdict = verdict_of(steps(1, 41) + saved + steps(41, 51) + stop, tmp_path)
    incident = verdict["incidents"][0]  # type: ignore[index]  # plain JSON
    assert verdict["label"] == "nan"
    assert incident["certainty"] == "confirmed"
    assert (incident["first"]["ranks"], incident["first"]["iteration"]) == ([5], 51)
    assert incident["last_good"]["iteration"] == 50


def test_a_rerun_that_gives_another_result_speaks_against_the_device(tmp_path: Path) -> None:
    stop = (
        "Unexpected result nan on rank 5 at iteration #51 invocation #1 (message='NaN in local grad norm')\n"
        "Rank 5, node node-3, device 1, iteration #51: Possible transient error!\n"
    )
    verdict = verdict_of(steps(1, 51) + stop, tmp_path)
    incident = verdict["incidents"][0]  # type: ignore[index]  # plain JSON
    assert incident["first"]["ranks"] == [5]
    assert incident["causes"][0]["kind"] == "hardware"


@pytest.mark.parametrize(("waiting", "told"), [(4, "none is missing"), (3, "3 of 4 ranks")])
def test_a_wait_that_the_watchdog_ended_is_a_stall(waiting: int, told: str, tmp_path: Path) -> None:
    text = "".join(
        f"[rank{rank}]: step {at} loss {2 + rank / 7 + 1 / at:.4f}\n"
        for at in range(1, 40)
        for rank in range(4)
    )
    timeout = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE,"
    ran = " Timeout(ms)=600000) ran for 600081 milliseconds\n"
    text += "".join(timeout.format(rank) + ran for rank in range(waiting))
    verdict = verdict_of(text, tmp_path)
    incident = verdict["incidents"][0]  # type: ignore[index]  # plain JSON
    assert verdict["label"] == "stall"
    assert incident["first"]["iteration"] == 40
    assert told in incident["causes"][0]["because"][0]


@pytest.mark.parametrize(
    "named",
    [
        "  - [1] finished collective #6, but didn't join collective #7 (count from 1)",
        "RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 600000 ms",
    ],
)
def test_the_rank_that_a_report_names_as_missing_is_the_suspect(named: str, tmp_path: Path) -> None:
    timeout = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE,"
    ran = " Timeout(ms)=600000) ran for 600081 milliseconds\n"
    waits = "".join(timeout.format(rank) + ran for rank in (0, 2, 3))
    verdict = verdict_of(steps(1, 40) + waits + named + "\n", tmp_path)
    incident = verdict["incidents"][0]  # type: ignore[index]  # plain JSON
    assert verdict["label"] == "stall"
    assert incident["first"]["ranks"] == [1]
