"""Explosion of the loss or the gradient norm: sustained growth over a robust baseline (in the making)."""

from __future__ import annotations

from typing import ClassVar

from ingest.blocks import IterationBlock

from .base import State
from .evidence import Check, CheckState, Finding


class Explosion:
    """Sustained growth of loss or gradient norm."""

    name: ClassVar[str] = "explosion"

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions."""
        return []

    def finish(self) -> list[Finding]:
        """What can be said now."""
        return []

    def check(self) -> Check:
        """Whether a curve was there."""
        return Check(name=self.name, state=CheckState.NOT_RUN, why="no loss and no gradient norm")

    def snapshot(self) -> State:
        """State as plain data."""
        return {}

    def restore(self, state: State) -> None:
        """Continue."""
