"""Replica groups at the checks of one checksum: who holds what most of the group does not, and since when.

Axes: T checks, R ranks (sorted by class), S classes, N shown checks, M members of a class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from detectors.groups import NO_CLASS, FirstCheck, codes_of, equality_classes, learned_classes
from firstfault.mesh import Layout
from firstfault.telemetry import Kind, MetricContract, Relation, contract_of
from ingest.blocks import Flags, Ints, Words

from .history_matrix import Matrix

NEARBY = 6
"""Checks shown on either side of the chosen one: what came before and what became of it."""
ALL_RANKS = 512
"""Ranks up to which every group is sent whole."""
MAX_GROUPS = 48
"""Groups sent at most. With `MAX_MEMBERS` and 13 checks that is 400 kB of cells."""
MAX_MEMBERS = 128
"""Members of one group sent at most, those that differ first."""
MAX_OTHERS = 8
"""Values beside the majority that are told apart in one group at one check; what is left shares the last."""


@dataclass(frozen=True, slots=True)
class Vote:
    """One group at one check: the value of most of its members and the others, each with how many hold it."""

    majority: str | None
    """None where two values have most members, or nobody reported."""
    count: int
    others: Sequence[tuple[str, int]]
    reported: int

    @property
    def is_tie(self) -> bool:
        """Whether no value has most members."""
        return self.majority is None and self.reported > 0

    @property
    def differs(self) -> bool:
        """Whether its members do not all hold one value."""
        return bool(self.others)


@dataclass(frozen=True, slots=True)
class Group:
    """One replica group over the shown checks.

    ``codes_NM``: 0 the majority, k the k-th of the other values, -1 not reported.
    """

    lead: int
    size: int
    votes: Sequence[Vote]
    members: Sequence[int]
    codes_NM: Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChecksumMatrix:
    """The groups around one check."""

    source: str
    """``layout``, ``learned`` from the first two checks that are kept, or ``none``."""
    shown: Sequence[int]
    """Places in ``iteration_T`` of the checks that are shown; empty without any check."""
    chosen: int | None
    iteration_T: Ints
    microbatch_T: NDArray[np.int32]
    differing_T: Ints
    """Groups that differ at each check."""
    groups: Sequence[Group]
    groups_in_all: int
    ranks_in_groups: int
    ranks_alone: int


def is_compared(metric: str) -> bool:
    """Whether ranks are compared in it bit by bit.

    >>> [is_compared(name) for name in ("param_checksum", "canary_loss", "loss", "repeat_checksum/canary")]
    [True, True, False, False]
    """
    contract = contract_of(metric)
    is_canary = metric.partition("/")[0] == "canary_loss"
    return (contract.kind is Kind.CHECKSUM or is_canary) and bool(contract.axes(Relation.EQUAL))


def checksum_matrix(
    matrix: Matrix, contract: MetricContract, layout: Layout | None, at: int | None
) -> ChecksumMatrix:
    """The groups at the check ``at`` (the first from there on), or where the first of them differs."""
    words = _Words.of(matrix)
    some_T: Flags = np.any(words.present_TR, axis=1)
    words = words.rows(some_T)
    iteration_T, microbatch_T = matrix.iteration_T[some_T], matrix.microbatch_T[some_T]
    class_R, source = _classes(words, matrix.ranks_R, iteration_T, contract, layout)
    order, starts = _members(class_R)
    differing_TS = _differing(words.columns(order), starts)
    differing_T: Ints = differing_TS.sum(axis=1)
    chosen = _choose(iteration_T, differing_T, at)
    shown = (
        []
        if chosen is None
        else list(range(max(0, chosen - NEARBY), min(len(iteration_T), chosen + NEARBY + 1)))
    )
    members = np.split(order, starts[1:]) if len(starts) else []
    votable = words.rows(np.array(shown, np.int64))
    wanted = _wanted(differing_TS, votable.present_TR, members, shown, chosen)
    return ChecksumMatrix(
        source=source,
        shown=shown,
        chosen=chosen,
        iteration_T=iteration_T,
        microbatch_T=microbatch_T,
        differing_T=differing_T,
        groups=[_group(votable.columns(members[place]), matrix.ranks_R[members[place]]) for place in wanted],
        groups_in_all=len(members),
        ranks_in_groups=len(order),
        ranks_alone=len(class_R) - len(order),
    )


def odd_ranks(
    matrix: Matrix, contract: MetricContract, layout: Layout | None, at: int
) -> tuple[Flags, Flags]:
    """At a position of a matrix: which ranks differ from most of their group, and which are in a tie."""
    words = _Words.of(matrix)
    class_R, _ = _classes(words, matrix.ranks_R, matrix.iteration_T, contract, layout)
    order, starts = _members(class_R)
    odd_R, tie_R = (np.zeros(len(class_R), np.bool_) for _ in range(2))
    here = words.rows(np.array([at])).columns(order)
    differing_S = _differing(here, starts)[0]
    for place, members in enumerate(np.split(np.arange(len(order)), starts[1:]) if len(starts) else []):
        if differing_S[place]:
            vote, code_M = _vote(here.columns(members), 0)
            (tie_R if vote.is_tie else odd_R)[order[members[code_M > 0]]] = True
    return odd_R, tie_R


@dataclass(frozen=True, slots=True)
class _Words:
    """128 bits of each cell, and whether it was reported."""

    high_TR: Words
    low_TR: Words
    present_TR: Flags
    are_numbers: bool

    @classmethod
    def of(cls, matrix: Matrix) -> _Words:
        """Those of a matrix; a number counts by its bits."""
        if matrix.values_TR is not None:
            bits_TR = np.ascontiguousarray(matrix.values_TR, np.float64).view(np.uint64)
            return cls(np.zeros_like(bits_TR), bits_TR, matrix.present_TR, True)
        assert matrix.high_TR is not None, "a metric is a number or a checksum"
        assert matrix.low_TR is not None, "a metric is a number or a checksum"
        return cls(matrix.high_TR, matrix.low_TR, matrix.present_TR, False)

    def rows(self, rows: Flags | Ints) -> _Words:
        return _Words(self.high_TR[rows], self.low_TR[rows], self.present_TR[rows], self.are_numbers)

    def columns(self, columns: Ints) -> _Words:
        return _Words(
            self.high_TR[:, columns], self.low_TR[:, columns], self.present_TR[:, columns], self.are_numbers
        )

    def text(self, high: int, low: int) -> str:
        """A value as text: hexadecimal digits, or the number that has these bits."""
        return repr(float(np.uint64(low).view(np.float64))) if self.are_numbers else f"{high << 64 | low:x}"


def _classes(
    words: _Words,
    ranks_R: NDArray[np.int32],
    iteration_T: Ints,
    contract: MetricContract,
    layout: Layout | None,
) -> tuple[Ints, str]:
    known_R = equality_classes(contract, ranks_R, layout)
    if known_R is not None:
        return known_R, "layout"
    class_R = np.full(len(ranks_R), NO_CLASS, np.int64)
    if len(iteration_T) < 2:
        return class_R, "none"
    first, second = (_first_check(words, ranks_R, iteration_T, at) for at in (0, 1))
    learned, _ = learned_classes(first, second)
    class_R[np.searchsorted(ranks_R, first.ranks_R)] = learned
    return class_R, "learned" if (learned != NO_CLASS).any() else "none"


def _first_check(words: _Words, ranks_R: NDArray[np.int32], iteration_T: Ints, at: int) -> FirstCheck:
    here_R = words.present_TR[at]
    ranks = ranks_R[here_R]
    place = int(iteration_T[at])
    return FirstCheck(
        place, ranks, np.zeros(len(ranks), np.int64), words.high_TR[at, here_R], words.low_TR[at, here_R]
    )


def _members(class_R: Ints) -> tuple[Ints, Ints]:
    """Places of the ranks of classes of two and more, class by class, and where each class begins."""
    order = np.argsort(class_R, kind="stable")
    _, start_S, count_S = np.unique(class_R[order], return_index=True, return_counts=True)
    is_group_S = (count_S > 1) & (class_R[order][start_S] != NO_CLASS)
    kept = np.repeat(is_group_S, count_S)
    counts = count_S[is_group_S]
    return order[kept], np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64) if len(
        counts
    ) else counts


def _differing(words: _Words, starts: Ints) -> Flags:
    """Whether the members of each class that reported hold more than one value, check by check."""
    if not len(starts):
        return np.zeros((len(words.low_TR), 0), np.bool_)
    differs = np.zeros((len(words.low_TR), len(starts)), np.bool_)
    for word_TR in (words.high_TR, words.low_TR):
        least = np.where(words.present_TR, word_TR, np.iinfo(np.uint64).max)
        greatest = np.where(words.present_TR, word_TR, 0)
        differs |= np.minimum.reduceat(least, starts, axis=1) < np.maximum.reduceat(greatest, starts, axis=1)
    return differs


def _choose(iteration_T: Ints, differing_T: Ints, at: int | None) -> int | None:
    if not len(iteration_T):
        return None
    if at is not None:
        return min(int(np.searchsorted(iteration_T, at)), len(iteration_T) - 1)
    return int(np.argmax(differing_T > 0)) if differing_T.any() else len(iteration_T) - 1


def _wanted(
    differing_TS: Flags, present_NR: Flags, members: Sequence[Ints], shown: Sequence[int], chosen: int | None
) -> list[int]:
    """The groups to send: all of a small job, else those that differ at the chosen check, then nearby."""
    if chosen is None:
        return []
    if sum(len(one) for one in members) <= ALL_RANKS:
        return list(range(len(members)))[:MAX_GROUPS]
    here, near = differing_TS[chosen], differing_TS[list(shown)].any(axis=0)
    at = list(shown).index(chosen)
    lacking = np.array([not present_NR[at, one].all() for one in members])
    score = 4 * here.astype(int) + 2 * near.astype(int) + lacking.astype(int)
    found = np.flatnonzero(score)
    return [int(place) for place in found[np.argsort(-score[found], kind="stable")][:MAX_GROUPS]]


def _group(words: _Words, ranks_M: NDArray[np.int32]) -> Group:
    votes: list[Vote] = []
    codes_NM = np.full(words.low_TR.shape, -1, np.int64)
    for at in range(len(words.low_TR)):
        vote, codes_NM[at] = _vote(words, at)
        votes.append(vote)
    listed = np.arange(len(ranks_M))
    if len(listed) > MAX_MEMBERS:
        is_odd_M = (codes_NM != 0).any(axis=0)
        listed = np.sort(np.argsort(~is_odd_M, kind="stable")[:MAX_MEMBERS])
        listed = listed[is_odd_M[listed]] if is_odd_M.any() else listed[:1]
    return Group(
        lead=int(ranks_M[0]),
        size=len(ranks_M),
        votes=votes,
        members=ranks_M[listed].tolist(),
        codes_NM=codes_NM[:, listed].tolist(),
    )


def _vote(words: _Words, at: int) -> tuple[Vote, Ints]:
    """The vote of one group at one check, and the code of each member."""
    present_M = words.present_TR[at]
    code_M = np.full(len(present_M), -1, np.int64)
    high, low = words.high_TR[at, present_M], words.low_TR[at, present_M]
    if not len(low):
        return Vote(None, 0, (), 0), code_M
    codes, first, counts = codes_of(low, high)
    order = np.argsort(-counts, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    is_tie = len(order) > 1 and counts[order[0]] == counts[order[1]]
    code_M[present_M] = np.minimum(place[codes] + int(is_tie), MAX_OTHERS)
    texts = [
        (words.text(int(high[first[one]]), int(low[first[one]])), int(counts[one]))
        for one in order[:MAX_OTHERS]
    ]
    if is_tie:
        return Vote(None, 0, texts, len(low)), code_M
    return Vote(*texts[0], texts[1:], len(low)), code_M
