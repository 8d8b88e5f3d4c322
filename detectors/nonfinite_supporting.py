"""Non-finite values of metrics that nobody declared: they support an incident and never open one.

Axes: T positions, R ranks.
"""

from __future__ import annotations

import re

import numpy as np

from firstfault.telemetry import UNNAMED_RANK, Kind, MetricContract
from ingest.blocks import Flags, IterationBlock, NumberBlock

from .base import State
from .evidence import Certainty, Direction, Evidence, Finding, Pattern, Sight

MAX_METRICS = 1024
"""Metrics that are followed."""
MAX_TOLD = 32
"""Metrics that are told of: beyond that they say the same thing."""
_CONTEXT = frozenset({"lr", "loss_scale"})
_TELLING = re.compile(
    r"(?:^|[^a-z])(?:\w*loss(?:es)?|rewards?|returns?|ep_?rew(?:_?mean)?|perplexity|ppl|nll|elbo)(?:$|[^a-z])",
    re.IGNORECASE,
)
"""Names of what training is about, where no loss is named so: a log of rewards is judged by them."""


class SupportingNonfinite:
    """Tells, once per metric, when it turned NaN or +Inf after it had been finite.

    A metric that is NaN from its first value on is switched off, not broken; -Inf is what masks are
    made of.
    """

    def __init__(self) -> None:
        self._is_settled: dict[str, bool] = {}
        """False: only clean so far. True: told, or never clean."""
        self._last_clean: dict[str, int] = {}
        self._told = 0

    def update(self, block: IterationBlock, detector: str) -> list[Finding]:
        """Take the next settled positions; the evidence is told in the name of ``detector``."""
        findings: list[Finding] = []
        for metric, numbers in sorted(block.numbers.items()):
            if self._is_settled.get(metric, False) or not _is_supporting(block.contracts.of(metric)):
                continue
            if metric not in self._is_settled and len(self._is_settled) >= MAX_METRICS:
                continue
            finding = self._look(block, metric, numbers, detector)
            if finding is not None and self._told < MAX_TOLD:
                self._told += 1
                findings.append(finding)
        return findings

    @property
    def telling(self) -> tuple[str, ...]:
        """The metrics that training is about and that are finite so far, in name order."""
        finite = (metric for metric, is_settled in self._is_settled.items() if not is_settled)
        return tuple(sorted(metric for metric in finite if _TELLING.search(metric)))

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {"settled": dict(self._is_settled), "last_clean": dict(self._last_clean), "told": self._told}

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._is_settled, self._last_clean = dict(state["settled"]), dict(state["last_clean"])
        self._told = state["told"]

    def _look(
        self, block: IterationBlock, metric: str, numbers: NumberBlock, detector: str
    ) -> Evidence | None:
        seen_T: Flags = np.logical_or.reduce(numbers.present_TR, axis=1)
        if not seen_T.any():
            return None
        last_seen = int(np.flatnonzero(seen_T)[-1])
        is_good_TR = np.isfinite(numbers.values_TR)
        if is_good_TR.all():
            self._is_settled[metric] = False
            self._last_clean[metric] = int(block.iteration_T[last_seen])
            return None
        bad_TR: Flags = numbers.present_TR & (np.isnan(numbers.values_TR) | (numbers.values_TR == np.inf))
        rows = np.flatnonzero(bad_TR.any(axis=1))
        before = np.flatnonzero(seen_T[: rows[0]]) if len(rows) else np.flatnonzero(seen_T)
        if len(before):
            self._is_settled[metric] = False
            self._last_clean[metric] = int(block.iteration_T[before[-1]])
        if not len(rows):
            return None
        self._is_settled[metric] = True
        last_clean = self._last_clean.pop(metric, None)
        if last_clean is None:
            return None
        t = int(rows[0])
        seen_R = numbers.present_TR[t]
        sight = Sight(
            metric=metric,
            iteration=int(block.iteration_T[t]),
            microbatch=int(block.microbatch_T[t]),
            ranks_R=block.ranks_R[seen_R],
            bad_R=bad_TR[t, seen_R],
            clean_R=~bad_TR[t, seen_R],
        )
        return _evidence(block.attempt, sight, last_clean, detector)


def _is_supporting(contract: MetricContract) -> bool:
    return contract.kind is Kind.SUPPORTING or contract.name in _CONTEXT


def _evidence(attempt: int, sight: Sight, last_clean: int, detector: str) -> Evidence:
    ranks = [rank for rank in sight.ranks_R[sight.bad_R].tolist() if rank != UNNAMED_RANK]
    return Evidence(
        detector=detector,
        key=f"supporting:{sight.metric}",
        pattern=Pattern.IMMEDIATE_NONFINITE,
        certainty=Certainty.SUSPECTED,
        metric=sight.metric,
        attempt=attempt,
        iteration=sight.iteration,
        first_bad=sight.iteration,
        last_clean=last_clean,
        alarm_iteration=sight.iteration,
        microbatch=sight.microbatch,
        ranks=tuple(ranks),
        statistic=float(max(len(ranks), 1)),
        threshold=0.0,
        direction=Direction.UP,
        supporting=True,
        detail={},
        sights=(sight,),
    )
