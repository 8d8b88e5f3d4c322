"""Checks of one metric laid out by equality group, and compared: what the vote looks at.

Axes: T positions, R ranks of a block, C columns (ranks with a class, sorted by class), S classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.blocks import ChecksumBlock, Flags, Ints, NumberBlock, Ranks, Words

from .groups import counts_of, segments
from .rank_table import RankTable


@dataclass(frozen=True, slots=True)
class Checks:
    """One metric over T positions: two words per value, equal exactly where the values are."""

    iteration_T: Ints
    microbatch_T: NDArray[np.int32]
    ranks_R: Ranks
    high_TR: Words
    low_TR: Words
    present_TR: Flags
    class_R: Ints


def bits_of(numbers: NumberBlock) -> ChecksumBlock:
    """Finite numbers as words that are equal exactly when the numbers are; others count as absent."""
    bits_TR: Words = (numbers.values_TR + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
    return ChecksumBlock(np.zeros_like(bits_TR), bits_TR, numbers.present_TR & np.isfinite(numbers.values_TR))


@dataclass(frozen=True, slots=True)
class Frame:
    """The checks with their columns sorted by class."""

    checks: Checks
    columns_C: Ints
    starts_S: Ints
    ordinal_C: Ints
    class_C: Ints
    ranks_C: Ranks
    at_C: Ints
    high_TC: Words
    low_TC: Words
    present_TC: Flags

    @classmethod
    def of(cls, checks: Checks, table: RankTable) -> Frame | None:
        """None where no class has two members, so that nothing can be compared."""
        columns_C, starts_S, ordinal_C = segments(checks.class_R)
        if len(columns_C) < 2 or len(starts_S) == len(columns_C) or not len(checks.iteration_T):
            return None
        at_R = table.rows(checks.ranks_R)
        is_all = np.array_equal(columns_C, np.arange(len(checks.ranks_R)))
        chosen = slice(None) if is_all else columns_C
        return cls(
            checks=checks,
            columns_C=columns_C,
            starts_S=starts_S,
            ordinal_C=ordinal_C,
            class_C=checks.class_R[columns_C],
            ranks_C=checks.ranks_R[columns_C],
            at_C=at_R[columns_C],
            high_TC=checks.high_TR[:, chosen],
            low_TC=checks.low_TR[:, chosen],
            present_TC=checks.present_TR[:, chosen],
        )

    def in_rank_order(self, bad_C: Flags, clean_C: Flags) -> tuple[Ranks, Flags, Flags]:
        """(ranks, bad, clean) of the observed ranks, ascending, as a sight has them."""
        seen = np.flatnonzero(bad_C | clean_C)
        order = seen[np.argsort(self.ranks_C[seen], kind="stable")]
        return self.ranks_C[order], bad_C[order], clean_C[order]

    def text(self, t: int, column: int) -> str:
        """The value in hexadecimal, as trainers print checksums."""
        return f"{int(self.high_TC[t, column]) << 64 | int(self.low_TC[t, column]):016x}"


@dataclass(frozen=True, slots=True)
class View:
    """A window of positions, compared with the first member of each class that is not odd."""

    is_changed_T: Flags
    is_different_TC: Flags
    is_back_TC: Flags
    is_still_odd_TC: Flags
    is_clean_TC: Flags

    @classmethod
    def of(cls, frame: Frame, start: int, stop: int, odd_C: Flags) -> View:
        present_TC = frame.present_TC[start:stop]
        high_TC, low_TC = frame.high_TC[start:stop], frame.low_TC[start:stop]
        votes_TC = present_TC & ~odd_C if odd_C.any() else present_TC
        first_TS, exists_TS = _first_of_class(votes_TC, frame.starts_S)
        equal_TC = np.take_along_axis(high_TC, first_TS, axis=1)[:, frame.ordinal_C] == high_TC
        equal_TC &= np.take_along_axis(low_TC, first_TS, axis=1)[:, frame.ordinal_C] == low_TC
        different_TC = votes_TC & ~equal_TC
        enough_TC = (counts_of(votes_TC, frame.starts_S) >= 2)[:, frame.ordinal_C]
        if odd_C.any():
            seen_TC = present_TC & odd_C & exists_TS[:, frame.ordinal_C]
            back_TC, still_TC = seen_TC & equal_TC, seen_TC & ~equal_TC
        else:
            back_TC = still_TC = np.zeros_like(votes_TC)
        return cls(
            is_changed_T=different_TC.any(axis=1) | back_TC.any(axis=1),
            is_different_TC=different_TC,
            is_back_TC=back_TC,
            is_still_odd_TC=still_TC,
            is_clean_TC=votes_TC & enough_TC & equal_TC,
        )


def _first_of_class(votes_TC: Flags, starts_S: Ints) -> tuple[Ints, Flags]:
    """Column of the first present member of each class, and whether there is one, T × S."""
    if len(starts_S) == 1:
        return np.argmax(votes_TC, axis=1, keepdims=True), np.any(votes_TC, axis=1, keepdims=True)
    width = votes_TC.shape[1]
    candidate_TC = np.where(votes_TC, np.arange(width), width)
    first_TS = np.minimum.reduceat(candidate_TC, starts_S, axis=1)
    return np.minimum(first_TS, width - 1), first_TS < width
