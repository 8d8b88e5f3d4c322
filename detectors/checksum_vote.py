"""Checksums of replicated state, voted on inside each equality group."""

from __future__ import annotations

from typing import ClassVar

from ingest.blocks import IterationBlock

from .base import State
from .evidence import Check, CheckState, Finding


class ChecksumVote:
    """Checksums of replicated state, voted on inside each equality group."""

    name: ClassVar[str] = "checksum_vote"

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions."""
        return []

    def finish(self) -> list[Finding]:
        """Say what can be said now that no more will come."""
        return []

    def check(self) -> Check:
        """Whether there was something to check."""
        return Check(name=self.name, state=CheckState.NOT_RUN, why="nothing was reported yet")

    def snapshot(self) -> State:
        """The whole state as plain data."""
        return {}

    def restore(self, state: State) -> None:
        """Continue from ``state``."""
