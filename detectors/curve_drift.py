"""Whole-curve drift: a lasting upward shift, a slow rise or a stuck value of the loss (in the making)."""

from __future__ import annotations

from typing import ClassVar

from ingest.blocks import IterationBlock

from .base import State
from .evidence import Check, CheckState, Finding


class CurveDrift:
    """A lasting upward shift, a slow rise or a stuck value of the loss."""

    name: ClassVar[str] = "curve_drift"

    def update(self, block: IterationBlock) -> list[Finding]:
        """Take the next settled positions."""
        return []

    def finish(self) -> list[Finding]:
        """What can be said now."""
        return []

    def check(self) -> Check:
        """Whether a curve was there."""
        return Check(name=self.name, state=CheckState.NOT_RUN, why="no loss")

    def snapshot(self) -> State:
        """State as plain data."""
        return {}

    def restore(self, state: State) -> None:
        """Continue."""
