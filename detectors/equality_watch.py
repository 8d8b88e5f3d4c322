"""One metric whose values must be equal: its groups, the vote in them, and what was told of it already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .base import State
from .evidence import Certainty
from .learned_groups import LearnedGroups
from .vote import EqualityVote, Split
from .vote_view import Checks


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

    def feed(self, checks: Checks) -> None:
        """Take the next checks; with classes to learn, the first one waits for the second."""
        for ready in [checks] if self.groups is None else self.groups.take(checks):
            self.vote.feed(ready)

    def certainty(self, split: Split) -> Certainty:
        """Confirmed, but for what chance or a wrong layout explains as well (see `ChecksumVote`)."""
        never_agreed = split.is_tie and split.last_clean is None
        seen_once = split.is_tie and self.groups is not None and split.differing < 2
        return Certainty.SUSPECTED if never_agreed or seen_once else Certainty.CONFIRMED

    def news(self, certainty: Callable[[Split], Certainty]) -> Iterator[tuple[int, Split]]:
        """Splits of which there is something new to say, with their ordinal."""
        for ordinal, split in enumerate(self.vote.splits):
            now = [int(certainty(split) is Certainty.CONFIRMED), split.returns, len(split.later_ranks)]
            if ordinal == len(self.told):
                self.told.append(now)
            elif self.told[ordinal] == now:
                continue
            self.told[ordinal] = now
            yield ordinal, split

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {
            "vote": self.vote.snapshot(),
            "groups": None if self.groups is None else self.groups.snapshot(),
            "told": [list(each) for each in self.told],
            "told_odd": self.told_odd,
            "reporters": self.reporters,
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
        )
