"""Ranks that are equal only now and then: local SGD, whose replicas agree behind outer steps alone.

Between two outer steps every rank trains for itself, and its state is its own. Where checksums are reported
at those iterations too, all ranks part and meet again, on a schedule: that is how the job works, and a fault
is who differs where they meet. Axes: T positions, R ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ingest.blocks import Flags, Ints

from .base import State
from .groups import NO_CLASS, codes_of
from .learned_groups import rows_of
from .vote_view import Checks

MEETINGS = 2
"""Times that all must have met again after all had parted: two give the period. Replicas that part by a fault
do not meet again by themselves; two that a gather heals now and then are equal at most checks."""
MAX_APART = 512
"""Checks at which all may differ before the first meeting; beyond, they have parted for good."""


@dataclass(slots=True)
class OuterSteps:
    """Learns when ranks meet, from checks at which all of them differ or all are equal."""

    meetings: list[int] = field(default_factory=list)
    apart: int = 0
    """Checks at which no two ranks of a group were equal."""
    equal: int = 0
    """Checks since the first of those at which all were."""
    was_apart: bool = False
    is_refuted: bool = False

    @property
    def period(self) -> int | None:
        """Iterations from one meeting to the next; None where ranks have not met often enough."""
        if self.is_refuted or len(self.meetings) < MEETINGS:
            return None
        return self.meetings[1] - self.meetings[0]

    def take(self, checks: Checks) -> Checks | None:
        """The checks at which ranks must be equal, once it is known when; None before."""
        if self.is_refuted:
            return None
        start = self._learn(checks, *_kinds(checks)) if self.period is None else 0
        period = self.period
        if period is None or start >= len(checks.iteration_T):
            return None
        rest = rows_of(checks, start, len(checks.iteration_T))
        is_meeting_T = (rest.iteration_T - self.meetings[0]) % period == 0
        return _chosen(rest, is_meeting_T) if is_meeting_T.any() else None

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            name: getattr(self, name) for name in ("meetings", "apart", "equal", "was_apart", "is_refuted")
        }

    @classmethod
    def restored(cls, state: State) -> OuterSteps:
        """The fold that gave ``state``."""
        plain: dict[str, Any] = {**state, "meetings": list(state["meetings"])}
        return cls(**plain)

    def _learn(self, checks: Checks, apart_T: Flags, equal_T: Flags) -> int:
        """Go through the checks up to the one that decides; returns the row to go on from."""
        for t in np.flatnonzero(apart_T | equal_T).tolist():
            if apart_T[t]:
                self.apart, self.was_apart = self.apart + 1, True
                self.is_refuted = self.apart > MAX_APART
                if self.is_refuted:
                    break
                continue
            if not self.apart:
                continue
            self.equal += 1
            if self.was_apart:
                self.was_apart = False
                self.meetings.append(int(checks.iteration_T[t]))
            if len(self.meetings) == MEETINGS:
                self.is_refuted = self.equal > self.apart or self.meetings[1] == self.meetings[0]
                return t + 1
        return len(checks.iteration_T)


def _kinds(checks: Checks) -> tuple[Flags, Flags]:
    """(rows at which no two members of a group are equal, rows at which all are)."""
    columns = np.flatnonzero(checks.class_R != NO_CLASS)
    order = columns[np.argsort(checks.class_R[columns], kind="stable")]
    parts = np.split(order, np.flatnonzero(np.diff(checks.class_R[order])) + 1)
    apart_T = np.zeros(len(checks.iteration_T), np.bool_)
    equal_T = np.zeros_like(apart_T)
    for t in np.flatnonzero(checks.present_TR[:, columns].sum(axis=1) >= 2).tolist():
        counts = [_distinct(checks, t, part) for part in parts]
        several = [(members, values) for members, values in counts if members >= 2]
        apart_T[t] = bool(several) and all(members == values for members, values in several)
        equal_T[t] = bool(several) and all(values == 1 for _, values in several)
    return apart_T, equal_T


def _distinct(checks: Checks, t: int, part: Ints) -> tuple[int, int]:
    """(members that reported, different values among them)."""
    there = part[checks.present_TR[t, part]]
    if not len(there):
        return 0, 0
    return len(there), len(codes_of(checks.low_TR[t, there], checks.high_TR[t, there])[1])


def _chosen(checks: Checks, chosen_T: Flags) -> Checks:
    return Checks(
        checks.iteration_T[chosen_T],
        checks.microbatch_T[chosen_T],
        checks.ranks_R,
        checks.high_TR[chosen_T],
        checks.low_TR[chosen_T],
        checks.present_TR[chosen_T],
        checks.class_R,
    )
