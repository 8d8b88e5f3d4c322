"""Sentences that tell of non-finite values, and what Megatron's checks say of a rank."""

from __future__ import annotations

import math

from .sentence_forms import BAD, loss, loss_of_record, next_batch, not_if, rerun, say, site, validated, value
from .sentences import Place

_NAN = math.nan
DIVERGED = "diverged"
"""Says no more than that; what the records show is judged by itself."""

_NAN_WORDS = ("nan ", "NaN ", "NAN ", "nans ", "NaNs ", " nan", " NaN", " NAN")
_VERBS = (
    "oss is ",
    "oss was ",
    "oss became ",
    "oss become ",
    "oss becomes ",
    "oss value is ",
    "oss went ",
    "oss turned ",
)
_LOSS_IS = (
    r"(?i:loss)(?: value)? (?:is|was|becomes?|became|has become|went|turned)(?: now| to)? "
    rf"(?i:{BAD})(?=[\s.,;!)]|$)"
)
_AT = r"(?: (?:at|in|on|during)(?: global)? (?i:step|iteration|iter)[ =:#]{0,2}(?P<iteration>\d{1,15}))?"
NONFINITE = (
    say(
        "detectron2_loss",
        "detectron2",
        "the loss was non-finite at an iteration that was not printed",
        "at iteration=",
        r"[Ll]oss became infinite or NaN at iteration=(?P<iteration>\d+)",
        "FloatingPointError: Loss became infinite or NaN at iteration=1471!",
        metrics={"loss": _NAN},
    ),
    say(
        "keras_invalid_loss",
        "Keras",
        "TerminateOnNaN stopped the training; batches count from 0",
        "nvalid loss, terminating",
        r"Batch (?P<batch>\d{1,15}): Invalid loss, terminating",
        "Batch 3: Invalid loss, terminating training",
        metrics={"loss": _NAN},
        place=Place.NEXT,
        amend=next_batch,
    ),
    say(
        "lightning_step_loss",
        "Lightning",
        "training_step returned a non-finite loss",
        "The loss returned in ",
        rf"The loss returned in `?training_step`? is {BAD}",
        "ValueError: The loss returned in `training_step` is nan.",
        place=Place.NEXT,
        amend=value("loss"),
    ),
    say(
        "lightning_metric",
        "Lightning",
        "early stopping met a non-finite metric",
        "is not finite. Previous best",
        rf"Monitored metric (?P<of>\w*loss\w*) = {BAD} is not finite",
        "Monitored metric val_loss = nan is not finite. Previous best value was 0.31. Signaling"
        " Trainer to stop.",
        amend=loss,
    ),
    say(
        "lightning_weights",
        "Lightning",
        "a parameter was non-finite",
        "Detected nan and/or inf values in ",
        r"Detected nan and/or inf values in `[^`]{1,200}`",
        "Detected nan and/or inf values in `layer.weight`. Check your forward pass",
        metrics={"nonfinite_param": 1.0},
    ),
    say(
        "loss_is_counted",
        "many trainers",
        "a sentence in a record that says the loss is non-finite",
        _VERBS,
        _LOSS_IS,
        "[Iteration 7] Loss is NaN. Current learning rate is 0.1.",
        takes_line=False,
        amend=loss_of_record,
    ),
    say(
        "loss_is",
        "many trainers",
        "a sentence that says the loss is non-finite",
        _VERBS,
        _LOSS_IS,
        "Loss is nan, stopping training",
        place=Place.NEXT,
        amend=loss,
    ),
    say(
        "nonfinite_loss",
        "many trainers",
        "a sentence that tells of a non-finite loss",
        (" loss", "-loss", " Loss"),
        r"\b(?i:(?P<value>nan|inf|non-?finite|infinite)(?:/inf| or inf| or infinite)? (?:train"
        r"(?:ing)? )?loss)"
        r"(?: value)?(?=,| (?i:detected|encountered|found|during|at|in|on)\b|!|:? (?i:nan|inf))"
        rf"(?: (?i:detected|encountered|found))?{_AT}",
        "Non-finite loss, ending training",
        amend=loss,
        place=Place.NEXT,
    ),
    say(
        "bad_loss_detected",
        "many trainers",
        "a sentence that tells of NaN in the loss",
        ("detected in loss", "found in loss", "in loss detected"),
        r"\b(?i:(?P<value>nan|inf)s?(?:/inf| or inf)? (?:was |values? )?(?:detected|found|in) (?:in )?loss)",
        "NaN detected in loss, skipping",
        amend=loss,
        place=Place.NEXT,
    ),
    say(
        "nan_stops",
        "many trainers",
        "a sentence that says the training ends for a NaN",
        _NAN_WORDS,
        r"(?i:\bnans? (?:was |were )?(?:detected|encountered|found|occurred)\b[^\w]{1,4}(?:will )?"
        r"(?:now )?(?:stop|abort|terminat|exit|halt|quit|break)"
        r"|\b(?:stop|abort|terminat|exit|halt)\w{0,4} (?:the )?(?:training )?"
        r"(?:because of|due to|after) (?:an? )?nans?\b)",
        "NaN detected, stopping",
        metrics={"loss": _NAN},
        amend=not_if,
        place=Place.NEXT,
    ),
    say(
        "fairseq_site",
        "fairseq",
        "a layer's output or gradient was non-finite",
        " detected in output of ",
        r"(?P<value>NaN|Inf|nan|inf) detected in output of [^,]{1,200}, .{0,200}?\b"
        r"(?P<phase>forward|backward)\b",
        "NaN detected in output of encoder.layers.0, shape: torch.Size([8, 2]), forward",
        place=Place.NEXT,
        amend=site,
    ),
    say(
        "torch_anomaly",
        "PyTorch",
        "anomaly detection found the backward function that made a NaN",
        "returned nan values in its",
        r"Function '\w{1,80}' returned nan values in its \d+th output",
        "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.",
        metrics={"nonfinite_grad": 1.0},
        place=Place.NEXT,
    ),
    say(
        "tensorflow_diverged",
        "TensorFlow",
        "the loss was non-finite",
        ("diverged with loss",),
        rf"(?i:diverged with loss ?= ?{BAD})",
        "ERROR:tensorflow:Model diverged with loss = NaN.",
        amend=loss,
        place=Place.NEXT,
    ),
    say(
        "loss_tensor",
        "TensorFlow",
        "the loss was non-finite",
        ("ossTensor is inf",),
        r"LossTensor is (?P<value>inf or nan)",
        "LossTensor is inf or nan. : Tensor had NaN values",
        amend=loss,
        place=Place.NEXT,
    ),
    say(
        "criterion_nan",
        "CNTK",
        "the loss was non-finite",
        ("criterion is not a number",),
        r"criterion is not a number",
        "EXCEPTION occurred: The training criterion is not a number (NAN).",
        metrics={"loss": _NAN},
        place=Place.NEXT,
    ),
    say(
        "encountered_nan",
        "fastText",
        "the training met a NaN",
        ("ncountered NaN", "EncounteredNaNError"),
        r"\b[Ee]ncountered NaN\.|EncounteredNaNError",
        "terminate called: what():  Encountered NaN.",
        metrics={"loss": _NAN},
        place=Place.NEXT,
    ),
    say(
        DIVERGED,
        "many trainers",
        "a sentence that says the training diverged",
        ("diverged", "diverging", "Diverged", "DIVERGED"),
        r"(?i:\b(?:loss|training|train|model|run|optimi[sz]ation|gradients?)"
        r"(?: has| have| is| seems to have)? diverg(?:ed|ing)\b)",
        "Loss diverged, stopping training",
        fields={"doubt": DIVERGED},
        takes_line=False,
        amend=not_if,
    ),
)
MEGATRON = (
    say(
        "megatron_local_norm",
        "Megatron",
        "this rank's gradient was non-finite before the reduction",
        "in local grad norm",
        r"Rank (?P<rank>\d+): found (?P<value>NaN|Inf) in local grad norm(?:.{0,200}?Device: "
        r"(?P<device>\d+), node: (?P<host>[\w.-]+))?",
        "AssertionError: Rank 5: found NaN in local grad norm in backward pass before data-parallel"
        " communication collective. Device: 1, node: node-3",
        metrics={"nonfinite_grad/checked": 1.0},
        place=Place.NEXT,
    ),
    say(
        "megatron_rejected",
        "Megatron",
        "a result of this rank was refused before the reduction",
        "Unexpected result ",
        r"Unexpected result (?P<value>\S{1,80}) on rank (?P<rank>\d+) at iteration #"
        r"(?P<iteration>\d+) .{0,40}?\(message='(?P<message>[^']{0,200})",
        "Unexpected result nan on rank 5 at iteration #1201 invocation #1 (message='found NaN in"
        " local grad norm for bucket #0')",
        amend=validated,
    ),
    say(
        "megatron_rejected_fatal",
        "Megatron",
        "a result of this rank was refused before the reduction",
        "Unexpected result ",
        r"Rank (?P<rank>\d+), node (?P<host>[\w.-]+), device (?P<device>\d+), iteration #?"
        r"(?P<iteration>\d+):\s+Unexpected result "
        r"(?P<value>\S{1,80})(?:.{0,10}message='(?P<message>[^']{0,200}))?",
        "RuntimeError: Rank 5, node node-3, device 1, iteration 1201: Unexpected result nan"
        " (message='found NaN in local forward loss calculation')",
        amend=validated,
    ),
    say(
        "megatron_rerun",
        "Megatron",
        "a rerun tells whether the device or the program made the result",
        ("Possible ", "Correct result"),
        r"Rank (?P<rank>\d+), node (?P<host>[\w.-]+), device (?P<device>\d+), iteration #?"
        r"(?P<iteration>\d+): "
        r"(?:Possible (?P<outcome>transient|persistent) error|(?P<outcome2>Correct result))",
        "Rank 5, node node-3, device 1, iteration #1201: Possible transient error!",
        amend=rerun,
    ),
    say(
        "megatron_tracker",
        "Megatron",
        "the same, from the file of rejected results",
        " status=",
        r"node=(?P<host>[\w.-]+) device=(?P<device>\d+) jobID=\S{0,40} rank=(?P<rank>\d+) iteration="
        r"(?P<iteration>\d+) "
        r"status=(?:RerunValidationStatus\.)?(?P<outcome>\w{1,40}) result=(?P<value>.{0,80}?)"
        r" message='(?P<message>[^']{0,200})",
        "ts=2026-06-28 16:08:16 node=node-3 device=1 jobID=7 rank=5 iteration=1201"
        " status=first_rerun_not_reproducible result=nan message='found NaN in local grad norm'",
        amend=rerun,
    ),
)
