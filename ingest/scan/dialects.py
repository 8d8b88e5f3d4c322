"""The dialects of text logs: how each is recognised, and what a general scanner cannot know.

One entry is data. ``mark`` is looked for once per shape of line; ``keys`` say what a name in the file is
where no rule of names could know it (an empty one: it is no value); ``rules`` say what values mean that were
left out, hidden or never filled in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from .dialect_rules import (
    CountSoFar,
    HiddenLoss,
    MeanOfWindow,
    OmittedLoss,
    Rule,
    Saturated,
    Unfilled,
    ZeroUntilKnown,
)

SATURATED_SOFTMAX = 87.3365
"""-ln of the least normal number in single precision, as Caffe's softmax loss prints it: 87.3365."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One way to write a training log."""

    name: str
    mark: re.Pattern[bytes]
    example: str
    note: str
    """What is special about it, for a person."""
    keys: Mapping[str, str] = field(default_factory=dict)
    counter: str = ""
    """The key that counts, where a guess would be wrong; empty: the general rules find it."""
    rules: tuple[Callable[[], Rule], ...] = ()
    ends_in_bar: bool = False
    """Whether a record ends in a bar, so that a line without one goes on in the next."""

    @property
    def names(self) -> Mapping[str, str]:
        """What it calls things, to the name that is meant."""
        return {**self.keys, self.counter: "iteration"} if self.counter else self.keys


def _dialect(
    name: str,
    mark: str,
    example: str,
    note: str,
    *,
    keys: Mapping[str, str] | None = None,
    counter: str = "",
    rules: tuple[Callable[[], Rule], ...] = (),
    ends_in_bar: bool = False,
) -> Dialect:
    return Dialect(
        name=name,
        mark=re.compile(mark.encode()),
        example=example,
        note=note,
        keys=keys or {},
        counter=counter,
        rules=rules,
        ends_in_bar=ends_in_bar,
    )


_UNFILLED_NORM = partial(ZeroUntilKnown, "grad_norm")
_UNFILLED_SCALE = partial(Unfilled, "loss_scale", -1.0)
_MEGATRON_RULES = (OmittedLoss, _UNFILLED_NORM, _UNFILLED_SCALE)

