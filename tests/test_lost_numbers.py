"""A text log in which the loss stops being a number is never called healthy.

The record of a loop that printed its loss in every line and now prints a word, asterisks or nothing is read
as NaN, marked as inferred; what is only reported now and then is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingest.jobs import find_jobs
from service.offline import ReplayOptions, judge_jobs
from service.sufficiency import why_too_little

STEPS = 40


def log(form: str, *, lost: str = "", at: int = 30, every: int = 1) -> str:
    """Losses in ``form``, one for ``every`` records; else, and from record ``at`` on, ``lost``."""
    is_lost = [step >= at or (every > 1 and step % every > 0) for step in range(STEPS)]
    return "\n".join(
        form.format(step=step * 10, loss=lost if gone else f"{2.5 - 0.02 * step:.4f}")
        for step, gone in enumerate(is_lost)
    )


def verdict(text: str, folder: Path) -> tuple[dict[str, Any], str]:
    """The verdict on a log, and why it is too little to judge by."""
    path = folder / "train.log"
    path.write_text(text + "\n", "utf-8")
    (job,) = judge_jobs(find_jobs([path]), ReplayOptions())
    run = job.runs[0].body
    return run, why_too_little(run, job.notes)


@pytest.mark.parametrize(
    ("form", "lost"),
    [
        pytest.param("step={step} loss={loss} lr=0.001", "None", id="None"),
        pytest.param("step: {step} | loss: {loss} | lr: 0.001", "null", id="null"),
        pytest.param("step {step} loss {loss} lr 0.001", "******", id="asterisks"),
        pytest.param("step {step}, loss: {loss}, grad_norm: 0.513", "-", id="a dash"),
        pytest.param("iter {step}: loss {loss}, time 20.1ms", "--", id="dashes without a separator"),
        pytest.param("[12:00:01] Epoch 1 Step {step} Loss: {loss} LR: 0.001", "N/A", id="not available"),
        pytest.param("{{'loss': {loss}, 'grad_norm': 0.5, 'epoch': {step}.0}}", "None", id="a dictionary"),
        pytest.param("step={step} loss={loss} lr=0.001", "", id="nothing"),
        pytest.param("step {step} loss {loss} lr 0.001", "∞", id="a sign"),
        pytest.param("step {step} loss: {loss} lr: 0.001", "NaNe+00", id="an exponent"),
        pytest.param("step={step}, loss={loss}, lr=0.001", "#NUM!", id="of a spreadsheet"),
        pytest.param("step {step} loss: {loss} lr: 0.001", "QNaN", id="a quiet one"),
        pytest.param("step {step} | loss: {loss} | lr: 0.001", "Not a Number", id="in words"),
        pytest.param("step {step}, loss: {loss}, lr: 0.001", "?", id="a question"),
        pytest.param("step={step} loss={loss} lr=0.001", "diverged", id="a word"),
    ],
)
def test_a_loss_that_stops_being_a_number_is_an_inferred_nan(form: str, lost: str, tmp_path: Path) -> None:
    run, _ = verdict(log(form, lost=lost), tmp_path)

    assert run["label"] == "nan"
    incident = run["incidents"][0]
    assert incident["certainty"] == "confirmed"
    assert run["judged_to_iteration"] == 390 or "epoch" in form
    assert any(evidence["detail"].get("inferred") for evidence in incident["evidence"])


def test_it_begins_in_the_first_record_without_a_number(tmp_path: Path) -> None:
    run, _ = verdict(log("step={step} loss={loss} lr=0.001", lost="None"), tmp_path)

    assert run["incidents"][0]["first"]["interval"] == [290, 300]


def test_a_loss_that_is_reported_now_and_then_is_no_nan(tmp_path: Path) -> None:
    run, why = verdict(log("step={step} loss={loss} lr=0.001", lost="None", at=STEPS, every=4), tmp_path)

    assert run["label"] == "healthy"
    assert not run["incidents"]
    assert not why


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(log("step={step} loss={loss} lr=0.001", lost="None", at=3), id="after three losses"),
        pytest.param(
            log("step={step} loss={loss} lr=0.001", lost="-", at=20, every=2), id="after a sparse one"
        ),
        pytest.param(
            log("step {step} loss {loss}") + "\nLoss diverged, stopping", id="only a sentence says so"
        ),
    ],
)
def test_what_says_neither_is_too_little_to_judge(text: str, tmp_path: Path) -> None:
    run, why = verdict(text, tmp_path)

    assert not run["incidents"]
    assert "no number where it had the loss" in why or "diverged" in why


def test_words_in_the_place_of_other_values_say_nothing_of_the_loss(tmp_path: Path) -> None:
    text = "\n".join(
        f"step={step} loss=2.{500 - step} val_loss={'None' if step > 20 else '2.6'}" for step in range(STEPS)
    )

    run, why = verdict(text, tmp_path)

    assert (run["label"], run["incidents"], why) == ("healthy", [], "")


def test_a_mean_in_brackets_that_became_nan_tells_of_a_loss_that_was(tmp_path: Path) -> None:
    lines = [
        f"Epoch: [0][{step}/99] Loss 2.{50 - step} ({'nan' if step > 30 else 2.5}) Acc 0.1 (0.1)"
        for step in range(STEPS)
    ]

    run, _ = verdict("\n".join(lines), tmp_path)

    assert run["label"] == "nan"
    assert run["incidents"][0]["first"]["iteration"] == 31


def test_exponents_of_fortran_count(tmp_path: Path) -> None:
    lines = [
        f" iter {step:6d} loss = {1.5 - step / 100:.4f}D{-1 if step < 30 else 4:+03d}" for step in range(60)
    ]

    run, _ = verdict("\n".join(lines), tmp_path)

    assert run["label"] == "gradient_explosion"
    assert run["incidents"][0]["first"]["iteration"] == 30


@pytest.mark.parametrize("sentence", ["NaN detected, stopping", "Training aborted due to NaN"])
def test_a_sentence_that_the_training_ends_for_a_nan_is_one(sentence: str, tmp_path: Path) -> None:
    run, _ = verdict(log("step {step} loss {loss}") + f"\n{sentence}", tmp_path)

    assert run["label"] == "nan"


@pytest.mark.parametrize("sentence", ["stop if NaN detected, abort", "Will exit when the loss diverged"])
def test_a_condition_is_no_statement(sentence: str, tmp_path: Path) -> None:
    run, why = verdict(log("step {step} loss {loss}") + f"\n{sentence}", tmp_path)

    assert (run["label"], why) == ("healthy", "")


def test_a_log_that_prints_its_loss_less_often_after_a_few_records_has_no_nan(tmp_path: Path) -> None:
    lines = [
        f"step {step} loss: {2.5 - step / 99 if step < 5 or step % 5 == 0 else 'N/A'}" for step in range(60)
    ]

    run, why = verdict("\n".join(lines), tmp_path)

    assert (run["label"], run["incidents"], why) == ("healthy", [], "")


def test_a_heading_in_stars_above_records_makes_no_table_of_them(tmp_path: Path) -> None:
    run, _ = verdict("***** Running training *****\n" + log("step {step} loss {loss}"), tmp_path)

    assert (run["label"], run["coverage"]["metrics"]) == ("healthy", ["loss"])
