"""When each rank reported anything: what silence is judged from.

Distances are counted in *turns*, the distinct iterations at which anybody reported: a counter of tokens
that advances by millions a step and a log that holds each hundredth iteration are judged alike.

Axes: T positions, R ranks of a block, N known ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from firstfault.telemetry import UNNAMED_RANK
from ingest.blocks import Flags, Floats, Ints, IterationBlock, Ranks
from ingest.columns import union

CADENCE_FACTOR = 4
"""A rank that reports seldom is silent after this many times its own longest gap. Of gaps that come in
any order the next one is longer than all n before with chance 1/(n + 1); four times as long as the
longest is another factor of 64 for a tail that falls with the cube."""
LEAST_REPORTS = 3
"""Reports, two gaps, before which a rank has no cadence that silence could be told from."""
_FAR = np.iinfo(np.int64).max
_COLUMNS = ("turn", "iteration", "reports", "longest", "step")
"""Last turn and iteration (-1: none yet), reports, longest gap in turns, least gap in iterations."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A rank that reported again after a long silence."""

    rank: int
    last_iteration: int
    next_iteration: int
    turns: int
    allowed: int
    """Turns without a word that its own cadence allowed."""
    silence_s: float
    """By record times; NaN where records have none."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far behind each of N ranks is, at the last turn."""

    ranks_N: Ranks
    behind_N: Ints
    """Turns since its last report."""
    allowed_N: Ints
    """Turns that its own cadence allows."""
    reports_N: Ints
    last_iteration_N: Ints
    step_N: Ints
    """Usual distance between two of its reports, in iterations; 1 while unknown."""
    silence_s_N: Floats
    """Newest record time less that of its last report; NaN where records have none."""


@dataclass(frozen=True, slots=True)
class _Turns:
    """The positions of a block at which somebody reported."""

    iteration_T: Ints
    turn_T: Ints
    time_T: Floats


