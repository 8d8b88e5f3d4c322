"""Sentences of logs are read as what they tell; conditions, settings and records are not taken for them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.telemetry import EventKind
from ingest.scan.sentence_table import SENTENCES, sentences_for
from ingest.scan.sentences import Finding, Place, Sentence


def told(line: str) -> Finding | None:
    """What the first sentence that reads the line tells."""
    raw = line.encode()
    return next((finding for each in sentences_for(raw) if (finding := each.read(raw))), None)


@pytest.mark.parametrize("sentence", SENTENCES, ids=lambda one: one.name)
def test_the_example_of_a_sentence_is_read_by_it_and_by_none_before_it(sentence: Sentence) -> None:
    found = told(sentence.example)
    assert found is not None
    assert found.sentence == sentence.name
    assert found.event is not None or found.metrics or found.is_heading or "doubt" in found.fields


@pytest.mark.parametrize(
    ("line", "previous", "scale"),
    [
        (
            "[LOMO] OVERFLOW! Rank 3 Skipping step. Attempted loss scale: 65536, reducing to 32768",
            65536,
            32768,
        ),
        ("Attempted loss scale: 65536, but hysteresis is 2. Reducing hysteresis to 1", 65536, 65536),
        ("Reducing dynamic loss scale from 4294967296 to 2147483648.0", 4294967296, 2147483648),
        ("Rank 3 :: Gradient overflow.  Skipping step, reducing loss scale to 1024.0", None, 1024),
        ("NOTE: gradient overflow detected, ignoring gradient, setting loss scale to: 6.4e1", None, 64),
        ("Found inf or nan, current scale is: 1024.0, decrease to: 1024.0*0.5", 1024, 512),
    ],
)
def test_a_skipped_step_tells_the_scale_before_and_after(line: str, previous: int | None, scale: int) -> None:
    found = told(line)
    assert found is not None
    assert found.event is EventKind.LOSS_SCALE
    assert found.fields.get("previous") == previous
    assert (found.fields["scale"], found.fields["skipped"]) == (scale, True)


@pytest.mark.parametrize(
    ("line", "metric"),
    [
        ("Loss is nan, stopping training", "loss"),
        ("ERROR: loss became infinite or NaN!", "loss"),
        ("The train_loss is inf", "loss"),
        ("NaN or Inf loss encountered at step 7", "loss"),
        ("Error: validation loss is NaN.", "eval_loss"),
        ("Monitored metric train_loss = inf is not finite. Previous best value was 2.", "loss"),
        ("nan found in loss", "loss"),
    ],
)
def test_a_sentence_that_tells_of_a_non_finite_loss_is_an_observation(line: str, metric: str) -> None:
    found = told(line)
    assert found is not None
    assert not math.isfinite(found.metrics[metric])


@pytest.mark.parametrize(
    "line",
    [
        "stop if loss is nan: True",
        "raises FloatingPointError when the loss is NaN",
        "check_for_nan_in_loss_and_grad ...... True",
        "loss is 2.31, still falling",
        "iteration 5/ 10 | lm loss: 2.771E+00 | grad norm: 1.2 | number of nan iterations: 0 |",
        "step 5 | loss nan (+nanz)",
        "TerminateOnNaN(monitor=loss)",
        "saving every 500 steps",
        "loading checkpoint shards: 100%",
        "resume_from_checkpoint: None",
        "loss_scale: 65536.0",
        "possible values are transient and persistent",
    ],
)
def test_conditions_settings_and_records_are_no_statements(line: str) -> None:
    assert told(line) is None


def test_a_check_before_the_reduction_names_its_rank_node_and_iteration() -> None:
    found = told(
        "Rank 126, node nvl72-08, device 0, iteration 1: Unexpected result nan "
        "(message='found NaN in local grad norm for bucket #0 in backward pass')"
    )
    assert found is not None
    assert (found.rank, found.host, found.iteration) == (126, "nvl72-08", 1)
    assert found.metrics == {"nonfinite_grad/checked": 1.0}


@pytest.mark.parametrize(
    ("end", "result", "code"),
    [
        ("Possible transient error!", "fail", "transient"),
        ("Possible persistent error!", "fail", "persistent"),
        ("Correct result (but possible Application error) (found NaN)!", "pass", "correct"),
    ],
)
def test_a_rerun_speaks_for_or_against_the_device(end: str, result: str, code: str) -> None:
    found = told(f"Rank 5, node node-3, device 1, iteration #12: {end}")
    assert found is not None
    assert (found.event, found.rank, found.iteration) == (EventKind.HARDWARE, 5, 12)
    assert (found.fields["result"], found.fields["code"]) == (result, code)


def test_what_was_not_printed_belongs_behind_the_last_iteration() -> None:
    found = told("Batch 3: Invalid loss, terminating training")
    assert found is not None
    assert (found.place, found.hint, found.iteration) == (Place.NEXT, 4, None)


def test_training_goes_on_after_the_update_that_a_checkpoint_holds() -> None:
    found = told(" successfully loaded checkpoint from /ckpt [ t 1/2, p 1/1 ] at iteration 1000")
    assert found is not None
    assert (found.event, found.iteration) == (EventKind.RESUME, 1001)


@pytest.mark.parametrize(
    ("line", "iteration", "metrics"),
    [
        ('0: :::MLLOG {"key": "train_loss", "value": "nan", "metadata": {"step": 9}}', 9, {"loss"}),
        (
            ':::MLLOG {"key": "tracked_stats", "value": {"loss": 1.5, "lr": 0.1}, "metadata": {"step": 3}}',
            3,
            {"loss", "lr"},
        ),
        (':::MLLOG {"key": "seed", "value": 7, "metadata": {"lineno": 3}}', None, set()),
    ],
)
def test_a_line_of_mlperf_is_json_with_its_own_counter(
    line: str, iteration: int | None, metrics: set[str]
) -> None:
    found = told(line)
    assert found is not None
    assert (found.iteration, set(found.metrics)) == (iteration, metrics)


def test_fingerprints_of_ranks_are_equal_where_their_digits_are() -> None:
    first = told("Rank 0, model 0, layer 0, weight 3.5e-05, bias 7.2e-05")
    other = told("Rank 1, model 0, layer 0, weight 3.5e-05, bias -8.1e-05")
    assert first is not None
    assert other is not None
    weight, bias = "param_checksum/model0.layer0.weight", "param_checksum/model0.layer0.bias"
    assert (first.rank, other.rank) == (0, 1)
    assert first.metrics[weight] == other.metrics[weight]
    assert first.metrics[bias] != other.metrics[bias]


def test_a_record_of_a_rank_is_no_fingerprint() -> None:
    assert told("Rank 0, step 5, loss 2.5, weight 3.5") is None


@settings(max_examples=100, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from([each.example for each in SENTENCES]) | st.text(max_size=30), min_size=1, max_size=4
    ),
    cut=st.integers(0, 300),
)
def test_no_line_makes_a_sentence_fail(parts: list[str], cut: int) -> None:
    line = " ".join(parts).encode("utf-8", "replace")[cut:]
    for sentence in sentences_for(line):
        found = sentence.read(line)
        assert found is not None
        assert found.iteration is None or found.iteration >= 0
