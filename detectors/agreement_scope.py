"""Over which ranks one number is agreed, and how exactly: learned, then voted on.

Axes: T positions, R ranks, C columns (ranks with a class).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from firstfault.telemetry import Kind, MetricContract
from ingest.blocks import ChecksumBlock, Flags, Floats, Ints, IterationBlock, NumberBlock, Ranks

from .base import State
from .equality_watch import EqualityWatch
from .groups import NO_CLASS, layout_classes
from .roles import LEARNED_POSITIONS, Equality, EqualityLearner, informative_rows
from .vote_view import Checks, bits_of


class Scope(StrEnum):
    """Between which ranks a number is compared."""

    UNDECIDED = "undecided"
    ALL = "all"
    GROUPS = "groups"
    """Inside the groups that the layout gives (a loss inside its tensor-parallel group)."""
    NOBODY = "nobody"


@dataclass(slots=True, eq=False)
class _Row:
    """One of the first positions, kept until the scope is decided."""

    iteration: int
    microbatch: int
    ranks: Ranks
    values: Floats
    classes: Ints


class AgreedMetric:
    """Learns the scope of one metric from its first informative positions and votes from there on.

    The first positions are voted on too, once the scope is known.
    """

    def __init__(self) -> None:
        self.watch = EqualityWatch()
        self.scope = Scope.UNDECIDED
        self.tolerance = 0.0
        self._rows: list[_Row] = []

    @property
    def has_two_ranks(self) -> bool:
        """Whether two ranks reported at the same position."""
        return self.is_decided or bool(self._rows)

    @property
    def is_decided(self) -> bool:
        """Whether it is known over which ranks the number is agreed."""
        return self.scope is not Scope.UNDECIDED

    def feed(self, contract: MetricContract, block: IterationBlock, numbers: NumberBlock) -> None:
        """Take the next positions of the metric."""
        start = 0
        if not self.is_decided:
            classes = _classes(contract, block)
            start = self._learn(contract, block, numbers, classes)
        if self.scope in (Scope.ALL, Scope.GROUPS) and start < len(block):
            self._vote(contract, block, numbers, start)

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "watch": self.watch.snapshot(),
            "scope": self.scope.value,
            "tolerance": self.tolerance,
            "rows": [asdict(row) for row in self._rows],
        }

    @classmethod
    def restored(cls, state: State) -> AgreedMetric:
        """The metric that gave ``state``."""
        agreed = cls()
        agreed.watch = EqualityWatch.restored(state["watch"])
        agreed.scope, agreed.tolerance = Scope(state["scope"]), state["tolerance"]
        agreed._rows = [_Row(**held) for held in state["rows"]]
        return agreed

    def _learn(
        self, contract: MetricContract, block: IterationBlock, numbers: NumberBlock, class_R: Ints
    ) -> int:
        """Keep informative positions until there are enough; returns the position to go on from."""
        for t, value_R, usable_R in informative_rows(numbers):
            if (
                contract.kind is Kind.CURVE
                and self._rows
                and _is_same(self._rows[-1].values, value_R[usable_R])
            ):
                continue
            self._rows.append(
                _Row(
                    iteration=int(block.iteration_T[t]),
                    microbatch=int(block.microbatch_T[t]),
                    ranks=block.ranks_R[usable_R],
                    values=value_R[usable_R],
                    classes=class_R[usable_R],
                )
            )
            if len(self._rows) == LEARNED_POSITIONS:
                self._decide(contract)
                for row in self._rows:
                    self._vote_row(row)
                self._rows = []
                return t + 1
        return len(block)

    def _decide(self, contract: MetricContract) -> None:
        whole, inside = EqualityLearner(), EqualityLearner()
        spans_groups = True
        for row in self._rows:
            whole.learn(row.values)
            spans_groups &= len(np.unique(row.classes)) >= 2 or row.classes[0] == NO_CLASS
            parts = [row.values[row.classes == c] for c in np.unique(row.classes[row.classes != NO_CLASS])]
            inside.learn(max((part for part in parts if len(part) >= 2), key=np.ptp, default=np.array([0.0])))
        if contract.kind is not Kind.CURVE:
            self.scope = Scope.NOBODY if whole.outcome is Equality.DIFFERENT else Scope.ALL
            self.tolerance = whole.tolerance
        elif not any(whole.spreads) and spans_groups:
            self.scope = Scope.ALL
        else:
            has_pairs = any(_has_pair(row.classes) for row in self._rows)
            self.scope = Scope.GROUPS if has_pairs and not any(inside.spreads) else Scope.NOBODY

    def _vote_row(self, row: _Row) -> None:
        if self.scope is Scope.NOBODY:
            return
        numbers = NumberBlock(row.values[None, :].copy(), np.ones((1, len(row.values)), bool))
        iteration_T, microbatch_T = np.array([row.iteration]), np.array([row.microbatch], np.int32)
        self._feed(iteration_T, microbatch_T, row.ranks, numbers, row.classes)

    def _vote(
        self, contract: MetricContract, block: IterationBlock, numbers: NumberBlock, start: int
    ) -> None:
        rest = NumberBlock(numbers.values_TR[start:], numbers.present_TR[start:])
        classes = _classes(contract, block)
        self._feed(block.iteration_T[start:], block.microbatch_T[start:], block.ranks_R, rest, classes)

    def _feed(
        self,
        iteration_T: Ints,
        microbatch_T: NDArray[np.int32],
        ranks_R: Ranks,
        numbers: NumberBlock,
        class_R: Ints,
    ) -> None:
        words = bits_of(numbers)
        if self.tolerance:
            words = _snapped(numbers, words, self.tolerance)
        given_R = class_R if self.scope is Scope.GROUPS else np.zeros(len(ranks_R), np.int64)
        self.watch.feed(
            Checks(iteration_T, microbatch_T, ranks_R, words.high_TR, words.low_TR, words.present_TR, given_R)
        )


def _classes(contract: MetricContract, block: IterationBlock) -> Ints:
    """Groups inside which a curve is equal by contract; nobody's without a layout."""
    if contract.kind is not Kind.CURVE or block.layout is None:
        return np.full(len(block.ranks_R), NO_CLASS, np.int64)
    return layout_classes(contract, block.ranks_R, block.layout)


def _is_same(before_R: Floats, value_R: Floats) -> bool:
    """Whether all ranks still report the one number they did: a constant shows nobody to agree."""
    return bool((before_R == before_R[0]).all() and (value_R == before_R[0]).all())


def _has_pair(class_C: Ints) -> bool:
    known = class_C[class_C != NO_CLASS]
    return len(np.unique(known)) < len(known)


def _snapped(numbers: NumberBlock, words: ChecksumBlock, tolerance: float) -> ChecksumBlock:
    """Words in which all values within ``tolerance`` of the (lower) median of their position are 0."""
    usable_TR: Flags = words.present_TR
    ordered_TR = np.sort(np.where(usable_TR, numbers.values_TR, np.inf), axis=1)
    middle_T = np.maximum(usable_TR.sum(axis=1) - 1, 0) // 2
    median_T1 = np.take_along_axis(ordered_TR, middle_T[:, None], axis=1)
    with np.errstate(invalid="ignore"):  # inf - inf where nobody reported
        near_TR = np.abs(numbers.values_TR - median_T1) <= tolerance * np.abs(median_T1)
    return ChecksumBlock(words.high_TR, np.where(near_TR, np.uint64(0), words.low_TR), usable_TR)
