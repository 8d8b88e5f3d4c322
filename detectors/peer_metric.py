"""One metric under the eyes of the peer fold: its ranks as columns, its groups as segments of them.

Axes: K positions at which somebody reported the metric, R ranks of a block, C columns (ranks known so far),
S groups.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ingest.blocks import Floats, Ints, IterationBlock, NumberBlock, Ranks
from ingest.columns import union

from . import peer_fold as fold
from . import peer_levels as at
from . import peer_rows as on_rows
from .base import State
from .groups import NO_CLASS, segments
from .kernels import Array
from .peer_gates import Gates
from .peer_tails import MODELS, tail_table

FEWEST_OTHERS = 2
"""Other ranks whose levels must be known for them to tell how far levels wander."""
UNKNOWN_WANDER = 0.45
"""What levels may wander for all that one span of 64 points tells, in standard deviations; of n spans a root
of n less. So 0.9 of them are confirmed from about 300 points on, and what is smaller later: ranks that read
data of unlike difficulty start alike and part as the job learns."""
LEAVING_OUT = 3  # Other ranks from which on the worst are left out: of fewer each counts.
_STREAMS, _GROUPS = "streams", "groups"


@dataclass(frozen=True, slots=True)
class Report:
    """What the fold says of one rank at one row."""

    code: int
    rank: int
    iteration: int


class PeerMetric:
    """Folds the values of one metric into scores and reports; grows as ranks come to be known."""

    def __init__(self, knobs: Floats) -> None:
        self.knobs = knobs
        self.ranks_C: Ranks = np.empty(0, np.int32)
        self.class_C: Ints = np.empty(0, np.int64)
        self.has_reported_C = np.empty(0, np.bool_)
        self.is_reset_due = False
        self.first_iteration = -1
        self.ints = np.zeros(on_rows.INTS, np.int64)
        self.ints[on_rows.ROW] = 1  # so that no row follows the row 0 of a fresh stream
        self.row_ring = np.zeros(on_rows.RING, np.int64)
        self.streams_CF: Floats = np.zeros((0, at.STREAM))
        self.ring_CN: Floats = np.zeros((0, on_rows.RING))
        self.groups: dict[int, Floats] = {}
        self._cut: tuple[Ints, Ints, Sequence[int]] | None = None

    def meet(self, ranks_R: Ranks, class_R: Ints) -> Ints:
        """The column of each rank of a block; ranks not known yet get one. A new class is a new group."""
        if not np.array_equal(ranks_R, self.ranks_C):
            self._grow(union(self.ranks_C, ranks_R))
        column_R = np.searchsorted(self.ranks_C, ranks_R)
        if not np.array_equal(self.class_C[column_R], class_R):
            self.class_C[column_R] = class_R
            self._cut = None
        return column_R

    def first_reports(self, numbers: NumberBlock, column_R: Ints) -> Ints:
        """Row of the block at which each column that never reported before does so first."""
        new_R = np.flatnonzero(~self.has_reported_C[column_R])
        if not len(new_R):
            return np.empty(0, np.int64)
        present_TN = numbers.present_TR[:, new_R]
        is_there = present_TN.any(axis=0)
        self.has_reported_C[column_R[new_R[is_there]]] = True
        return np.asarray(present_TN.argmax(axis=0)[is_there])

    def counts(self, numbers: NumberBlock, column_R: Ints) -> Ints:
        """How many columns have reported by each position of the block."""
        before = int(self.has_reported_C.sum())
        new_T = np.zeros(len(numbers.present_TR), np.int64)
        np.add.at(new_T, self.first_reports(numbers, column_R), 1)
        return before + np.cumsum(new_T)

    def fold(
        self,
        block: IterationBlock,
        numbers: NumberBlock,
        column_R: Ints,
        *,
        gates: Gates,
        marked_T: Ints,
        on_report: Callable[[Report], None] | None = None,
    ) -> tuple[Ints, Floats]:
        """Fold a block: (index of each row with values, score of each column at it, NaN where none).

        ``gates`` are those at each position, ``marked_T`` is positive where what the ranks have in common
        changes, so that their offsets must be learned anew.
        """
        at_K = np.flatnonzero(numbers.present_TR.any(axis=1))
        reset_K = self._resets(at_K, marked_T)
        if not len(at_K):
            return at_K, np.empty((0, len(self.ranks_C)))
        iteration_K = np.ascontiguousarray(block.iteration_T[at_K])
        if self.first_iteration < 0:
            self.first_iteration = int(iteration_K[0])
        if len(self.ranks_C) == 1:
            self._pass_over(iteration_K)
            return at_K, np.full((len(at_K), 1), np.nan)
        value_KC = np.full((len(at_K), len(self.ranks_C)), np.nan)
        value_KC[:, column_R] = logarithms(numbers, at_K)
        gate_K = (gates.fast_T[at_K], gates.slow_T[at_K], gates.step_T[at_K])
        return at_K, self._run(value_KC, iteration_K, (*gate_K, reset_K), on_report)

    def _run(
        self,
        value_KC: Floats,
        iteration_K: Ints,
        rules_K: Sequence[Array],
        on_report: Callable[[Report], None] | None,
    ) -> Floats:
        """The scores of rows of values; ``rules_K`` are their gates, and whether offsets are learned anew."""
        order, start_S, labels = self._segments()
        groups_SF = np.array([self._group(label) for label in labels]).reshape(-1, at.GROUP)
        given_V = np.full(value_KC.size, np.nan)
        self.ints[on_rows.WIDTH], self.ints[on_rows.SEGMENTS] = len(self.ranks_C), len(labels)
        reports = np.zeros(4 * (len(self.ranks_C) + len(labels)) + 4, np.int64)
        state: list[Array] = [
            self.ints, self.streams_CF.reshape(-1), groups_SF.reshape(-1), self.ring_CN.reshape(-1),
            self.row_ring, np.zeros(len(self.ranks_C) + 1), np.zeros(3), reports, given_V, order, start_S,
            self.knobs, tail_table(), np.zeros(MODELS),
        ]  # fmt: skip

        def on_stop(_: int) -> None:
            pairs = reports[: 2 * int(self.ints[on_rows.REPORTS])].reshape(-1, 2)
            iteration = int(iteration_K[int(self.ints[on_rows.CURSOR]) - 1])
            for code, column in pairs.tolist():
                if on_report is not None:
                    on_report(Report(code, int(self.ranks_C[column]), iteration))

        # Views: while the fold runs, what a report is about can be looked up.
        self.groups.update(zip(labels, groups_SF, strict=True))
        fold.FOLD.run((value_KC.reshape(-1), iteration_K, *rules_K), state, on_stop)
        return given_V.reshape(value_KC.shape)

    def stream(self, rank: int) -> Floats:
        """The floats of the stream of ``rank``; the indices are those of `peer_levels`."""
        return np.asarray(self.streams_CF[int(np.searchsorted(self.ranks_C, rank))])

    def group(self, rank: int) -> Floats:
        """The floats of the group of ``rank``."""
        return self._group(int(self.class_C[int(np.searchsorted(self.ranks_C, rank))]))

    def members(self, rank: int) -> Ranks:
        """The ranks of the group of ``rank`` that ever reported, ascending."""
        own = self.class_C[int(np.searchsorted(self.ranks_C, rank))]
        return np.asarray(self.ranks_C[(self.class_C == own) & self.has_reported_C])

    def wander(self, rank: int) -> float:
        """By how many sigmas the levels of other ranks wander by themselves, root mean square.

        One in eight of them, the worst, is left out: it may be at fault. Of a pair each is the other's
        mirror image, so there those of other groups count, or the rank's own past.
        """
        is_known_C = self.streams_CF[:, at.SPANS] > 0
        own_C = self.ranks_C == rank
        members = self.members(rank)
        other_C = is_known_C & ~(np.isin(self.ranks_C, members) if len(members) <= FEWEST_OTHERS else own_C)
        used_C = other_C if other_C.sum() >= FEWEST_OTHERS else is_known_C & own_C
        excess_N = np.sort(self.streams_CF[used_C, at.WANDER])
        if not len(excess_N):
            return UNKNOWN_WANDER
        if len(excess_N) > LEAVING_OUT:
            excess_N = excess_N[: -max(1, len(excess_N) // 8)]
        spans = float(self.streams_CF[used_C, at.SPANS].mean())
        return math.sqrt(max(0.0, float(excess_N.mean())) + UNKNOWN_WANDER**2 / spans)

    def recent(self, rank: int) -> tuple[Floats, Ints]:
        """The last scores of ``rank`` with their iterations, oldest first."""
        scores_N = self.ring_CN[int(np.searchsorted(self.ranks_C, rank))]
        row = int(self.ints[on_rows.ROW])
        at_N = np.arange(max(2, row - on_rows.RING + 1), row + 1) % on_rows.RING
        known_N = at_N[~np.isnan(scores_N[at_N])]
        return scores_N[known_N], self.row_ring[known_N]

    @property
    def has_judged(self) -> bool:
        """Whether any group has two ranks and all it takes to judge them."""
        return any(
            bool(group[at.ROWS] >= fold.WARM_ROWS and group[at.VARIANCE] > 0.0)
            for group in self.groups.values()
        )

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "ranks": self.ranks_C.copy(),
            "classes": self.class_C.copy(),
            "has_reported": self.has_reported_C.copy(),
            "is_reset_due": self.is_reset_due,
            "first_iteration": self.first_iteration,
            "ints": self.ints.copy(),
            "row_ring": self.row_ring.copy(),
            _STREAMS: self.streams_CF.copy(),
            "ring": self.ring_CN.copy(),
            _GROUPS: {str(label): group.copy() for label, group in self.groups.items()},
        }

    def restore(self, state: State) -> None:
        """Continue from what `snapshot` gave."""
        self.ranks_C = np.array(state["ranks"], np.int32)
        self.class_C = np.array(state["classes"], np.int64)
        self._cut = None
        self.has_reported_C = np.array(state["has_reported"], np.bool_)
        self.is_reset_due, self.first_iteration = state["is_reset_due"], state["first_iteration"]
        self.ints = np.array(state["ints"], np.int64)
        self.row_ring = np.array(state["row_ring"], np.int64)
        self.streams_CF = np.array(state[_STREAMS], np.float64).reshape(-1, at.STREAM)
        self.ring_CN = np.array(state["ring"], np.float64).reshape(-1, on_rows.RING)
        self.groups = {int(label): np.array(group) for label, group in state[_GROUPS].items()}

    def miss(self, marked_T: Ints) -> None:
        """A block without this metric, in which what the ranks have in common may change."""
        self.is_reset_due = self.is_reset_due or bool((marked_T > 0).any())

    def _resets(self, at_K: Ints, marked_T: Ints) -> Ints:
        """Whether a change came at each row with values, or since the row before it."""
        if not self.is_reset_due and not marked_T.any():
            return np.zeros(len(at_K), np.int64)
        counted_T = np.concatenate(([0], np.cumsum(marked_T > 0)))
        until_K = counted_T[at_K + 1]
        before_K = np.concatenate(([0], until_K[:-1])) if len(at_K) else until_K
        reset_K = (until_K > before_K).astype(np.int64)
        if len(at_K):
            reset_K[0] |= int(self.is_reset_due)
            self.is_reset_due = False
        after = counted_T[-1] - (until_K[-1] if len(at_K) else 0)
        self.is_reset_due = self.is_reset_due or bool(after)
        return reset_K

    def _pass_over(self, iteration_K: Ints) -> None:
        """What the fold does to rows of a single column, which has no peers: it counts them."""
        for label in self._segments()[2]:
            self._group(label)
        first = int(self.ints[on_rows.ROW]) + 1
        self.ints[on_rows.ROW] += len(iteration_K)
        kept_K = np.arange(max(len(iteration_K) - on_rows.RING, 0), len(iteration_K))
        place_K = (first + kept_K) % on_rows.RING
        self.row_ring[place_K] = iteration_K[kept_K]
        self.ring_CN[0, place_K] = math.nan
        self.streams_CF[0, at.SEEN] = 0.0

    def _segments(self) -> tuple[Ints, Ints, Sequence[int]]:
        if self._cut is None:
            order, start_S, _ = segments(self.class_C)
            labels = self.class_C[order[start_S]].tolist() if len(order) else []
            self._cut = (
                order.astype(np.int64), np.append(start_S, len(order)).astype(np.int64), labels
            )  # fmt: skip
        return self._cut

    def _group(self, label: int) -> Floats:
        return self.groups.setdefault(label, np.zeros(at.GROUP))

    def _grow(self, all_C: Ranks) -> None:
        old_C = np.searchsorted(all_C, self.ranks_C)

        def grown(array: Any, empty: Any) -> Any:
            wide = np.full((len(all_C), *array.shape[1:]), empty, array.dtype)
            wide[old_C] = array
            return wide

        self.streams_CF = grown(self.streams_CF, 0.0)
        fresh_C = np.ones(len(all_C), np.bool_)
        fresh_C[old_C] = False
        self.streams_CF[fresh_C, at.FACTOR] = 1.0
        self.ring_CN = grown(self.ring_CN, np.nan)
        self.class_C = grown(self.class_C, NO_CLASS)
        self.has_reported_C = grown(self.has_reported_C, False)
        self.ranks_C = all_C
        self._cut = None


def logarithms(numbers: NumberBlock, at_K: Ints) -> Floats:
    """K × R: logarithm of what was reported, infinity for what is not finite, NaN for what has none.

    A norm of 0 was not computed, and a loss that changes its sign has no relative noise.
    """
    values_KR, present_KR = numbers.values_TR[at_K], numbers.present_TR[at_K]
    is_finite_KR = np.isfinite(values_KR)
    usable_KR = present_KR & is_finite_KR & (values_KR > 0)
    log_KR = np.log(np.where(usable_KR, values_KR, 1.0))
    return np.where(usable_KR, log_KR, np.where(present_KR & ~is_finite_KR, np.inf, np.nan))
