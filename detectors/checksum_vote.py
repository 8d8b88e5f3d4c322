"""Checksums of state that several ranks hold, voted on in each equality group. Axes: T positions, R ranks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import ClassVar

import numpy as np

from firstfault.telemetry import EventKind, Kind, MetricContract, Phase, Relation
from ingest.blocks import ChecksumBlock, Ints, IterationBlock

from .base import State
from .equality_watch import EqualityWatch, News
from .evidence import Certainty, Check, CheckState, Direction, Evidence, Finding, Json, Pattern, Sight
from .groups import equality_classes, fingerprint, layout_classes, needs_device
from .learned_groups import LearnedGroups, rows_of
from .shard_repeats import ShardRepeats
from .single_check import compare_once
from .vote_suspects import BEFORE_REDUCTION, MODEL_GROUP, WIDENED, suspects
from .vote_view import Checks, bits_of

_PATTERNS = {
    "param_checksum": Pattern.REPLICA_DIVERGENCE,
    "optim_checksum": Pattern.REPLICA_DIVERGENCE,
    "canary_checksum": Pattern.COMPUTE_MISMATCH,
    "canary_loss": Pattern.COMPUTE_MISMATCH,
}
"""What is not listed (reduced gradients, input data) was distributed by a collective."""


class ChecksumVote:
    """Names the members of an equality group that differ from most of it, and since which check.

    Groups come from the layout; without one they are learned from the first two checks
    (`learned_groups.py`). Nothing is compared across a change of the layout or the membership.
    State that differs once is confirmed at once: bit-equal replicas cannot differ by noise. What may have
    another reason stays suspected: replicas that never agreed and have no majority, one odd rank beside
    classes that were learned, two members that differ once.
    """

    name: ClassVar[str] = "checksum_vote"

    def __init__(self) -> None:
        self._watches: dict[str, EqualityWatch] = {}
        self._layout_mark, self._has_layout = "", False
        self._epoch, self._has_begun = 0, False
        self._compared: list[str] = []
        self._attempt, self._has_numbers = 0, False
        self._shards = ShardRepeats()

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions."""
        self._attempt, self._has_numbers = block.attempt, self._has_numbers or bool(block.numbers)
        mark = fingerprint(block.layout)
        if mark != self._layout_mark:
            self._reset()
            self._layout_mark, self._has_layout = mark, block.layout is not None
        findings: list[Finding] = []
        for start, stop, is_reset in self._stretches(block):
            if is_reset:
                self._reset()
            self._has_begun = True
            for metric, contract, words in _watched(block):
                findings += self._feed(block, metric, contract, words, start, stop)
        return findings + self._shards.update(block, self.name)

    def finish(self) -> list[Finding]:
        """What was printed once and is all there is; else nothing waits for what comes next."""
        if self._has_numbers:
            return []
        equal, found = compare_once(self._watches, self.name, self._attempt)
        self._compared = sorted({*self._compared, *equal})
        return list(found)

    def check(self) -> Check:
        """Ran when at least two members of one group were compared."""
        if self._compared:
            return Check(name=self.name, state=CheckState.RAN, metrics=tuple(sorted(self._compared)))
        metrics = tuple(sorted(self._watches))
        return Check(name=self.name, state=CheckState.NOT_RUN, why=self._why(), metrics=metrics)

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "watches": {metric: watch.snapshot() for metric, watch in self._watches.items()},
            "layout_mark": self._layout_mark,
            "has_layout": self._has_layout,
            "epoch": self._epoch,
            "has_begun": self._has_begun,
            "compared": list(self._compared),
            "has_numbers": self._has_numbers,
            "attempt": self._attempt,
            "shards": self._shards.snapshot(),
        }

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
        self._watches = {metric: EqualityWatch.restored(held) for metric, held in state["watches"].items()}
        self._layout_mark, self._has_layout = state["layout_mark"], state["has_layout"]
        self._epoch, self._has_begun = state["epoch"], state["has_begun"]
        self._compared = list(state["compared"])
        self._has_numbers, self._attempt = state["has_numbers"], state["attempt"]
        self._shards = ShardRepeats()
        self._shards.restore(state["shards"])

    def _reset(self) -> None:
        self._watches = {}
        self._epoch += int(self._has_begun)

    def _stretches(self, block: IterationBlock) -> Iterator[tuple[int, int, bool]]:
        """(start, stop, whether membership changed at start): rows between changes of who is there."""
        kinds = (
            {EventKind.MEMBERSHIP}
            if block.layout is not None
            else {EventKind.MEMBERSHIP, EventKind.RUN_START}
        )
        changes = {
            int(np.searchsorted(block.iteration_T, e.iteration)) for e in block.events if e.kind in kinds
        }
        edges = sorted({0, len(block)} | {at for at in changes if at < len(block)})
        for start, stop in pairwise(edges):
            yield start, stop, start in changes

    def _feed(
        self, block: IterationBlock, metric: str, contract: MetricContract, words: ChecksumBlock, *span: int
    ) -> list[Finding]:
        start, stop = span
        watch = self._watches.setdefault(metric, EqualityWatch())
        classes = equality_classes(contract, block.ranks_R, block.layout)
        watch.reporters = max(watch.reporters, int(words.present_TR[start:stop].any(axis=0).sum()))
        if classes is None:
            given = _asked(contract, block)
            watch.groups = watch.groups or LearnedGroups()
        else:
            given = classes
        checks = Checks(
            block.iteration_T,
            block.microbatch_T,
            block.ranks_R,
            words.high_TR,
            words.low_TR,
            words.present_TR,
            given,
        )
        watch.feed(rows_of(checks, start, stop), may_meet=contract.phase is Phase.STATE)
        if watch.vote.has_compared and metric not in self._compared:
            self._compared.append(metric)
        return [
            self._evidence(block, contract, watch, news) for news in watch.news(watch.certainty)
        ] + self._odd_since_start(block, contract, watch)

    def _evidence(
        self,
        block: IterationBlock,
        contract: MetricContract,
        watch: EqualityWatch,
        news: News,
    ) -> Evidence:
        split = news.split
        ranks, is_tie = suspects(block.layout, contract, split)
        return Evidence(
            detector=self.name,
            key=f"{contract.name}:{self._epoch}:{news.key}",
            pattern=_pattern(contract),
            certainty=Certainty.SUSPECTED if news.is_withdrawn else watch.certainty(split),
            supporting=news.is_withdrawn,
            metric=contract.name,
            attempt=block.attempt,
            iteration=split.iteration,
            first_bad=split.iteration,
            last_clean=split.last_clean,
            alarm_iteration=split.iteration,
            microbatch=split.microbatch,
            ranks=ranks,
            later_ranks=tuple((iteration, rank) for iteration, rank in split.later_ranks),
            is_tie=is_tie,
            statistic=1.0 if split.is_tie else float(len(split.ranks)),
            threshold=0.0,
            direction=Direction.DIFFERS,
            phase=contract.declared_phase,
            detail=_detail(block.attempt, contract, watch, news, is_widened=len(ranks) > len(split.ranks)),
            sights=(split.sight(contract),),
        )

    def _odd_since_start(
        self, block: IterationBlock, contract: MetricContract, watch: EqualityWatch
    ) -> list[Finding]:
        """The one rank that was never equal to the classes that were learned beside it."""
        groups = watch.groups
        if groups is None or groups.odd_rank is None or groups.first is None or watch.told_odd:
            return []
        watch.told_odd = True
        first, odd = groups.first, groups.odd_rank
        bad_R = first.ranks_R == odd
        sight = Sight(
            metric=contract.name,
            iteration=int(first.iteration_T[0]),
            microbatch=int(first.microbatch_T[0]),
            ranks_R=first.ranks_R,
            bad_R=bad_R,
            clean_R=~bad_R,
            phase=contract.declared_phase,
        )
        return [
            Evidence(
                detector=self.name,
                key=f"{contract.name}:{self._epoch}:start",
                pattern=_pattern(contract),
                certainty=Certainty.SUSPECTED,
                metric=contract.name,
                attempt=block.attempt,
                iteration=sight.iteration,
                first_bad=sight.iteration,
                last_clean=None,
                alarm_iteration=sight.iteration,
                microbatch=sight.microbatch,
                ranks=(odd,),
                statistic=1.0,
                threshold=0.0,
                direction=Direction.DIFFERS,
                phase=contract.declared_phase,
                detail={"groups": "learned", "note": "equal to no other rank since the first check"},
                sights=(sight,),
            )
        ]

    def _why(self) -> str:
        if not self._watches:
            return "no checksum of replicated state was reported"
        if max(watch.reporters for watch in self._watches.values()) < 2:
            return "checksums come from one rank only"
        if self._has_layout and not any(watch.groups for watch in self._watches.values()):
            return "the layout leaves no two ranks that must be equal"
        if all(watch.groups is not None and watch.groups.is_decided for watch in self._watches.values()):
            return "no layout, and all ranks differed in the first two checks: no groups"
        return "no layout, and fewer than two checks to learn groups from"