DIALECTS: tuple[Dialect, ...] = (
    _dialect(
        "Megatron",
        r"\biteration +\d+ */ *\d+ *\|.{0,300}?\bconsumed (?:samples|tokens):",
        " iteration 20/ 100 | consumed samples: 320 | lm loss: 2.3E+00 | loss scale: 1.0 | grad norm: 1.2 |",
        "a loss that is NaN is left out, as is a negative one; counters of NaN iterations may stay 0;"
        " a gradient norm of 0.000 in every record and a loss scale of -1.0 are not filled in;"
        " the loss is the mean of the iterations since the record before",
        rules=_MEGATRON_RULES,
        ends_in_bar=True,
    ),
    _dialect(
        "Megatron",
        r"\biteration +\d+ */ *\d+ *\|.{0,300}?\belapsed time per iteration",
        " iteration 20/ 100 | elapsed time per iteration (ms): 105.2 | lm loss: 2.3E+00 |",
        "older releases, which do not count samples: as above",
        rules=_MEGATRON_RULES,
        ends_in_bar=True,
    ),
    _dialect(
        "DeepSpeed",
        r"\bstep=\d+, skipped=\d+, lr=\[",
        "[INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=5, lr=[1e-05], mom=[[0.9, 0.95]]",
        "skipped counts all steps so far: the difference to the record before is used",
        rules=(partial(CountSoFar, "skipped"),),
    ),
    _dialect(
        "HF Trainer",
        r"\{'(?:loss|eval_loss|train_runtime|train_loss)': .{0,2000}?'epoch':",
        "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.28}",
        "a loss of 0.0 beside a gradient norm of NaN is a NaN; that norm beside a finite loss is a step that"
        " fp16 skipped",
        rules=(HiddenLoss,),
    ),
    _dialect(
        "TorchTitan",
        r"\bstep: +\d+ +loss: +\S+ +grad_norm:",
        "[titan] 2024-04-09 20:45:10,250 - root - INFO - step: 54  loss:  3.12500  grad_norm:  0.7250",
        "a loss of -1 is printed by ranks that do not have the last pipeline stage",
        rules=(partial(Unfilled, "loss", -1.0),),
    ),
    _dialect(
        "Caffe",
        r"\bsolver\.cpp:\d+\]",
        "I0714 09:41:05.125000  5120 solver.cpp:88] Iteration 220, loss = nan",
        "a softmax loss that stays at 87.3365 stands for infinity; 1.#QNAN is NaN",
        rules=(partial(Saturated, SATURATED_SOFTMAX, 5e-4),),
    ),
    _dialect(
        "Deeplearning4j",
        r"\bScore at iteration \d+ is ",
        "o.d.o.l.ScoreIterationListener - Score at iteration 60 is 0.6931471805599453",
        "the score is the loss; the iteration may begin again in every epoch",
        keys={"Score": "loss"},
    ),
    _dialect(
        "MMCV",
        r" - mm\w+ - INFO - Epoch ?(?:\(train\) +)?\[\d+\]\[ *\d+/\d+\]",
        "2024-04-09 20:45:10,250 - mmdet - INFO - Epoch [9][600/3200] lr: 1e-04, loss: 4.3, grad_norm: nan",
        "the gradient norm is the mean of the window: a NaN in it beside a finite loss is one skipped step",
        rules=(MeanOfWindow,),
    ),
    _dialect(
        "Darknet",
        r"^\s*(?:\d{1,4}\|[\w.-]{1,40} *\| *)?\d+: [-\w.]+, [-\w.]+ avg(?: loss)?,",
        "1012: 0.577000, 0.678000 avg, 0.001000 rate, 1.94 seconds, 6072 images",
        "the step comes first, then the loss and its running mean; -nan of regions with count 0 is a mean of"
        " no objects",
        keys={"#1": "loss", "avg": "avg_loss", "avg loss": "avg_loss", "rate": "lr", "images": ""},
        counter="#0",
    ),
    _dialect(
        "llm.c",
        r"\bstep +\d+/\d+ \| (?:train )?loss ",
        "step    1/21000 | loss 10.875125 (+nanz)| norm 12.5125 (+nanz)| lr 7.50e-07 | 2750.25 ms",
        "the bracket behind a value is how many deviations it is from its mean, nan until 128 steps exist",
    ),
    _dialect(
        "llm.c main.log",
        r"^s:\d+ (?:trl|tel|eval):",
        "s:100 trl:3.2801 lr:0.000600 norm:0.8",
        "trl is the loss, tel that of the test data",
        keys={"trl": "loss", "tel": "eval_loss", "eval": "eval_accuracy", "norm": "grad_norm"},
        counter="s",
    ),
    _dialect(
        "nanoGPT",
        r"^\s*(?:iter \d+: loss |step \d+: train loss )",
        "iter 4490: loss 3.8125, time 950.75ms, mfu -100.00%",
        "mfu is -100% until it is known",
    ),
    _dialect(
        "modded-nanogpt",
        r"\bstep:\d+/\d+ (?:train_loss|val_loss):",
        "step:3/5100 train_loss:10.2 train_time:1200ms step_avg:nanms",
        "step_avg is nan until its window begins",
        keys={"step_avg": ""},
    ),
    _dialect(
        "Nanotron",
        r"\biteration: \d+ / \d+ \| consumed_tokens:",
        "[INFO|DP=0|PP=0|TP=0]: iteration: 32 / 250 | consumed_tokens: 56.4G | lm_loss: 2.41 | lr: 1e-05",
        "numbers have suffixes, K for thousands; the loss has three digits",
    ),
    _dialect(
        "fairseq",
        r"\| (?:train(?:_inner)? \| )?epoch \d+(?::| \| )",
        "2024-10-21 15:05:20 | INFO | train | epoch 002 | loss 8.625 | num_updates 595 | gnorm 42.5",
        "loss_scale prints as 0 below 0.5; the gradient norm can look harmless when all is lost",
        keys={"clip": "", "oom": ""},
    ),
    _dialect(
        "detectron2",
        r"\beta: .{0,80}?\biter: \d+ +total_loss: ",
        "[08/14 07:10:01 d2.utils.events]:  eta: 18:25:00  iter: 39  total_loss: 0.3125  lr: 0.01025",
        "losses are medians of a window; a NaN is told by the sentence that ends the training",
    ),
    _dialect(
        "MaxText",
        r"\bcompleted step: \d+, seconds: ",
        "completed step: 9, seconds: 1.2, TFLOP/s/device: 55.1, Tokens/s/device: 3021.2, loss: 0.000",
        "the loss has three decimals: 0.000 is what synthetic data give",
    ),
    _dialect(
        "XLA",
        r"\bTraining Device=xla:\d+",
        "| Training Device=xla:0/7 Epoch=1 Step=200 Loss=0.01250 Rate=480.25",
        "each device prints its own line",
    ),
    _dialect(
        "XLM",
        r"- +\d+ - +[\d.]+ sent/s -",
        "INFO - 08/12/24 10:05:30 - 0:25:40 - 1250 - 61.25 sent/s - 2310.50 words/s - MLM-en: 6.8750",
        "the step has no name, and the loss is named by its task and language",
        keys={"MLM-en": "loss", "MLM": "loss", "CLM-en": "loss"},
        counter="#0",
    ),
    _dialect(
        "ESPnet",
        r"(?<!\d)\d+epoch:train:\d+-\d+batch:",
        "[gpu12:0/4] 2024-09-03 06:20:10,125 (trainer:655) INFO: 2epoch:train:4001-4500batch: loss=58.25",
        "a record is the mean of a range of batches, of which those with a NaN norm are left out",
    ),
    _dialect(
        "icefall",
        r"\bEpoch \d+, batch \d+, (?:train_)?loss\[",
        "2024-03-08 19:15:04,400 INFO (2/4) Epoch 1, batch 7400, train_loss[loss=2.1, over 9 frames]",
        "every rank prints; the first bracket is the batch, the second a running mean",
    ),
    _dialect(
        "BigDL",
        r"\[Epoch \d+ \d+/\d+\]\[Iteration \d+\]",
        "[Epoch 21 30720/50000][Iteration 500][Wall Clock 610.5s] Trained 2048 records. Loss is 2.1.",
        "values stand inside sentences",
    ),
    _dialect(
        "WeNet",
        r"\b(?:TRAIN|CV) Batch \d+/\d+ loss ",
        "2026-11-30 17:25:05,809 DEBUG TRAIN Batch 0/3900 loss 142.135910 lr 0.00001855 rank 0",
        "the number in front of the slash is the epoch, the one behind it the batch",
        keys={"TRAIN Batch": "epoch", "CV Batch": "epoch", "Batch": "epoch", "#1": "batch"},
    ),
    _dialect(
        "WeNet 3",
        r"\b(?:TRAIN|CV) \|(?: steps/sec [\d.]+ ?\|)? ?Batch \d+/\d+ loss ",
        "17:25:05,809 DEBUG TRAIN | steps/sec 3.2| Batch 0/3900 loss 142.135910 lr 0.00001855 rank 0",
        "as before; it writes 0_3900 for epoch and batch",
        keys={"Batch": "epoch", "#2": "batch"},
    ),
    _dialect(
        "Sockeye",
        r"\bE=\d+ B=\d+\ts/sec=",
        "[INFO:sockeye.training] E=0 B=50\ts/sec=1012.3\ttok/sec=23012.1\tu/sec=2.1\tppl=81.45 ce=4.40",
        "E is the epoch, B the batch",
        keys={"E": "epoch"},
        counter="B",
    ),
    _dialect(
        "MLPerf",
        r":::MLLOG \{",
        ':::MLLOG {"time_ms": 1782662896958, "key": "train_loss", "value": 1.25, "metadata": {"step": 51}}',
        "a line is an object with a key, a value and the count of samples or steps; the rest is noise",
    ),
    _dialect(
        "DeepSpeed-Chat",
        r"\bepoch: \d+\|step: \d+\|ppo_ep: \d+\|",
        "epoch: 0|step: 50|ppo_ep: 1|act_loss: -0.25|cri_loss: 0.125|unsuper_loss: 0.0",
        "losses of actor and critic may be negative; one that is switched off is 0",
    ),
    _dialect(
        "Keras",
        r"(?<!\d)\d+/\d+ [━=\[].{0,120}? - (?:loss|accuracy|acc): ",
        "  2/100 [>....] - ETA: 15:20 - loss: 0.6931 - mse: 0.25",
        "the values are means of the epoch so far",
    ),
)


def dialect_of(line: bytes) -> Dialect | None:
    """The dialect of a line, and so of all lines of its shape; None for one that the general rules read."""
    return next((dialect for dialect in DIALECTS if dialect.mark.search(line)), None)
