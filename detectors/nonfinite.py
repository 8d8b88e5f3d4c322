"""Non-finite values and who was first inside the iteration."""

from __future__ import annotations

from typing import ClassVar

from ingest.blocks import IterationBlock

from .base import State
from .evidence import Check, CheckState, Finding


class Nonfinite:
    """Non-finite values and who was first inside the iteration."""

    name: ClassVar[str] = "nonfinite"

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
