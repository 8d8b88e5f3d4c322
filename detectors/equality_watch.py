"""One metric whose values must be equal: its groups, the vote in them, and what was told of it already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .base import State
from .evidence import Certainty
from .learned_groups import LearnedGroups, rows_of
from .outer_steps import OuterSteps
from .vote import EqualityVote, Split
from .vote_view import Checks


@dataclass(frozen=True, slots=True)
class News:
    """A departure of which there is something new to say."""

    key: str
    split: Split
    is_withdrawn: bool = False
    """Whether it turned out to be how the job works."""


@dataclass(slots=True)
class EqualityWatch:
    """The vote on one metric between two changes of the layout, and what was told of it."""

    vote: EqualityVote = field(default_factory=EqualityVote)
    groups: LearnedGroups | None = None
    told: list[list[int]] = field(default_factory=list)
    """Per split what was last said of it: whether confirmed, times equal again, later ranks."""
    told_odd: bool = False
    reporters: int = 0
    """Most ranks that reported the metric in one block."""
    outer: OuterSteps = field(default_factory=OuterSteps)
    meeting_vote: EqualityVote = field(default_factory=EqualityVote)
    """The vote at outer steps alone, where ranks are equal nowhere else."""
    told_of_meetings: list[list[int]] = field(default_factory=list)

    def feed(self, checks: Checks, *, may_meet: bool = False) -> None:
        """Take the next checks; with classes to learn, the first one waits for the second.

        ``may_meet``: whether it is state that ranks may have apart between outer steps.
        """
        for ready in [checks] if self.groups is None else self.groups.take(checks):
            self.vote.feed(ready)
            if may_meet:
                self._meet(ready)

    def _meet(self, checks: Checks) -> None:
        parted = next((split.iteration for split in self.vote.splits if split.is_tie), None)
        if parted is None:
            return
        start = int(checks.iteration_T.searchsorted(parted))
        if start < len(checks.iteration_T):
            at_meetings = self.outer.take(rows_of(checks, start, len(checks.iteration_T)))
            if at_meetings is not None:
                self.meeting_vote.feed(at_meetings)

    def certainty(self, split: Split) -> Certainty:
        """Confirmed, but for what chance or a wrong layout explains as well (see `ChecksumVote`)."""
        never_agreed = split.is_tie and split.last_clean is None
        seen_once = split.is_tie and self.groups is not None and split.differing < 2
        return Certainty.SUSPECTED if never_agreed or seen_once else Certainty.CONFIRMED

    def news(self, certainty: Callable[[Split], Certainty]) -> Iterator[News]:
        """Splits of which there is something new to say, with their ordinal."""
        meets = self.outer.period is not None
        for ordinal, split in _news(self.vote, self.told, certainty, meets=meets):
            yield News(str(ordinal), split, meets and split.is_tie)
        for ordinal, split in _news(self.meeting_vote, self.told_of_meetings, certainty, meets=False):
            yield News(f"outer:{ordinal}", split)

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "vote": self.vote.snapshot(),
            "groups": None if self.groups is None else self.groups.snapshot(),
            "told": [list(each) for each in self.told],
            "told_odd": self.told_odd,
            "reporters": self.reporters,
            "outer": self.outer.snapshot(),
            "meeting_vote": self.meeting_vote.snapshot(),
            "told_of_meetings": [list(each) for each in self.told_of_meetings],
        }

    @classmethod
    def restored(cls, state: State) -> EqualityWatch:
        """The watch that gave ``state``."""
        return cls(
            vote=EqualityVote.restored(state["vote"]),
            groups=None if state["groups"] is None else LearnedGroups.restored(state["groups"]),
            told=[list(each) for each in state["told"]],
            told_odd=state["told_odd"],
            reporters=state["reporters"],
            outer=OuterSteps.restored(state["outer"]),
            meeting_vote=EqualityVote.restored(state["meeting_vote"]),
            told_of_meetings=[list(each) for each in state["told_of_meetings"]],
        )


def _news(
    vote: EqualityVote, told: list[list[int]], certainty: Callable[[Split], Certainty], *, meets: bool
) -> Iterator[tuple[int, Split]]:
    for ordinal, split in enumerate(vote.splits):
        now = [
            int(certainty(split) is Certainty.CONFIRMED),
            split.returns,
            len(split.later_ranks),
            int(meets and split.is_tie),
        ]
        if ordinal == len(told):
            told.append(now)
        elif told[ordinal] == now:
            continue
        told[ordinal] = now
        yield ordinal, split
