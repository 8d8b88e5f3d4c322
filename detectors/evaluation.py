"""Evaluation that falls for good while the training loss goes on well: the model is worse than it trains.

A rank test on the sparse points of an evaluation, which needs no model of its noise: all of the last m
points are worse than each of the b before. If the level did not get worse and the noise is exchangeable,
the chance of that at one place is 1 / C(b + m, m); an improving curve makes it rarer. What falls must also
be of a size that matters, and fall in a step: an evaluation that gets worse by and by beside a falling
training loss is overfitting, which is told as an annotation (``overfitting``) and is no fault of a device.

Source: the exact null of the largest rank sum of Wilcoxon, Individual Comparisons by Ranking Methods,
Biometrics Bulletin 1 (1945); we use its most extreme outcome alone, which is what a lasting fault gives.

Axes: T positions, R ranks, E evaluations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from firstfault.telemetry import EventKind
from ingest.blocks import IterationBlock
from ingest.bounds import check_bounds

from .base import State
from .evaluation_stream import LEAST_BEFORE, SUSPECT_AFTER, EvaluationStream
from .evidence import Check, CheckState, Finding
from .medians import median

LOSSES = ("loss", "global_loss")
LEVEL_POINTS = 8
"""Training losses before an evaluation whose median is the level it is held against."""
MAX_STREAMS = 64
"""Evaluation metrics watched; a run with more of them evaluates tasks of which the first tell."""
MAX_CHANGES = 256
"""Changes of the data or of the run remembered: each explains what falls right after it."""
_PREFIXES = ("eval_", "test_", "val_", "valid_", "validation_")
_BETTER_HIGH = ("acc", "accuracy", "f1", "bleu", "auc")
_BETTER_LOW = ("loss", "perplexity", "ppl", "error", "error_rate")
_CHANGES = frozenset({EventKind.DATA_CHANGE, EventKind.RESUME, EventKind.MEMBERSHIP, EventKind.BATCH_SIZE})


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationConfig:
    """When a fall of an evaluation is large enough to be judged."""

    min_fall: float = 0.05
    """Relative fall of the median below which nothing is suspected: evaluations of healthy runs on a few
    hundred samples wander by 2 to 3 %."""
    min_sigmas: float = 4.0
    """The same in robust standard deviations of the points before: it rules out a level that wanders, for
    which points are not exchangeable."""
    confirm_sigmas: float = 6.0
    """The same to confirm."""
    confirm_after: int = 8
    """Points that must all be worse than the 12 to 16 before, at a chance of at most 1 / C(20, 8), one in
    125 970. Suspected from 4 against 8 to 12 on, one in 495 at most."""
    train_rise: float = 0.02
    """Relative rise of the training loss from which on the evaluation only follows it: then the curve of
    the loss is judged, not this."""

    def __post_init__(self) -> None:
        check_bounds(
            self,
            {
                "min_fall": (0.001, 10.0),
                "min_sigmas": (0.0, 100.0),
                "confirm_sigmas": (self.min_sigmas, 100.0),
                "confirm_after": (SUSPECT_AFTER, 64),
                "train_rise": (0.0, 10.0),
            },
        )


def direction_of(metric: str) -> int:
    """1 for an evaluation that is better when higher, -1 when lower, 0 for anything else.

    >>> direction_of("eval_accuracy/mmlu"), direction_of("val_loss"), direction_of("eval_runtime")
    (1, -1, 0)
    """
    base = metric.partition("/")[0]
    prefix = next((one for one in _PREFIXES if base.startswith(one)), None)
    if prefix is None:
        return 0
    what = base.removeprefix(prefix)
    if what in _BETTER_LOW or what.endswith(("_loss", "_perplexity")):
        return -1
    return 1 if what in _BETTER_HIGH or what.endswith(("_acc", "_accuracy", "_f1")) else 0


class Evaluation:
    """Folds each evaluation metric, with the training loss beside it."""

    name: ClassVar[str] = "evaluation"

    def __init__(self, config: EvaluationConfig | None = None) -> None:
        self.config = config or EvaluationConfig()
        self._streams: dict[str, EvaluationStream] = {}
        self._train: list[float] = []
        """The last training losses, medians over ranks."""
        self._changes: list[int] = []

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions."""
        for event in block.events:
            if event.kind in _CHANGES:
                self._changes = [*self._changes, event.iteration][-MAX_CHANGES:]
        watched = {name: number for name, number in block.numbers.items() if direction_of(name)}
        findings: list[Finding] = []
        loss_T, losses = self._losses(block)
        for metric, number in sorted(watched.items()):
            stream = self._stream(metric)
            for t in np.flatnonzero(number.present_TR.any(axis=1)).tolist() if stream else []:
                value = median(number.values_TR[t][number.present_TR[t]])
                upto = int(np.searchsorted(loss_T, t, side="right")) + len(self._train)
                level = median(np.array(losses(max(0, upto - LEVEL_POINTS), upto)))
                if stream is not None and np.isfinite(value):
                    iteration = int(block.iteration_T[t])
                    findings += stream.take(iteration, value, level, self._changes, block.attempt)
        everything = len(self._train) + len(loss_T)
        self._train = losses(max(0, everything - LEVEL_POINTS), everything)
        return findings

    def finish(self) -> list[Finding]:
        """What was seen has been told."""
        return []

    def check(self) -> Check:
        """Ran when one evaluation had points enough for a first test."""
        least = LEAST_BEFORE + SUSPECT_AFTER
        ran = tuple(sorted(name for name, one in self._streams.items() if one.points >= least))
        if ran:
            return Check(name=self.name, state=CheckState.RAN, metrics=ran)
        why = f"no evaluation (eval_accuracy, eval_loss) with {least} points or more"
        return Check(name=self.name, state=CheckState.NOT_RUN, why=why)

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "streams": {name: stream.snapshot() for name, stream in self._streams.items()},
            "train": list(self._train),
            "changes": list(self._changes),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from ``state``."""
        self._train, self._changes = list(state["train"]), list(state["changes"])
        self._streams = {}
        for name, saved in state["streams"].items():
            self._streams[name] = EvaluationStream(name, direction_of(name), self.config)
            self._streams[name].restore(saved)

    def _stream(self, metric: str) -> EvaluationStream | None:
        if metric not in self._streams and len(self._streams) < MAX_STREAMS:
            self._streams[metric] = EvaluationStream(metric, direction_of(metric), self.config)
        return self._streams.get(metric)

    def _losses(self, block: IterationBlock) -> tuple[Any, Any]:
        """Positions of ``block`` with a training loss, and a way to ask for some of all losses so far.

        Medians over ranks are only taken where they are asked for: evaluations are rare.
        """
        number = next((block.numbers[name] for name in LOSSES if name in block.numbers), None)
        if number is None:
            return np.empty(0, np.int64), lambda begin, stop: self._train[begin:stop]
        usable_TR = number.present_TR & np.isfinite(number.values_TR)
        loss_T = np.flatnonzero(usable_TR.any(axis=1))
        old = list(self._train)

        def some(begin: int, stop: int) -> list[float]:
            kept = old[begin:stop]
            for t in loss_T[max(0, begin - len(old)) : max(0, stop - len(old))].tolist():
                kept.append(median(number.values_TR[t][usable_TR[t]]))
            return kept

        return loss_T, some