class ReportTable:
    """Per rank the last report, how many there were, and its longest gap. O(1) a value, bounded by ranks."""

    def __init__(self) -> None:
        self.turn = -1
        self.iteration = -1
        self.time_s = np.nan
        self.ranks_N: Ranks = np.empty(0, np.int32)
        self._ints: dict[str, Ints] = {name: np.empty(0, np.int64) for name in _COLUMNS}
        self._time_N: Floats = np.empty(0)

    def update(self, block: IterationBlock, long_gap: int) -> list[Gap]:
        """Take the next positions; the silences of more than ``long_gap`` turns that end in them."""
        seen_TR = any_present(block)
        if seen_TR is None or not seen_TR.any():
            return []
        some_T = seen_TR.any(axis=1)  # a position of labels alone is nobody's turn
        iteration_T = block.iteration_T[some_T]
        turn_T = self.turn + np.cumsum(np.diff(iteration_T, prepend=self.iteration) != 0)
        times_T = block.time_T if len(block.time_T) else np.full(len(block), np.nan)
        turns = _Turns(iteration_T, turn_T, _carried(times_T[some_T], self.time_s))
        rows_R = self._rows(block.ranks_R)
        gaps: list[Gap] = []
        if seen_TR.all() and (self._ints["turn"][rows_R] >= self.turn).all():
            self._all_report(turns, rows_R)
        else:
            gaps = self._some_report(turns, seen_TR[some_T], rows_R, long_gap)
        self.turn, self.iteration = int(turn_T[-1]), int(iteration_T[-1])
        self.time_s = float(turns.time_T[-1])
        return gaps

    def standing(self) -> Standing:
        """Where every named rank stands now."""
        named_N = self.ranks_N != UNNAMED_RANK
        column = {name: values_N[named_N] for name, values_N in self._ints.items()}
        return Standing(
            ranks_N=self.ranks_N[named_N],
            behind_N=self.turn - column["turn"],
            allowed_N=CADENCE_FACTOR * column["longest"],
            reports_N=column["reports"],
            last_iteration_N=column["iteration"],
            step_N=np.maximum(column["step"], 1),
            silence_s_N=self.time_s - self._time_N[named_N],
        )

    def snapshot(self) -> Mapping[str, Any]:
        """The whole state as plain data."""
        return {
            "turn": self.turn,
            "iteration": self.iteration,
            "time_s": self.time_s,
            "ranks": self.ranks_N.copy(),
            "columns": {name: values_N.copy() for name, values_N in self._ints.items()},
            "times": self._time_N.copy(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `snapshot` gave."""
        self.turn, self.iteration, self.time_s = state["turn"], state["iteration"], state["time_s"]
        self.ranks_N = np.array(state["ranks"], np.int32)
        self._ints = {name: np.array(state["columns"][name], np.int64) for name in _COLUMNS}
        self._time_N = np.array(state["times"], np.float64)

    def _all_report(self, turns: _Turns, rows_R: Ints) -> None:
        """The usual case, without a look at single cells: nobody misses a turn."""
        column, turn_T, iteration_T = self._ints, turns.turn_T, turns.iteration_T
        first_R = column["reports"][rows_R] == 0
        moved_R = np.where(first_R, int(turn_T[-1] - turn_T[0]), int(turn_T[-1]) - column["turn"][rows_R])
        steps_T = np.diff(iteration_T)
        inner = int(steps_T[steps_T > 0].min(initial=_FAR))
        edge_R = np.where(first_R, _FAR, iteration_T[0] - column["iteration"][rows_R])
        edge_R[edge_R <= 0] = _FAR
        step_R = np.minimum(np.where(column["step"][rows_R] > 0, column["step"][rows_R], _FAR), inner)
        step_R = np.minimum(step_R, edge_R)
        column["step"][rows_R] = np.where(step_R == _FAR, 0, step_R)
        column["longest"][rows_R] = np.maximum(column["longest"][rows_R], moved_R > 0)
        column["reports"][rows_R] += moved_R + first_R
        column["turn"][rows_R], column["iteration"][rows_R] = turn_T[-1], iteration_T[-1]
        self._time_N[rows_R] = turns.time_T[-1]

    def _some_report(self, turns: _Turns, seen_TR: Flags, rows_R: Ints, long_gap: int) -> list[Gap]:
        """The general case: every report is held against the one before of its rank."""
        column, turn_T, iteration_T, time_T = self._ints, turns.turn_T, turns.iteration_T, turns.time_T
        at_J, t_J = np.nonzero(seen_TR.T)  # rank by rank, ascending in time
        row_J = rows_R[at_J]
        is_first_J = np.diff(at_J, prepend=-1) != 0
        before_J = np.where(is_first_J, column["turn"][row_J], np.roll(turn_T[t_J], 1))
        known_J = ~is_first_J | (column["reports"][row_J] > 0)
        earlier_J = np.where(is_first_J, column["iteration"][row_J], np.roll(iteration_T[t_J], 1))
        gap_J = np.where(known_J, turn_T[t_J] - before_J, 0)
        spoken_J = np.where(is_first_J, self._time_N[row_J], np.roll(time_T[t_J], 1))
        found = []
        for j in np.flatnonzero(gap_J > long_gap).tolist():
            start = int(np.searchsorted(at_J, at_J[j]))
            row = int(row_J[j])
            longest = max(int(column["longest"][row]), int(gap_J[start:j].max(initial=0)))
            is_known = int(column["reports"][row]) + j - start >= LEAST_REPORTS
            if is_known and gap_J[j] > CADENCE_FACTOR * longest:
                gap = Gap(
                    rank=int(self.ranks_N[row]),
                    last_iteration=int(earlier_J[j]),
                    next_iteration=int(iteration_T[t_J[j]]),
                    turns=int(gap_J[j]),
                    allowed=max(long_gap, CADENCE_FACTOR * longest),
                    silence_s=float(time_T[t_J[j]] - spoken_J[j]),
                )
                found.append(gap)
        step_J = np.where(known_J & (gap_J > 0), iteration_T[t_J] - earlier_J, _FAR)
        known_step_N = np.where(column["step"] > 0, column["step"], _FAR)
        np.minimum.at(known_step_N, row_J, step_J)
        column["step"] = np.where(known_step_N == _FAR, 0, known_step_N)
        np.maximum.at(column["longest"], row_J, gap_J)
        np.add.at(column["reports"], row_J, (gap_J > 0) | ~known_J)
        is_last_J = np.diff(at_J, append=len(rows_R)) != 0
        column["turn"][row_J[is_last_J]] = turn_T[t_J[is_last_J]]
        column["iteration"][row_J[is_last_J]] = iteration_T[t_J[is_last_J]]
        self._time_N[row_J[is_last_J]] = time_T[t_J[is_last_J]]
        return found

    def _rows(self, ranks_R: Ranks) -> Ints:
        """Where ``ranks_R`` stand in the columns; those not known yet are added."""
        if not np.array_equal(self.ranks_N, ranks_R):
            all_N = union(self.ranks_N, ranks_R)
            old_N = np.searchsorted(all_N, self.ranks_N)
            for name, values_N in self._ints.items():
                grown_N = np.full(len(all_N), -1 if name in ("turn", "iteration") else 0, np.int64)
                grown_N[old_N] = values_N
                self._ints[name] = grown_N
            time_N = np.full(len(all_N), np.nan)
            time_N[old_N] = self._time_N
            self._time_N, self.ranks_N = time_N, all_N
        return np.searchsorted(self.ranks_N, ranks_R)


def any_present(block: IterationBlock) -> Flags | None:
    """Which rank reported anything at which position; None where nobody did."""
    seen: Flags | None = None
    present = [number.present_TR for number in block.numbers.values()]
    present += [checksum.present_TR for checksum in block.checksums.values()]
    for present_TR in present:
        seen = present_TR if seen is None else seen | present_TR
    return seen


def _carried(time_T: Floats, before_s: float) -> Floats:
    """The last known time at each position."""
    known_T = ~np.isnan(time_T)
    if known_T.all():
        return time_T
    if not known_T.any():
        return np.full(len(time_T), before_s)
    at_T = np.maximum.accumulate(np.where(known_T, np.arange(len(time_T)), -1))
    return np.where(at_T >= 0, time_T[at_T], before_s)
