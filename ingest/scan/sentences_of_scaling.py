"""Sentences of loss scaling: skipped steps, scales that fall and rise, and their end."""

from __future__ import annotations

from firstfault.telemetry import EventKind

from .sentence_forms import BAD, NUM, held, product, say, value
from .sentences import Place

_SKIP = {"skipped": True}
_SCALE = EventKind.LOSS_SCALE

LOSS_SCALING = (
    say(
        "deepspeed_overflow",
        "DeepSpeed",
        "a step was skipped and the loss scale reduced",
        "Attempted loss scale",
        rf"Attempted loss scale: (?P<previous>{NUM}), (?:reducing to (?P<scale>{NUM})|but hysteresis"
        rf" is (?P<hysteresis>\d+))",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 64, reducing to 32",
        event=_SCALE,
        fields=_SKIP,
        amend=held,
    ),
    say(
        "deepspeed_bf16_overflow",
        "DeepSpeed",
        "a step was skipped",
        "OVERFLOW! Rank",
        r"OVERFLOW! Rank \d+ Skipping step\.?\s*$",
        "[deepspeed] OVERFLOW! Rank 0 Skipping step.",
        event=_SCALE,
        fields=_SKIP,
    ),
    say(
        "deepspeed_reducing",
        "DeepSpeed",
        "the loss scale was reduced after an overflow",
        "Reducing dynamic loss scale",
        rf"Reducing dynamic loss scale from (?P<previous>{NUM}) to (?P<scale>{NUM})",
        "Reducing dynamic loss scale from 65536 to 32768.0",
        event=_SCALE,
        fields=_SKIP,
    ),
    say(
        "deepspeed_grad_overflow",
        "DeepSpeed",
        "an overflow, in the optimizer's own count of steps",
        "rad overflow on iteration",
        r"[Gg]rad overflow on iteration:? (?P<hint>\d+)",
        "Grad overflow on iteration 3",
        event=_SCALE,
        fields=_SKIP,
    ),
    say(
        "deepspeed_increasing",
        "DeepSpeed",
        "the loss scale was raised",
        "Increasing dynamic loss scale",
        rf"Increasing dynamic loss scale from (?P<previous>{NUM}) to (?P<scale>{NUM})",
        "Increasing dynamic loss scale from 32768 to 65536",
        event=_SCALE,
    ),
    say(
        "apex_overflow",
        "apex",
        "a step was skipped and the loss scale reduced",
        "radient overflow",
        rf"[Gg]radient overflow\.? {{1,3}}Skipping step.{{0,40}}?(?:reducing loss scale to|[Ll]oss"
        rf" scale reduces to|scaler) (?P<scale>{NUM})\s*$",
        "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 32768.0",
        event=_SCALE,
        fields=_SKIP,
    ),
    say(
        "fairseq_overflow",
        "fairseq",
        "a gradient was ignored and the loss scale set lower",
        "etting loss scale to",
        rf"overflow detected,.{{0,40}}?setting loss scale to:? (?P<scale>{NUM})",
        "| WARNING: overflow detected, setting loss scale to: 0.25",
        event=_SCALE,
        fields=_SKIP,
    ),
    say(
        "paddle_overflow",
        "Paddle",
        "a gradient was ignored and the loss scale reduced",
        "ound inf or nan, current scale",
        rf"current scale is: (?P<previous>{NUM}), decrease to: (?P<scale>{NUM})(?:\*(?P<factor>{NUM}))?",
        "Found inf or nan, current scale is: 65536.0, decrease to: 65536.0*0.5",
        event=_SCALE,
        fields=_SKIP,
        amend=product,
    ),
    say(
        "scale_at_minimum",
        "DeepSpeed, fairseq, icefall",
        "the loss scale can fall no further, and the trainer gives up",
        ("loss scale already at minimum", "inimum loss scale reached", "grad_scale is too small"),
        rf"(?:loss scale already at minimum|[Mm]inimum loss scale reached|grad_scale is too small)"
        rf"(?:, exiting:)?(?: ?\(?(?P<scale>{NUM}))?",
        "FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding.",
        event=_SCALE,
        fields={"at_minimum": True},
    ),
    say(
        "icefall_small_scale",
        "icefall",
        "the loss scale is small",
        "rad scale is small",
        rf"Grad scale is small: (?P<scale>{NUM})",
        "WARNING [trainer.py:680] (2/4) Grad scale is small: 0.001",
        event=_SCALE,
    ),
    say(
        "grad_norm_skip",
        "ESPnet, FunASR",
        "an update was skipped for a non-finite gradient norm",
        "rad norm is ",
        rf"(?i)\bgrad norm is {BAD}\.? ?,? ?(?:Skipping updating|Do not update|skip)",
        "WARNING: The grad norm is nan. Skipping updating the model.",
        metrics={"skipped": 1.0},
        amend=value("grad_norm"),
    ),
    say(
        "gradient_not_finite",
        "fairseq and others",
        "gradients were non-finite",
        ("radients are ", "radient is ", "RADIENT"),
        r"(?i)\bgradients? (?:are|is) (?P<value>nan/inf|nan|inf\b|infinite|not finite|non-?finite)",
        "FloatingPointError: gradients are Nan/Inf",
        place=Place.NEXT,
        amend=value("grad_norm"),
    ),
)
