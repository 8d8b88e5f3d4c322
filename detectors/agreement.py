"""Numbers that were reduced or broadcast, so that all ranks must report the same, and do not.

Axes: T positions, R ranks.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import ClassVar

from firstfault.telemetry import Kind, MetricContract
from ingest.blocks import IterationBlock

from .agreement_scope import AgreedMetric
from .base import State
from .equality_watch import News
from .evidence import Certainty, Check, CheckState, Direction, Evidence, Finding, Json, Pattern
from .groups import fingerprint
from .roles import is_equality_asked
from .vote import Split

CONFIRMING_CHECKS = 2
"""Positions at which a number must differ. One is enough where it differs by more than rounding does
(`EXACT_SPREAD`)."""
EXACT_SPREAD = 1e-5
"""Relative difference that no rounding makes between numbers which were bit-equal at every position before:
sums of 32-bit floats in another order differ by 1e-6, and logs print seven digits. Coarser numbers, of 16
bits, differ by 4e-3 where they differ at all, and that may be a rounding: they are bit-equal because the
reduction gives every rank the same one."""


class Agreement:
    """Names the ranks whose agreed number (gradient norm, reduced loss) differs from the others'.

    Whether a number is agreed at all, and how exactly, is learned from its first positions: bit-equal,
    equal but for rounding, or each rank's own (then it is left alone). A loss that was bit-equal on
    all ranks counts as reduced; otherwise it must be equal inside tensor-parallel groups, where the
    layout gives them and it was from the start. Learning rate and loss scale only support an incident.
    Non-finite numbers are not compared: `Nonfinite` owns them.
    """

    name: ClassVar[str] = "agreement"

    def __init__(self) -> None:
        self._metrics: dict[str, AgreedMetric] = {}
        self._layout_mark = ""
        self._epoch = 0
        self._has_begun = False

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions."""
        mark = fingerprint(block.layout)
        if mark != self._layout_mark:
            self._metrics, self._layout_mark = {}, mark
            self._epoch += int(self._has_begun)
        self._has_begun = self._has_begun or len(block) > 0
        findings: list[Finding] = []
        for metric, numbers in sorted(block.numbers.items()):
            if is_equality_asked(contract := block.contracts.of(metric)):
                agreed = self._metrics.setdefault(metric, AgreedMetric())
                agreed.feed(contract, block, numbers)
                findings += [
                    self._evidence(block.attempt, contract, agreed, news)
                    for news in agreed.watch.news(partial(_certainty, agreed.tolerance))
                ]
        return findings

    def finish(self) -> list[Finding]:
        """Nothing waits: a metric whose role is undecided has too few positions to be judged."""
        return []

    def check(self) -> Check:
        """Ran when two ranks' agreed numbers were compared."""
        compared = [metric for metric, agreed in self._metrics.items() if agreed.watch.vote.has_compared]
        if compared:
            return Check(name=self.name, state=CheckState.RAN, metrics=tuple(sorted(compared)))
        return Check(
            name=self.name, state=CheckState.NOT_RUN, why=self._why(), metrics=tuple(sorted(self._metrics))
        )

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "metrics": {metric: agreed.snapshot() for metric, agreed in self._metrics.items()},
            "layout_mark": self._layout_mark,
            "epoch": self._epoch,
            "has_begun": self._has_begun,
        }

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._metrics = {metric: AgreedMetric.restored(held) for metric, held in state["metrics"].items()}
        self._layout_mark, self._epoch = state["layout_mark"], state["epoch"]
        self._has_begun = state["has_begun"]

    def _evidence(self, attempt: int, contract: MetricContract, agreed: AgreedMetric, news: News) -> Evidence:
        split = news.split
        detail: dict[str, Json] = {"members": split.members, "tolerance": agreed.tolerance}
        majority, minority = _numbers(split)
        detail["minority"] = minority
        if not agreed.tolerance:
            detail["majority"] = majority
        if split.returned_at is not None:
            detail |= {"equal_again_at": split.returned_at, "times_equal_again": split.returns}
        return Evidence(
            detector=self.name,
            key=f"{contract.name}:{self._epoch}:{news.key}",
            pattern=Pattern.COLLECTIVE_MISMATCH,
            certainty=_certainty(agreed.tolerance, split),
            metric=contract.name,
            attempt=attempt,
            iteration=split.iteration,
            first_bad=split.iteration,
            last_clean=split.last_clean,
            alarm_iteration=split.iteration,
            microbatch=split.microbatch,
            ranks=tuple(split.ranks),
            later_ranks=tuple((iteration, rank) for iteration, rank in split.later_ranks),
            is_tie=split.is_tie,
            statistic=1.0 if split.is_tie else float(len(split.ranks)),
            threshold=0.0,
            direction=Direction.DIFFERS,
            supporting=contract.kind is Kind.CONTEXT,
            phase=contract.declared_phase,
            detail=detail,
            sights=(split.sight(contract),),
        )

    def _why(self) -> str:
        if not self._metrics:
            return "no number was reported that ranks must agree on"
        if not any(agreed.has_two_ranks for agreed in self._metrics.values()):
            return "no two ranks reported the same number at one position"
        if all(agreed.is_decided for agreed in self._metrics.values() if agreed.has_two_ranks):
            return "what should be agreed was different on every rank from the start: it is local"
        return "too few positions to tell whether ranks agree"


def _numbers(split: Split) -> tuple[float, float]:
    """(majority, minority) as the numbers they are the bits of."""
    majority, minority = (
        struct.unpack(">d", bytes.fromhex(text[-16:]))[0] for text in (split.majority, split.minority)
    )
    return float(majority), float(minority)


def _certainty(tolerance: float, split: Split) -> Certainty:
    """Confirmed when it differs by far more than rounding, or again; never where it never agreed.

    With a ``tolerance`` the majority is not one number, and the second position decides.
    """
    if split.last_clean is None:
        return Certainty.SUSPECTED
    majority, minority = _numbers(split)
    is_large = abs(majority - minority) > EXACT_SPREAD * max(abs(majority), abs(minority))
    if (is_large and not tolerance) or split.differing >= CONFIRMING_CHECKS:
        return Certainty.CONFIRMED
    return Certainty.SUSPECTED