def _watched(block: IterationBlock) -> Iterator[tuple[str, MetricContract, ChecksumBlock]]:
    """Metrics that must be bit-equal somewhere: checksums, and curves without noise (the canary's loss)."""
    for metric, checksums in sorted(block.checksums.items()):
        contract = block.contracts.of(metric)
        if contract.kind is Kind.CHECKSUM and contract.axes(Relation.EQUAL):
            yield metric, contract, checksums
    for metric, numbers in sorted(block.numbers.items()):
        contract = block.contracts.of(metric)
        if contract.kind is Kind.CURVE and "dp" in contract.axes(Relation.EQUAL):
            yield metric, contract, bits_of(numbers)


def _detail(
    attempt: int, contract: MetricContract, watch: EqualityWatch, news: News, *, is_widened: bool
) -> dict[str, Json]:
    split = news.split
    detail: dict[str, Json] = {
        "majority": split.majority,
        "minority": split.minority,
        "group": split.group,
        "members": split.members,
        "groups": "learned" if watch.groups is not None else "layout",
    }
    if split.last_clean is None:
        detail["note"] = _never_agreed(attempt)
    if is_widened:
        detail[WIDENED] = MODEL_GROUP if needs_device(contract) else BEFORE_REDUCTION
    if news.is_withdrawn:
        detail["note"] = f"all are equal every {watch.outer.period} iterations: outer steps, no fault"
    if split.returned_at is not None:
        detail |= {"equal_again_at": split.returned_at, "times_equal_again": split.returns}
    return detail


def _pattern(contract: MetricContract) -> Pattern:
    """What a difference means: by name, or by where a run declares the checksum to be taken."""
    match contract.declared_phase:
        case None:
            return _PATTERNS.get(contract.name.partition("/")[0], Pattern.COLLECTIVE_MISMATCH)
        case Phase.STATE | Phase.OPTIMIZER:
            return Pattern.REPLICA_DIVERGENCE
        case Phase.FORWARD | Phase.BACKWARD:
            return Pattern.COMPUTE_MISMATCH
        case _:
            return Pattern.COLLECTIVE_MISMATCH


def _asked(contract: MetricContract, block: IterationBlock) -> Ints:
    """Within which ranks equality may be learned: all, or the layout's groups where devices are unknown."""
    if block.layout is not None and needs_device(contract):
        return layout_classes(contract, block.ranks_R, block.layout)
    return np.zeros(len(block.ranks_R), np.int64)


def _never_agreed(attempt: int) -> str:
    if attempt > 0:
        return f"differs since the first check of attempt {attempt}: the majority may be the corrupted side"
    return "differs since the first check: these ranks were never seen equal"
