"""Which reductions of a block are complete, and which ranks take part in them.

Axes: T positions, R ranks of a block, N members of a group.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ingest.blocks import Flags, Floats, Ints, IterationBlock, NumberBlock, Ranks

MAX_MAGNITUDE = 1e150
"""Greatest sketch that is checked: of no gradient of 32 bits is it 1e50, and sums of such cannot overflow."""


@dataclass(frozen=True, slots=True, eq=False)
class Reductions:
    """What went into the reductions of one bucket, and what came out."""

    metric: str
    """That of what came out."""
    ranks_R: Ranks
    in_TR: Floats
    out_TR: Floats
    ready_TR: Flags
    """Both reported, both finite and of a size that sums hold, at a step that was not skipped."""
    seen_TR: Flags
    """Either reported."""

    @classmethod
    def of(cls, block: IterationBlock, source: str, metric: str) -> Reductions:
        """The reductions from ``source`` to ``metric``, either of which may be absent."""
        nothing = NumberBlock(
            np.full((len(block), len(block.ranks_R)), np.nan),
            np.zeros((len(block), len(block.ranks_R)), np.bool_),
        )
        into, out = block.numbers.get(source, nothing), block.numbers.get(metric, nothing)
        both_TR = into.present_TR & out.present_TR
        finite_TR = _is_usable(into.values_TR) & _is_usable(out.values_TR)
        return cls(
            metric=metric,
            ranks_R=block.ranks_R,
            in_TR=into.values_TR,
            out_TR=out.values_TR,
            ready_TR=both_TR & finite_TR & ~_skipped(block)[:, None],
            seen_TR=into.present_TR | out.present_TR,
        )

    def complete(
        self, members_N: Ranks, start: int, stop: int
    ) -> Iterator[tuple[int, list[float], list[float]]]:
        """Rows in a range in which no member is missing, with what each member gave and got."""
        at_N = columns_of(members_N, self.ranks_R)
        if at_N is None:
            return
        for t in (start + np.flatnonzero(self.ready_TR[start:stop][:, at_N].all(axis=1))).tolist():
            yield t, self.in_TR[t, at_N].tolist(), self.out_TR[t, at_N].tolist()


def columns_of(members_N: Ranks, ranks_R: Ranks) -> Ints | None:
    """The column of each member; None where one of them never reported anything."""
    at_N = np.searchsorted(ranks_R, members_N)
    is_there = len(ranks_R) > 0 and np.array_equal(ranks_R[np.minimum(at_N, len(ranks_R) - 1)], members_N)
    return at_N if is_there else None


def memberships(
    known_N: Ranks, ranks_R: Ranks, reductions: Reductions, start: int, stop: int
) -> Iterator[tuple[int, int, Ranks]]:
    """Stretches of rows with all ranks that reported up to them: a group without a layout only grows."""
    seen_TR = reductions.seen_TR[start:stop]
    first_R = np.where(seen_TR.any(axis=0), np.argmax(seen_TR, axis=0), len(seen_TR))
    first_R[np.isin(ranks_R, known_N)] = 0
    edges = [0, *sorted({int(at) for at in first_R if 0 < at < len(seen_TR)}), len(seen_TR)]
    for low, high in itertools.pairwise(edges):
        members_N = np.union1d(known_N, ranks_R[first_R <= low]).astype(np.int32)
        if high > low and len(members_N):
            yield start + low, start + high, members_N


def uneven(block: IterationBlock, members_N: Ranks) -> Flags:
    """The rows at which members report unlike numbers of tokens."""
    tokens, at_N = block.numbers.get("tokens"), columns_of(members_N, block.ranks_R)
    if tokens is None or at_N is None:
        return np.zeros(len(block), np.bool_)
    present_TN, value_TN = tokens.present_TR[:, at_N], tokens.values_TR[:, at_N]
    least_T = np.where(present_TN, value_TN, np.inf).min(axis=1)
    most_T = np.where(present_TN, value_TN, -np.inf).max(axis=1)
    flags_T: Flags = least_T < most_T
    return flags_T


def agreed_at(block: IterationBlock, metric: str, t: int, members_N: Ranks) -> float:
    """What most members say of an agreed number at a row (the lower median); NaN where nobody does."""
    numbers, at_N = block.numbers.get(metric), columns_of(members_N, block.ranks_R)
    if numbers is None or at_N is None:
        return math.nan
    value_N = numbers.values_TR[t, at_N]
    told = value_N[numbers.present_TR[t, at_N] & np.isfinite(value_N)]
    return statistics.median_low(told.tolist()) if len(told) else math.nan


def _is_usable(values_TR: Floats) -> Flags:
    with np.errstate(invalid="ignore"):  # NaN is not usable either
        usable_TR: Flags = np.abs(values_TR) <= MAX_MAGNITUDE
    return usable_TR


def _skipped(block: IterationBlock) -> Flags:
    """The rows at which any rank skipped its step."""
    skipped = block.numbers.get("skipped")
    if skipped is None:
        return np.zeros(len(block), np.bool_)
    flags_T: Flags = (skipped.present_TR & (skipped.values_TR != 0.0)).any(axis=1)
    return flags_T
